package docker

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"deepswe/env"
)

// pool keeps sandboxes that were started ahead of time, the oldest first.
type pool struct {
	p *Provider

	mu     sync.Mutex
	idle   []*early
	closed bool
}

// early is a sandbox that was started, or is being started, ahead of time.
type early struct {
	key     string
	rollout string
	since   time.Time
	done    chan struct{} // closed when sandbox or err is set
	sandbox *Sandbox
	err     error
}

// tooLate is how long an unused sandbox keeps its place in a full pool.
const tooLate = 10 * time.Minute

// Prefetch prepares for a Start of the spec: it pulls the image, runs the spec's Prepare commands on it, and, while
// fewer than Options.Warm sandboxes wait, starts one. Unused sandboxes are removed by Close.
func (p *Provider) Prefetch(ctx context.Context, s env.Spec) error {
	s, err := p.accept(s)
	if err != nil {
		return err
	}
	if e := p.warm.reserve(ctx, s); e != nil {
		p.work.Go(func() { p.warm.start(e, s) })
		select {
		case <-e.done:
			return e.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	d, err := p.pick(ctx, s, nil)
	if d == nil {
		return err
	}
	defer d.expect(-1)
	b, err := d.plan(ctx, s)
	if err == nil {
		d.unpin(b.image)
	}
	return err
}

// reserve adds an entry for a spec, or returns nil when the pool is full.
func (w *pool) reserve(ctx context.Context, s env.Spec) *early {
	e := &early{key: warmKey(s), rollout: s.Rollout, since: time.Now(), done: make(chan struct{})}
	w.mu.Lock()
	full := len(w.idle) >= w.p.options.Warm
	if w.closed || w.p.options.Warm <= 0 || full && time.Since(w.idle[0].since) < tooLate {
		w.mu.Unlock()
		return nil
	}
	var stale *early
	if full {
		stale, w.idle = w.idle[0], w.idle[1:]
	}
	w.idle = append(w.idle, e)
	w.mu.Unlock()
	if stale != nil {
		w.drop(ctx, stale)
	}
	return e
}

func (w *pool) start(e *early, s env.Spec) {
	defer close(e.done)
	if e.sandbox, e.err = w.p.startOn(w.p.life, s); e.err != nil {
		w.p.log.Warn("starting a sandbox ahead of time", "image", s.Image, "error", e.err)
		w.mu.Lock()
		w.idle = slices.DeleteFunc(w.idle, func(other *early) bool { return other == e })
		w.mu.Unlock()
	}
}

// take hands out a sandbox for the spec: one of the same rollout, else one of no rollout. It waits for one that is
// being started. It returns nil when there is none, or none that is still alive.
func (w *pool) take(ctx context.Context, s env.Spec) *Sandbox {
	key := warmKey(s)
	for {
		e := w.find(key, s.Rollout)
		if e == nil {
			return nil
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			w.p.work.Go(func() { w.drop(w.p.life, e) })
			return nil
		}
		if e.err != nil {
			continue
		}
		if e.sandbox.Ping(ctx) != nil {
			w.drop(ctx, e)
			continue
		}
		e.sandbox.claim(ctx, s)
		return e.sandbox
	}
}

// find removes the best entry for a spec from the pool, and returns it; nil when there is none.
func (w *pool) find(key, rollout string) *early {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wanted := range []string{rollout, ""} {
		i := slices.IndexFunc(w.idle, func(e *early) bool { return e.key == key && e.rollout == wanted })
		if i >= 0 {
			e := w.idle[i]
			w.idle = slices.Delete(w.idle, i, i+1)
			return e
		}
	}
	return nil
}

// drop closes a sandbox that is not handed out.
func (w *pool) drop(ctx context.Context, e *early) {
	<-e.done
	if e.sandbox == nil {
		return
	}
	if err := e.sandbox.Close(ctx); err != nil {
		w.p.log.Warn("removing a sandbox that was started ahead of time", "error", err)
	}
}

func (w *pool) close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	idle := w.idle
	w.idle = nil
	w.mu.Unlock()
	var err error
	for _, e := range idle {
		select {
		case <-e.done:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
		if e.sandbox != nil {
			err = errors.Join(err, e.sandbox.Close(ctx))
		}
	}
	return err
}

// warmKey is equal for specs that the same sandbox can serve. A repository is copied in, and prepared, only when the
// sandbox is handed out.
func warmKey(s env.Spec) string {
	s.Rollout = ""
	if s.CopyIn != "" {
		s.CopyIn = "copied"
	}
	key, _ := json.Marshal(s) // strings and numbers can always be encoded
	return string(key)
}
