package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"deepswe/env"
)

const (
	// startsAtOnce limits the pods that are being started at once in a cluster, not counting those that wait for
	// room.
	startsAtOnce = 64
	// startTimeout is how long a pod may take to start after it was scheduled, not counting the image pull.
	startTimeout = 3 * time.Minute
	// heartbeat is how often an idle stream is probed. Some load balancers cut streams after 20 idle seconds.
	heartbeat = 15 * time.Second
	// silence is how long a guest waits for a lost host before it ends.
	silence = 5 * time.Minute
)

// start starts a sandbox; see turn for giveWay. copyAndPrepare copies and prepares the repository afterwards.
func (c *cluster) start(ctx context.Context, kind string, s env.Spec, r rank, giveWay func()) (*Sandbox, error) {
	c.beginWork()
	queued := &turn{c: c, rank: r, giveWay: giveWay}
	defer queued.end()
	if err := c.lease.takeLease(ctx); err != nil {
		return nil, c.failed(ctx, err)
	}
	binary, err := c.guests.find()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", env.ErrUnsupported, err)
	}
	for {
		c.mu.Lock()
		m := c.mode
		c.mu.Unlock()
		if err := c.refusedNetwork(m, s); err != nil {
			return nil, err
		}
		sandbox, err := c.boot(ctx, launch{
			kind: kind, name: podName(kind, s), spec: s, mode: m, build: binary.Hash, turn: queued,
		})
		if err == nil {
			return sandbox, nil
		}
		if !errors.Is(err, errLetPass) && !c.retreat(m, s, err) {
			return nil, c.failed(ctx, err)
		}
	}
}

// networkPause is how long starts fail at once after a cluster could not close the network.
const networkPause = time.Minute

// refusedNetwork returns the error of a recent start whose network could not be closed, if this start would need
// the same.
func (c *cluster) refusedNetwork(m mode, s env.Spec) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.network(s) != "probe" || time.Since(c.refusedAt) > networkPause {
		return nil
	}
	return c.refusal
}

// retreat lowers the cluster's mode after a pod was refused, and reports whether there is a mode left to try.
func (c *cluster) retreat(m mode, s env.Spec, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mode != m {
		return true // another start has already lowered it
	}
	if e, ok := errors.AsType[*PodError](err); ok && e.Reason == "NetworkOpen" {
		c.refusal, c.refusedAt = err, time.Now()
		return false
	}
	refusal, ok := errors.AsType[*statusError](err)
	violates := ok && strings.Contains(refusal.Message, "violates PodSecurity")
	switch {
	case errors.Is(err, errNetworkStays) && !m.probe:
		c.mode.probe = true
	case violates && m.level == levelFull && !s.Network:
		c.mode.level = levelBaseline
	case violates && m.level < levelRestricted:
		c.mode.level = levelRestricted
	default:
		return false
	}
	c.log.Info("starting sandboxes with fewer privileges", "cluster", c.where(), "level", c.mode.level.String(),
		"interfaces", map[bool]string{true: "stay", false: "go"}[c.mode.probe || c.mode.level > levelFull], "why", err)
	return true
}

// failed marks an error of the cluster as an infrastructure failure. Errors of the task, and errors that are
// already classified, are returned as they are.
func (c *cluster) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_, prepare := errors.AsType[*env.PrepareError](err)
	_, access := errors.AsType[*accessError](err)
	if err == nil || prepare || access {
		return err
	}
	_, ended := errors.AsType[*PodError](err)
	if ended || errors.Is(err, env.ErrUnsupported) || errors.Is(err, env.ErrInfrastructure) {
		return fmt.Errorf("kubernetes %s: %w", c.where(), err)
	}
	refusal, ok := errors.AsType[*statusError](err)
	switch {
	case !ok:
		return fmt.Errorf("kubernetes %s: %w: %w", c.where(), env.ErrInfrastructure, err)
	case strings.Contains(refusal.Message, "being terminated"):
		return &accessError{c.where(), "the namespace is being deleted", "choose another with --kube-namespace", err}
	case refusal.Code == http.StatusNotFound:
		return &accessError{c.where(), "there is no such namespace", "kubectl create namespace " + c.namespace +
			", or choose another with --kube-namespace", err}
	case strings.Contains(refusal.Message, "cannot "), refusal.Code == http.StatusUnauthorized:
		return c.unreachable(err)
	case strings.Contains(refusal.Message, "exceeded quota") && largerThanQuota(refusal.Message):
		return fmt.Errorf("kubernetes %s: %w: no sandbox will ever fit: %w; to fix: %s", c.where(), env.ErrUnsupported, err,
			raiseQuota)
	case refusal.Code == http.StatusForbidden, refusal.Code == http.StatusUnprocessableEntity,
		refusal.Code == http.StatusBadRequest:
		// A LimitRange, a policy or an invalid name: the same pod would be refused again.
		return fmt.Errorf("kubernetes %s: %w: the cluster refuses the pod: %w", c.where(), env.ErrUnsupported, err)
	}
	return fmt.Errorf("kubernetes %s: %w: %w", c.where(), env.ErrInfrastructure, err)
}

