package fleet

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"deepswe/env"
)

// Host is a place in which sandboxes start.
type Host[S Sandbox] interface {
	comparable
	// Load returns how busy the place is for a spec, given that coming starts have already chosen it. It is infinite for
	// a place that is out of use, so that the place is tried last.
	Load(s env.Spec, coming int) float64
	// Launch starts a sandbox; ahead is set if nobody has asked for one yet. Fetch only gets what a start needs, such as
	// the image.
	Launch(ctx context.Context, s env.Spec, ahead bool) (S, error)
	Fetch(ctx context.Context, s env.Spec) error
}

// Sandbox is what starts in a place. Claim assigns one that was started ahead of time to the spec that it is handed out
// for.
type Sandbox interface {
	comparable
	Ping(ctx context.Context) error
	Claim(ctx context.Context, s env.Spec)
	Close(ctx context.Context) error
}

// Fleet starts sandboxes in the places of a provider. It keeps some that were started ahead of time, so that a
// rollout need not wait for an image or a machine. Its fields are set before its first use.
type Fleet[P Host[S], S Sandbox] struct {
	Places []P
	// Warm is the most sandboxes that wait to be handed out; 0 means none.
	Warm int
	Log  *slog.Logger
	// Life ends when nothing may be started any more. Work counts the fleet's own goroutines.
	Life context.Context
	Work *sync.WaitGroup

	mu     sync.Mutex
	coming map[P]int   // starts that have chosen a place
	idle   []*entry[S] // oldest first
	closed bool
}

// Start hands out a sandbox that was started ahead of time, or starts one in the place with the least load.
func (f *Fleet[P, S]) Start(ctx context.Context, s env.Spec) (S, error) {
	if sandbox, ok := f.takeReady(ctx, s); ok {
		return sandbox, nil
	}
	return f.launch(ctx, s, false)
}

func (f *Fleet[P, S]) launch(ctx context.Context, s env.Spec, ahead bool) (sandbox S, err error) {
	err = f.Try(ctx, s, func(p P) (err error) {
		sandbox, err = p.Launch(ctx, s, ahead)
		return err
	})
	return sandbox, err
}

// Prefetch starts a sandbox ahead of time if fewer than Warm are waiting. Otherwise one place fetches what a start
// needs.
func (f *Fleet[P, S]) Prefetch(ctx context.Context, s env.Spec) error {
	if filled, err := f.fill(ctx, s); filled {
		return err
	}
	return f.Try(ctx, s, func(p P) error { return p.Fetch(ctx, s) })
}

// Try calls do with the place that has the least load, and counts a start there meanwhile. If do fails with
// env.ErrInfrastructure, the next place is tried.
func (f *Fleet[P, S]) Try(ctx context.Context, s env.Spec, do func(P) error) error {
	var failures []error
	tried := map[P]bool{}
	for range f.Places {
		p := f.choose(s, tried)
		err := do(p)
		f.leave(p)
		if err == nil || ctx.Err() != nil || !errors.Is(err, env.ErrInfrastructure) {
			return err
		}
		failures, tried[p] = append(failures, err), true
	}
	return errors.Join(failures...)
}

// choose returns the place with the least load among those not tried yet, and counts a start in it.
func (f *Fleet[P, S]) choose(s env.Spec, tried map[P]bool) (best P) {
	f.mu.Lock()
	defer f.mu.Unlock()
	least, found := 0.0, false
	for _, p := range f.Places {
		if tried[p] {
			continue
		}
		if load := p.Load(s, f.coming[p]); !found || load < least {
			best, least, found = p, load, true
		}
	}
	if f.coming == nil {
		f.coming = map[P]int{}
	}
	f.coming[best]++
	return best
}

func (f *Fleet[P, S]) leave(p P) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.coming[p]--
}

// Coming returns how many starts have chosen a place.
func (f *Fleet[P, S]) Coming(p P) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.coming[p]
}
