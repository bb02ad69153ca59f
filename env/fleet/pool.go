package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"deepswe/env"
)

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
func (f *Fleet[P, S]) reserve(ctx context.Context, s env.Spec) *entry[S] {
	e := &entry[S]{key: warmKey(s), rollout: s.Rollout, since: time.Now(), done: make(chan struct{})}
	f.mu.Lock()
	full := len(f.idle) >= f.Warm
	if f.closed || f.Warm <= 0 || full && time.Since(f.idle[0].since) < tooLate {
		f.mu.Unlock()
		return nil
	}
	var stale *entry[S]
	if full {
		stale, f.idle = f.idle[0], f.idle[1:]
	}
	f.idle = append(f.idle, e)
	f.mu.Unlock()
	if stale != nil {
		f.drop(ctx, stale)
	}
	return e
}

// fill starts a sandbox for the spec and waits for it, if the pool has room. It reports whether it had.
func (f *Fleet[P, S]) fill(ctx context.Context, s env.Spec) (filled bool, err error) {
	e := f.reserve(ctx, s)
	if e == nil {
		return false, nil
	}
	f.Work.Go(func() { f.start(e, s) })
	select {
	case <-e.done:
		return true, e.err
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

func (f *Fleet[P, S]) start(e *entry[S], s env.Spec) {
	defer close(e.done)
	if e.sandbox, e.err = f.launch(f.Life, s, true); e.err != nil {
		f.Log.Warn("cannot start a sandbox ahead of time", "image", s.Image, "error", e.err)
		f.mu.Lock()
		f.idle = slices.DeleteFunc(f.idle, func(other *entry[S]) bool { return other == e })
		f.mu.Unlock()
	}
}

// takeReady hands out a living sandbox for the spec, preferably one started for the same rollout, otherwise one started
// for none. It waits for a sandbox that is still being started. ok is false if the pool has none.
func (f *Fleet[P, S]) takeReady(ctx context.Context, s env.Spec) (sandbox S, ok bool) {
	key := warmKey(s)
	for {
		e := f.find(key, s.Rollout)
		if e == nil {
			return sandbox, false
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			f.Work.Go(func() { f.drop(f.Life, e) })
			return sandbox, false
		}
		if e.err != nil {
			continue
		}
		if e.sandbox.Ping(ctx) != nil {
			f.drop(ctx, e)
			continue
		}
		e.sandbox.Claim(ctx, s)
		return e.sandbox, true
	}
}

// find removes the best entry for a spec from the pool and returns it, or nil.
func (f *Fleet[P, S]) find(key, rollout string) *entry[S] {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, wanted := range []string{rollout, ""} {
		i := slices.IndexFunc(f.idle, func(e *entry[S]) bool { return e.key == key && e.rollout == wanted })
		if i >= 0 {
			e := f.idle[i]
			f.idle = slices.Delete(f.idle, i, i+1)
			return e
		}
	}
	return nil
}

// Shed closes the oldest sandbox that nobody has taken yet, if there is one: its room is needed.
func (f *Fleet[P, S]) Shed(ctx context.Context) {
	f.mu.Lock()
	i := slices.IndexFunc(f.idle, func(e *entry[S]) bool {
		select {
		case <-e.done:
			return true
		default:
			return false
		}
	})
	if i < 0 {
		f.mu.Unlock()
		return
	}
	e := f.idle[i]
	f.idle = slices.Delete(f.idle, i, i+1)
	f.mu.Unlock()
	f.drop(ctx, e)
}

// drop closes a sandbox that will not be handed out.
func (f *Fleet[P, S]) drop(ctx context.Context, e *entry[S]) {
	<-e.done
	if e.err != nil {
		return
	}
	if err := e.sandbox.Close(ctx); err != nil {
		f.Log.Warn("cannot remove a sandbox that was started ahead of time", "error", err)
	}
}

// Close closes the sandboxes that were started ahead of time, and keeps none from then on.
func (f *Fleet[P, S]) Close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	idle := f.idle
	f.idle = nil
	f.mu.Unlock()
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
	to.Rollout, to.CopyIn, to.Commit, to.Git = rollout.Rollout, rollout.CopyIn, rollout.Commit, rollout.Git
	to.Without, to.Copied = rollout.Without, rollout.Copied
}

// warmKey returns the same key for specs that can share a sandbox. The repository is not part of it, because it is
// copied in and prepared only when the sandbox is handed out.
func warmKey(s env.Spec) string {
	s.Rollout = ""
	if s.CopyIn != "" {
		s.CopyIn, s.Commit, s.Git, s.Without = "copied", "", "", nil
	}
	key, _ := json.Marshal(s) // strings and numbers can always be encoded
	return string(key)
}