// boot creates a pod and connects to its guest. If it fails, it removes the pod.
func (c *cluster) boot(ctx context.Context, l launch) (_ *Sandbox, err error) {
	s := newSandbox(c, l)
	s.watched = c.watch.register(l.name)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.abandon(ctx))
		}
	}()
	release, err := c.create(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { release() }()
	connected := make(chan error, 1)
	during, cancel := context.WithCancel(ctx)
	defer cancel()
	c.work.Go(func() { connected <- s.connect(during) })
	trouble := c.oversee(during, s, func(why string) {
		release()
		l.turn.lack(during, errors.New("no node takes it: "+why))
	})
	select {
	case err = <-connected:
	case err = <-trouble:
		cancel()
		_ = <-connected //nolint:staticcheck // trouble explains the failure better
	}
	if err != nil {
		return nil, err
	}
	if said := s.Hello().Build; said != l.build {
		return nil, fmt.Errorf("%w: the guest in the image %s is a different build of deepswe (%.12s, not %.12s)",
			env.ErrUnsupported, c.options.Pods.GuestImage, said, l.build)
	}
	c.pulled.add(l.spec.Image)
	return s, nil
}

// create creates a pod as soon as the quota has room. release returns the pod's slot among those being started; it
// may be called more than once.
func (c *cluster) create(ctx context.Context, s *Sandbox) (release func(), err error) {
	for waits := 1; ; waits++ {
		select {
		case c.starts <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		release = sync.OnceFunc(func() { <-c.starts })
		c.watch.mu.Lock()
		freed := c.watch.freed
		c.watch.mu.Unlock()
		if err = errLetPass; !c.queue.letsPass(s.launch.turn.rank) {
			s.uid, err = c.createPod(ctx, c.manifest(s.launch), s.watched)
		}
		if err == nil {
			return release, nil
		}
		release()
		if !overQuota(err) && !errors.Is(err, errLetPass) {
			return nil, err
		}
		s.launch.turn.lack(ctx, err)
		if late := s.launch.turn.late(); late != nil {
			return nil, late
		}
		select {
		case <-freed:
		case <-time.After(jitter(env.Backoff(waits, time.Second, 15*time.Second))):
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for room: %w (%w)", context.Cause(ctx), err)
		}
	}
}

// overQuota reports whether a pod was refused because a quota is currently used up. It is false for a pod that is
// larger than the whole quota.
func overQuota(err error) bool {
	refusal, ok := errors.AsType[*statusError](err)
	if !ok || refusal.Code != http.StatusForbidden && refusal.Code != http.StatusConflict {
		return false
	}
	if refusal.Code == http.StatusConflict {
		return strings.Contains(refusal.Message, "resourcequotas") // two pods were counted at the same time
	}
	return strings.Contains(refusal.Message, "exceeded quota") && !largerThanQuota(refusal.Message)
}

// largerThanQuota reports whether a quota refused a pod although none of a resource is used, so that the pod can
// never fit: "requested: memory=4Gi, used: memory=0, limited: memory=2Gi".
func largerThanQuota(message string) bool {
	values := map[string]string{}
	for _, part := range []string{"requested: ", "used: ", "limited: "} {
		_, rest, ok := strings.Cut(message, part)
		if !ok {
			return false
		}
		for _, word := range strings.FieldsFunc(strings.SplitN(rest, ": ", 2)[0], func(r rune) bool {
			return r == ',' || r == ' '
		}) {
			if key, value, ok := strings.Cut(word, "="); ok {
				values[part+key] = value
			}
		}
	}
	for key, value := range values {
		if resource, ok := strings.CutPrefix(key, "used: "); ok && value == "0" && values["requested: "+resource] != "" {
			return true // refused although nothing is used
		}
	}
	return false
}

// oversee follows a pod that is being started, and reports when the start cannot succeed. It calls waits when the
// pod waits for a node, so that it does not occupy a slot.
func (c *cluster) oversee(ctx context.Context, s *Sandbox, waits func(why string)) <-chan error {
	trouble := make(chan error, 1)
	c.work.Go(func() {
		var hindered impediments
		var placed time.Time
		for {
			p, gone, change := c.watch.look(s.watched)
			var err error
			if p != nil {
				err = hindered.watch(p, c)
				if p.Spec.NodeName != "" && (placed.IsZero() || pulling(p)) {
					placed = time.Now()
				}
			}
			switch {
			case err == nil && gone:
				err = deleted(s.launch.name)
			case err == nil && !placed.IsZero() && time.Since(placed) > startTimeout:
				err = &PodError{Pod: s.launch.name, Reason: "Slow", kind: env.ErrInfrastructure,
					Text: fmt.Sprintf("its guest did not answer within %v of being scheduled on node %s", startTimeout,
						p.Spec.NodeName)}
			}
			if err != nil {
				trouble <- c.explained(ctx, s.watched, err)
				return
			}
			if !hindered.unplaced.IsZero() {
				waits(hindered.why)
				if c.queue.letsPass(s.launch.turn.rank) { // it would take the room that is made for them
					trouble <- errLetPass
					return
				}
			}
			select {
			case <-change:
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
		}
	})
	return trouble
}

// pulling reports whether a pod may still be pulling an image, because none of our containers runs yet.
func pulling(p *pod) bool {
	if p.Status == nil {
		return false
	}
	for _, s := range p.Status.containers() {
		started := s.State.Running != nil || s.State.Terminated != nil
		if started && (s.Name == mainContainer || s.Name == guestContainer && s.State.Running != nil) {
			return false
		}
	}
	return true
}
