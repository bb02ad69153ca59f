package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/owner"
)

// Reap deletes the pods and leases of dead owners in all clusters; with o.All, also those of living ones.
func (p *Provider) Reap(ctx context.Context, o env.ReapOptions) ([]env.Leftover, error) {
	var left []env.Leftover
	var failures error
	for _, c := range p.clusters {
		found, err := c.reap(ctx, o)
		left, failures = append(left, found...), errors.Join(failures, err)
	}
	return left, failures
}

// inventory is a snapshot of the pods and leases of all deepswe processes in a namespace.
type inventory struct {
	c        *cluster
	pods     []pod
	leases   []lease
	verdicts map[string]bool
}

func (c *cluster) inventory(ctx context.Context) (*inventory, error) {
	i := &inventory{c: c, verdicts: map[string]bool{}}
	var leases leaseList
	// Leases first: a pod created in between has a lease that is already listed, or is too young to be judged.
	err := c.call(ctx, request{
		method: http.MethodGet, path: c.leases(), query: url.Values{"labelSelector": {labelOwner}}, into: &leases,
	})
	if err != nil {
		return nil, err
	}
	i.leases = leases.Items
	i.pods, _, err = c.listPods(ctx, labelOwner)
	return i, err
}

// lives reports whether an owner is alive. Owners on this machine are looked up among its processes, others are
// judged by their lease.
func (i *inventory) lives(who string, stale time.Duration) bool {
	if who == i.c.owner {
		return true
	}
	if verdict, known := i.verdicts[who]; known {
		return verdict
	}
	i.verdicts[who] = i.judge(who, cmp.Or(stale, defaultStale))
	return i.verdicts[who]
}

func (i *inventory) judge(who string, stale time.Duration) bool {
	switch process(who) {
	case disk.Alive:
		return true
	case disk.Dead:
		return false
	case disk.Unknown:
	}
	return i.c.now().Sub(i.lastSign(who)) < stale
}

// lastSign returns when an owner last renewed its lease. An owner without one is judged by its youngest pod.
func (i *inventory) lastSign(who string) (last time.Time) {
	for _, l := range i.leases {
		if l.Metadata.Labels[labelOwner] == who && l.Spec.RenewTime != nil && l.Spec.RenewTime.After(last) {
			last = l.Spec.RenewTime.Time
		}
	}
	for _, p := range i.pods {
		if at := p.Metadata.CreationTimestamp; p.Metadata.Labels[labelOwner] == who && at != nil && at.After(last) {
			last = *at
		}
	}
	return last
}

// A silence up to longestOutage may be that of the API server. Then an owner counts as dead only after it has been
// silent for secondLook more.
const (
	longestOutage = time.Hour
	secondLook    = leaseInterval + 5*time.Second
)

// observe takes a second look where owners on other machines seem to have died lately. dead are those that stayed
// silent in an earlier one, and is extended.
func (i *inventory) observe(ctx context.Context, o env.ReapOptions, dead map[string]bool) error {
	doubts := map[string]time.Time{}
	doubt := func(m metadata) {
		who := m.Labels[labelOwner]
		if _, known := doubts[who]; known || dead[who] || i.lives(who, o.Stale) || process(who) == disk.Dead {
			return
		}
		if last := i.lastSign(who); i.c.now().Sub(last) < longestOutage {
			doubts[who] = last
		}
	}
	for _, p := range i.pods {
		doubt(p.Metadata)
	}
	for _, l := range i.leases {
		doubt(l.Metadata)
	}
	if len(doubts) == 0 {
		return nil
	}
	if err := env.Sleep(ctx, min(secondLook, cmp.Or(o.Stale, defaultStale))); err != nil {
		return err
	}
	again, err := i.c.inventory(ctx)
	if err != nil {
		return err
	}
	for who, last := range doubts {
		i.verdicts[who] = again.lastSign(who).After(last)
		dead[who] = !i.verdicts[who]
	}
	return nil
}

// process looks an owner up among the processes of this machine. It is Unknown on another one.
func process(who string) disk.Liveness {
	o, ok := owner.Parse(who)
	if !ok {
		return disk.Unknown
	}
	return o.LivenessOn(owner.Machine())
}

// The server may still be processing requests of a killed process, so after removing something, reap looks again
// until it finds nothing.
const (
	reapRounds = 10
	reapPause  = 200 * time.Millisecond
	reapAtOnce = 8
)

func (c *cluster) reap(ctx context.Context, o env.ReapOptions) ([]env.Leftover, error) {
	ctx, cancel := context.WithTimeout(ctx, outageTimeout)
	defer cancel()
	var all []env.Leftover
	dead := map[string]bool{}
	for round := 0; ; round++ {
		var left []env.Leftover
		i, err := c.inventory(ctx)
		if err == nil && !o.All {
			err = i.observe(ctx, o, dead)
		}
		if err == nil {
			left, err = i.reap(ctx, o)
		}
		all = append(all, left...)
		if err != nil {
			return all, c.unreachable(err)
		}
		if len(left) == 0 || o.DryRun || round == reapRounds {
			return all, nil
		}
		if err := env.Sleep(ctx, reapPause); err != nil {
			return all, c.unreachable(err)
		}
	}
}

// reap removes what is in the inventory and should go. Leases go last, because other reapers judge by them.
func (i *inventory) reap(ctx context.Context, o env.ReapOptions) ([]env.Leftover, error) {
	var left []env.Leftover
	var removals []func() error
	for _, p := range i.pods {
		if o.All || !i.lives(p.Metadata.Labels[labelOwner], o.Stale) {
			left = append(left, i.leftover("pod", p.Metadata))
			removals = append(removals, func() error { return i.c.deletePod(ctx, p.Metadata.Name, p.Metadata.UID) })
		}
	}
	if err := i.carryOut(o, removals); err != nil {
		return nil, err
	}
	removals = nil
	for _, l := range i.leases {
		if o.All || !i.lives(l.Metadata.Labels[labelOwner], o.Stale) {
			left = append(left, i.leftover("lease", l.Metadata))
			removals = append(removals, func() error { return i.c.deleteLease(ctx, l.Metadata.Name) })
		}
	}
	return left, i.carryOut(o, removals)
}

// carryOut performs the removals, reapAtOnce at a time.
func (i *inventory) carryOut(o env.ReapOptions, removals []func() error) error {
	if o.DryRun {
		return nil
	}
	failures := make([]error, len(removals))
	turns := make(chan struct{}, reapAtOnce)
	var work sync.WaitGroup
	for n, remove := range removals {
		turns <- struct{}{}
		work.Go(func() {
			failures[n] = remove()
			<-turns
		})
	}
	work.Wait()
	return errors.Join(failures...)
}

func (i *inventory) leftover(kind string, m metadata) env.Leftover {
	l := env.Leftover{
		Provider: name, Kind: kind, ID: m.Name, Run: m.Annotations[annotationRun], Rollout: m.Annotations[annotationRollout],
		Owner: m.Labels[labelOwner],
	}
	if m.CreationTimestamp != nil {
		l.Age = i.c.now().Sub(*m.CreationTimestamp).Round(time.Second)
	}
	if o, ok := owner.Parse(l.Owner); ok {
		l.Owner = m.Annotations[annotationHost] + " pid " + strconv.Itoa(o.PID)
	}
	return l
}
