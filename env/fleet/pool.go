package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"deepswe/env"
)

// Sandbox is what a pool holds.
type Sandbox interface {
	comparable
	Ping(ctx context.Context) error
	Close(ctx context.Context) error
}

// Pool holds sandboxes that were started ahead of time, so that a rollout need not wait for an image or a machine;
// oldest first. Its fields are set before its first use.
type Pool[S Sandbox] struct {
	// Size is the most sandboxes that the pool holds; 0 disables it.
	Size int
	// Boot starts a sandbox for a spec. Claim assigns a sandbox to the spec that it is handed out for.
	Boot  func(ctx context.Context, s env.Spec) (S, error)
	Claim func(ctx context.Context, sandbox S, s env.Spec)
	Log   *slog.Logger
	// Life ends when nothing may be started any more. Work counts the pool's own goroutines.
	Life context.Context
	Work *sync.WaitGroup

	mu     sync.Mutex
	idle   []*entry[S]
	closed bool
}

// entry is a sandbox that was started, or is being started, ahead of time.
type entry[S Sandbox] struct {
	key     string
	rollout string
	since   time.Time
	done    chan struct{} // closed when sandbox or err is set
	sandbox S
	err     error
}

// tooLate is how long an unused sandbox keeps its place in a full pool.
const tooLate = 10 * time.Minute

// reserve adds an entry for a spec, or returns nil if the pool is full. In a full pool, an entry older than tooLate
// gives way.
func (w *Pool[S]) reserve(ctx context.Context, s env.Spec) *entry[S] {
	e := &entry[S]{key: warmKey(s), rollout: s.Rollout, since: time.Now(), done: make(chan struct{})}
	w.mu.Lock()
	full := len(w.idle) >= w.Size
	if w.closed || w.Size <= 0 || full && time.Since(w.idle[0].since) < tooLate {
		w.mu.Unlock()
		return nil
	}
	var stale *entry[S]
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

// Fill starts a sandbox for the spec and waits for it, if the pool has room. It reports whether it had.
func (w *Pool[S]) Fill(ctx context.Context, s env.Spec) (filled bool, err error) {
	e := w.reserve(ctx, s)
	if e == nil {
		return false, nil
	}
	w.Work.Go(func() { w.start(e, s) })
	select {
	case <-e.done:
		return true, e.err
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

func (w *Pool[S]) start(e *entry[S], s env.Spec) {
	defer close(e.done)
	if e.sandbox, e.err = w.Boot(w.Life, s); e.err != nil {
		w.Log.Warn("starting a sandbox ahead of time", "image", s.Image, "error", e.err)
		w.mu.Lock()
		w.idle = slices.DeleteFunc(w.idle, func(other *entry[S]) bool { return other == e })
		w.mu.Unlock()
	}
}

// Take hands out a living sandbox for the spec, preferably one started for the same rollout, otherwise one started
// for none. It waits for a sandbox that is still being started. ok is false if the pool has none.
func (w *Pool[S]) Take(ctx context.Context, s env.Spec) (sandbox S, ok bool) {
	key := warmKey(s)
	for {
		e := w.find(key, s.Rollout)
		if e == nil {
			return sandbox, false
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			w.Work.Go(func() { w.drop(w.Life, e) })
			return sandbox, false
		}
		if e.err != nil {
			continue
		}
		if e.sandbox.Ping(ctx) != nil {
			w.drop(ctx, e)
			continue
		}
		w.Claim(ctx, e.sandbox, s)
		return e.sandbox, true
	}
}

// find removes the best entry for a spec from the pool and returns it, or nil.
func (w *Pool[S]) find(key, rollout string) *entry[S] {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wanted := range []string{rollout, ""} {
		i := slices.IndexFunc(w.idle, func(e *entry[S]) bool { return e.key == key && e.rollout == wanted })
		if i >= 0 {
			e := w.idle[i]
			w.idle = slices.Delete(w.idle, i, i+1)
			return e
		}
	}
	return nil
}

// drop closes a sandbox that will not be handed out.
func (w *Pool[S]) drop(ctx context.Context, e *entry[S]) {
	<-e.done
	if e.err != nil {
		return
	}
	if err := e.sandbox.Close(ctx); err != nil {
		w.Log.Warn("removing a sandbox that was started ahead of time", "error", err)
	}
}

// Close closes all sandboxes in the pool, which stays empty from then on.
func (w *Pool[S]) Close(ctx context.Context) error {
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
		if e.err == nil {
			err = errors.Join(err, e.sandbox.Close(ctx))
		}
	}
	return err
}

// Assign completes the spec of a sandbox that was started ahead of time with what belongs to the rollout: its name, and
// the repository to copy in. Everything else is the same; see warmKey.
func Assign(to *env.Spec, rollout env.Spec) {
	to.Rollout, to.CopyIn, to.Git = rollout.Rollout, rollout.CopyIn, rollout.Git
	to.Without, to.Copied = rollout.Without, rollout.Copied
}

// warmKey returns the same key for specs that can share a sandbox. The repository is not part of it, because it is
// copied in and prepared only when the sandbox is handed out.
func warmKey(s env.Spec) string {
	s.Rollout = ""
	if s.CopyIn != "" {
		s.CopyIn, s.Git, s.Without = "copied", "", nil
	}
	key, _ := json.Marshal(s) // strings and numbers can always be encoded
	return string(key)
}
