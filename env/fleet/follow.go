package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
)

// FollowOptions are the options of Follow.
type FollowOptions struct {
	// File names the places, one per line.
	File string
	// Open opens a provider that starts sandboxes in the given places.
	Open func(ctx context.Context, places []string) (env.Provider, error)
	Log  *slog.Logger
	// Every is the time between two looks at the file; 0 means 5 seconds.
	Every time.Duration
}

// Following is a provider of sandboxes in the places that a file names, which may change meanwhile. When it does, a new
// provider starts the sandboxes from then on, and the one before is closed once its last sandbox is. If none can be
// opened for the new places, the old ones stay.
type Following struct {
	options FollowOptions
	life    context.Context
	end     context.CancelFunc
	work    sync.WaitGroup

	mu  sync.Mutex // guards all opened.users, too
	now *opened
	// failed is the error of closing replaced providers.
	failed error
}

var _ env.Provider = (*Following)(nil)

// opened is a provider with what still needs it.
type opened struct {
	env.Provider
	// replaced ends when another provider takes its place, and with it the starts under way.
	replaced context.Context
	replace  context.CancelFunc
	// users are starts, and sandboxes that are not closed. unused is closed when the last of them leaves after the
	// provider was replaced.
	users  int
	unused chan struct{}
}

func (f *Following) open(ctx context.Context, places []string) (*opened, error) {
	p, err := f.options.Open(ctx, places)
	if err != nil {
		return nil, err
	}
	o := &opened{Provider: p, unused: make(chan struct{})}
	o.replaced, o.replace = context.WithCancel(f.life)
	return o, nil
}

// Follow opens a provider for the places that the file names, and follows the file until Close.
func Follow(ctx context.Context, o FollowOptions) (*Following, error) {
	places, err := disk.ReadList(o.File)
	if err != nil {
		return nil, fmt.Errorf("places of sandboxes: %w", err)
	}
	f := &Following{options: o}
	f.life, f.end = context.WithCancel(context.WithoutCancel(ctx))
	if f.now, err = f.open(ctx, places); err != nil {
		f.end()
		return nil, err
	}
	f.work.Go(func() {
		disk.FollowList(f.life, o.File, cmp.Or(o.Every, 5*time.Second), places, f.move, func(err error) {
			o.Log.Warn("the places of sandboxes stay as they are", "error", err)
		})
	})
	return f, nil
}

// move replaces the provider by one for other places.
func (f *Following) move(places []string) error {
	next, err := f.open(f.life, places)
	if err != nil {
		return err
	}
	last, leave := f.use()
	f.mu.Lock()
	f.now = next
	f.mu.Unlock()
	last.replace()
	leave()
	f.options.Log.Info("sandboxes start in other places from now on", "places", places)
	f.work.Go(func() { f.retire(last) })
	return nil
}

// retire closes a replaced provider once nothing needs it, or when f is closed.
func (f *Following) retire(p *opened) {
	select {
	case <-p.unused:
	case <-f.life.Done():
	}
	if err := p.Close(); err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.failed = errors.Join(f.failed, err)
	}
}

// use returns the current provider, which is not closed before done is called.
func (f *Following) use() (_ *opened, done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now, f.keep(f.now)
}

// keep counts a user of a provider until done is called. The caller holds f.mu.
func (f *Following) keep(p *opened) (done func()) {
	p.users++
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if p.users--; p.users == 0 && p.replaced.Err() != nil {
			close(p.unused)
		}
	})
}

// try calls do with the current provider, and again if that is replaced meanwhile.
func (f *Following) try(ctx context.Context, do func(context.Context, *opened) error) error {
	for {
		p, done := f.use()
		trying, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(p.replaced, cancel)
		err := do(trying, p)
		stop()
		cancel()
		done()
		if err == nil || ctx.Err() != nil || p.replaced.Err() == nil || f.life.Err() != nil {
			return err
		}
	}
}

// Start implements env.Provider.
func (f *Following) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	var started env.Sandbox
	err := f.try(ctx, func(ctx context.Context, p *opened) error {
		sandbox, err := p.Start(ctx, s)
		if err == nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			started = &tenant{Sandbox: sandbox, leave: f.keep(p)}
		}
		return err
	})
	return started, err
}

// tenant is a sandbox that keeps its provider open.
type tenant struct {
	env.Sandbox
	leave func()
}

// Close implements env.Sandbox.
func (t *tenant) Close(ctx context.Context) error {
	defer t.leave()
	return t.Sandbox.Close(ctx)
}

// Prefetch implements env.Provider.
func (f *Following) Prefetch(ctx context.Context, s env.Spec) error {
	return f.try(ctx, func(ctx context.Context, p *opened) error { return p.Prefetch(ctx, s) })
}

// Reap implements env.Provider, in the current places.
func (f *Following) Reap(ctx context.Context, o env.ReapOptions) ([]env.Leftover, error) {
	p, done := f.use()
	defer done()
	return p.Reap(ctx, o)
}

// Name implements env.Provider.
func (f *Following) Name() string {
	p, done := f.use()
	defer done()
	return p.Name()
}

// Capabilities implements env.Provider, in the current places.
func (f *Following) Capabilities() env.Capabilities {
	p, done := f.use()
	defer done()
	return p.Capabilities()
}

// Close closes all providers.
func (f *Following) Close() error {
	f.end()
	f.work.Wait()
	return errors.Join(f.now.Close(), f.failed)
}
