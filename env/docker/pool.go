package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"deepswe/env"
)

// pool keeps sandboxes that were started before anybody asked for them, in the order in which they were announced.
type pool struct {
	p *Provider

	mu     sync.Mutex
	idle   []*early
	closed bool
}

// early is a sandbox that was started, or is being started, before a Start asks for its spec.
type early struct {
	key     string
	rollout string
	since   time.Time
	done    chan struct{} // closed when sandbox or err is set
	sandbox *Sandbox
	err     error
}

// tooLate is how long a sandbox waits before another one may take its place.
const tooLate = 10 * time.Minute

func newPool(p *Provider) *pool { return &pool{p: p} }

// Prefetch makes ready what a Start of the spec will need: it pulls the image, prepares it, and, while fewer than
// Options.Warm sandboxes wait, starts one. It returns when that is done. Unused sandboxes are removed by Close.
func (p *Provider) Prefetch(ctx context.Context, s env.Spec) error {
	s, err := p.complete(s)
	if err != nil {
		return err
	}
	if p.life.Err() != nil {
		return fmt.Errorf("%w: the docker provider is closed", env.ErrInfrastructure)
	}
	p.begin()
	if e := p.warm.announce(ctx, s); e != nil {
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
	defer func() {
		d.mu.Lock()
		d.coming--
		d.mu.Unlock()
	}()
	b, err := d.plan(ctx, s)
	if err == nil {
		d.unpin(b.image)
	}
	return err
}

// announce reserves a place, or returns nil when there is none.
func (w *pool) announce(ctx context.Context, s env.Spec) *early {
	e := &early{key: warmKey(s), rollout: s.Rollout, since: time.Now(), done: make(chan struct{})}
	w.mu.Lock()
	if w.closed || w.p.options.Warm <= 0 {
		w.mu.Unlock()
		return nil
	}
	var stale *early
	if len(w.idle) >= w.p.options.Warm {
		if time.Since(w.idle[0].since) < tooLate {
			w.mu.Unlock()
			return nil
		}
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
	e.sandbox, e.err = w.p.startOn(w.p.life, s)
	if e.err != nil {
		w.p.log.Warn("starting a sandbox ahead of time", "image", s.Image, "error", e.err)
		w.leave(e)
	}
}

// leave removes an entry from the pool, and reports whether it was still there.
func (w *pool) leave(e *early) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.idle {
		if other == e {
			w.idle = append(w.idle[:i:i], w.idle[i+1:]...)
			return true
		}
	}
	return false
}

// take hands out a waiting sandbox of the spec: one of the same rollout, else one of no rollout. It waits for one that
// is being started. It returns nil when there is none, or none that is still alive.
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

func (w *pool) find(key, rollout string) *early {
	w.mu.Lock()
	defer w.mu.Unlock()
	best := -1
	for i, e := range w.idle {
		if e.key == key && (e.rollout == rollout || e.rollout == "" && best < 0) {
			best = i
			if e.rollout == rollout {
				break
			}
		}
	}
	if best < 0 {
		return nil
	}
	e := w.idle[best]
	w.idle = append(w.idle[:best:best], w.idle[best+1:]...)
	return e
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

// warmKey is equal for specs that one sandbox can serve. What is copied in, and what is prepared after that, comes when
// the sandbox is handed out.
func warmKey(s env.Spec) string {
	s.Rollout = ""
	if s.CopyIn != "" {
		s.CopyIn = "copied"
	}
	key, err := json.Marshal(s)
	if err != nil {
		return "" // strings and numbers always can be
	}
	return string(key)
}
