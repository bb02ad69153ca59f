package fleet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
)

// LeaseInterval is how often an owner renews its lease. An owner on another machine counts as dead if it has not done
// so for Stale.
const (
	LeaseInterval = 30 * time.Second
	Stale         = 4 * LeaseInterval
)

// Place is where several processes keep what they own. A provider has one or more.
type Place interface {
	// Inventory lists what all owners have in the place.
	Inventory(ctx context.Context) (Inventory, error)
	// Sweep removes what belongs to no owner and is no longer needed. inUse is what living owners use.
	Sweep(ctx context.Context, now time.Time, inUse map[string]bool, o env.ReapOptions) ([]env.Leftover, error)
}

// Inventory is a snapshot of a place, whose clock says Now.
type Inventory struct {
	Now    time.Time
	Things []Thing
}

// Thing is a container, a pod or a lease.
type Thing struct {
	// Owner is an [Owner] as text, after which a provider may add a part of its own.
	Owner string
	// Lease is set if the thing is a lease, which shows that its owner is alive. Seen is when a lease was last renewed,
	// or when any other thing was created.
	Lease bool
	Seen  time.Time
	// Uses names what must not be removed while the owner is alive; see [Place].
	Uses []string
	// Leftover describes the thing once it was removed. Remove succeeds if it no longer exists.
	Leftover env.Leftover
	Remove   func(context.Context) error
}

// lastSign returns when an owner last showed that it is alive. One without a lease is judged by its youngest thing.
func (i Inventory) lastSign(who string) (last time.Time) {
	for _, t := range i.Things {
		if t.Owner == who && t.Seen.After(last) {
			last = t.Seen
		}
	}
	return last
}

// Reaper removes from a place what dead owners left there.
type Reaper struct {
	Place Place
	// Self is this process, which is alive.
	Self string
	// Outage is how long the place itself may be out of reach. An owner that has been silent for less than that counts
	// as dead only if it stays silent for secondLook more. 0 means that owners cannot lose the place and live.
	Outage time.Duration
}

// The place may still be processing requests of a killed process, so after removing something, Reap looks again until
// it finds nothing.
const (
	reapTimeout = 2 * time.Minute
	reapRounds  = 10
	reapPause   = 200 * time.Millisecond
	reapAtOnce  = 8
	secondLook  = LeaseInterval + 5*time.Second
)

// Reap removes what dead owners left, and everything with o.All. It returns what it removed, also with an error.
func (r Reaper) Reap(ctx context.Context, o env.ReapOptions) ([]env.Leftover, error) {
	ctx, cancel := context.WithTimeout(ctx, reapTimeout)
	defer cancel()
	var all []env.Leftover
	dead := map[string]bool{}
	for round := 0; ; round++ {
		left, err := r.round(ctx, o, dead)
		all = append(all, left...)
		if err != nil || len(left) == 0 || o.DryRun || round == reapRounds {
			return all, err
		}
		if err := env.Sleep(ctx, reapPause); err != nil {
			return all, err
		}
	}
}

// ReapAll reaps in all places of a provider at once.
func ReapAll[P any](places []P, reap func(P) ([]env.Leftover, error)) ([]env.Leftover, error) {
	found := make([][]env.Leftover, len(places))
	failures := make([]error, len(places))
	var work sync.WaitGroup
	for i, p := range places {
		work.Go(func() { found[i], failures[i] = reap(p) })
	}
	work.Wait()
	return slices.Concat(found...), errors.Join(failures...)
}

// Tidy reaps in the background of a run. It logs errors instead of returning them, because the run can go on.
func (r Reaper) Tidy(ctx context.Context, log *slog.Logger) {
	left, err := r.Reap(ctx, env.ReapOptions{})
	if len(left) > 0 {
		log.Info("removed what dead runs left", "things", len(left))
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("cannot remove what dead runs left", "error", err)
	}
}

// Alive reports whether an owner is alive.
func (r Reaper) Alive(ctx context.Context, who string) (bool, error) {
	found, err := r.Place.Inventory(ctx)
	return err == nil && r.alive(found, who, Stale), err
}

// alive judges owners on this machine by its processes, and others by their leases.
func (r Reaper) alive(i Inventory, who string, stale time.Duration) bool {
	if who == r.Self {
		return true
	}
	switch Liveness(who) {
	case disk.Alive:
		return true
	case disk.Dead:
		return false
	}
	return i.Now.Sub(i.lastSign(who)) < stale
}

// round takes an inventory and removes what should go. dead are the owners that stayed silent during the second look
// of an earlier round; round adds those of its own.
func (r Reaper) round(ctx context.Context, o env.ReapOptions, dead map[string]bool) ([]env.Leftover, error) {
	found, err := r.Place.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	alive, err := r.living(ctx, found, o, dead)
	if err != nil {
		return nil, err
	}
	var doomed, leases []Thing
	inUse := map[string]bool{}
	for _, t := range found.Things {
		switch {
		case alive[t.Owner]:
			for _, used := range t.Uses {
				inUse[used] = true
			}
		case t.Lease:
			leases = append(leases, t)
		default:
			doomed = append(doomed, t)
		}
	}
	left, err := removeAll(ctx, doomed, o)
	// Leases go last, because other reapers judge by them.
	more, leaseErr := removeAll(ctx, leases, o)
	rest, sweepErr := r.Place.Sweep(ctx, found.Now, inUse, o)
	return slices.Concat(left, more, rest), errors.Join(err, leaseErr, sweepErr)
}

// living returns the owners in an inventory whose things must stay.
func (r Reaper) living(
	ctx context.Context, found Inventory, o env.ReapOptions, dead map[string]bool,
) (map[string]bool, error) {
	alive, doubts := map[string]bool{}, map[string]time.Time{}
	if o.All {
		return alive, nil
	}
	stale := cmp.Or(o.Stale, Stale)
	for _, t := range found.Things {
		who := t.Owner
		if _, known := alive[who]; known {
			continue
		}
		if alive[who] = r.alive(found, who, stale); alive[who] || dead[who] || Liveness(who) == disk.Dead {
			continue
		}
		if last := found.lastSign(who); found.Now.Sub(last) < r.Outage {
			doubts[who] = last
		}
	}
	if len(doubts) == 0 {
		return alive, nil
	}
	if err := env.Sleep(ctx, min(secondLook, stale)); err != nil {
		return nil, err
	}
	again, err := r.Place.Inventory(ctx)
	for who, last := range doubts {
		alive[who] = again.lastSign(who).After(last)
		dead[who] = !alive[who]
	}
	return alive, err
}

// removeAll removes things, reapAtOnce at a time, and returns those that are gone; with o.DryRun, it only returns
// them all.
func removeAll(ctx context.Context, things []Thing, o env.ReapOptions) (left []env.Leftover, err error) {
	failures := make([]error, len(things))
	var work sync.WaitGroup
	turns := make(chan struct{}, reapAtOnce)
	for i, t := range things {
		if o.DryRun {
			break
		}
		turns <- struct{}{}
		work.Go(func() {
			if failures[i] = ctx.Err(); failures[i] == nil {
				failures[i] = t.Remove(ctx)
			}
			<-turns
		})
	}
	work.Wait()
	for i, t := range things {
		if failures[i] == nil {
			left = append(left, t.Leftover)
		}
	}
	return left, errors.Join(failures...)
}

// Orphans remembers things that could not be removed, so that they can be removed later. K identifies a thing.
type Orphans[K comparable] struct {
	mu  sync.Mutex
	all map[K]bool
}

// Add remembers a thing that was left.
func (o *Orphans[K]) Add(k K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[K]bool{}
	}
	o.all[k] = true
}

// Len returns how many things are left.
func (o *Orphans[K]) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all)
}

// Retry removes what is left, and keeps what fails again for the next time.
func (o *Orphans[K]) Retry(remove func(K) error) error {
	o.mu.Lock()
	again := o.all
	o.all = nil
	o.mu.Unlock()
	var failures error
	for k := range again {
		if err := remove(k); err != nil {
			o.Add(k)
			failures = errors.Join(failures, err)
		}
	}
	return failures
}
