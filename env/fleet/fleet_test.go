package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/env"
)

// island is a place whose sandboxes exist only by name.
type island struct {
	name string
	busy float64
	err  error // of Launch and Fetch

	mu      sync.Mutex
	started int
}

func (i *island) Load(_ env.Spec, coming int) float64 { return i.busy + float64(coming) }

func (i *island) Launch(_ context.Context, s env.Spec, _ bool) (*hut, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err != nil {
		return nil, i.err
	}
	i.started++
	return &hut{name: fmt.Sprint(i.name, i.started), spec: s}, nil
}

func (i *island) Fetch(context.Context, env.Spec) error { return i.err }

type hut struct {
	name   string
	spec   env.Spec
	dead   error
	closed bool
}

func (h *hut) Ping(context.Context) error { return h.dead }

func (h *hut) Claim(_ context.Context, s env.Spec) { Assign(&h.spec, s) }

func (h *hut) Close(context.Context) error { h.closed = true; return nil }

func newFleet(t *testing.T, warm int, places ...*island) *Fleet[*island, *hut] {
	life, end := context.WithCancel(t.Context())
	f := &Fleet[*island, *hut]{
		Places: places, Warm: warm, Log: slog.New(slog.DiscardHandler), Life: life, Work: &sync.WaitGroup{},
	}
	t.Cleanup(func() {
		end()
		f.Work.Wait()
	})
	return f
}

func TestStart(t *testing.T) {
	t.Parallel()
	broken := fmt.Errorf("%w: broken", env.ErrInfrastructure)
	wrong := errors.New("the task's own error")
	for name, c := range map[string]struct {
		places []*island
		want   string // the sandbox, or the error
	}{
		"the least busy one": {
			[]*island{{name: "a", busy: 2}, {name: "b", busy: 1}, {name: "c", busy: 3}}, "b1"},
		"the first of equals":              {[]*island{{name: "a"}, {name: "b"}}, "a1"},
		"the next, where the first breaks": {[]*island{{name: "a", err: broken}, {name: "b", busy: 1}}, "b1"},
		"no other, for what is wrong everywhere": {
			[]*island{{name: "a", err: wrong}, {name: "b", busy: 1}}, "the task's own error"},
		"all broken": {[]*island{{name: "a", err: broken}, {name: "b", err: broken}}, broken.Error() + "\n" + broken.Error()},
		"out of use, for lack of another": {
			[]*island{{name: "a", busy: math.Inf(+1)}, {name: "b", err: broken}}, "a1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 0, c.places...)
			var got string
			if sandbox, err := f.Start(t.Context(), env.Spec{}); err != nil {
				got = err.Error()
			} else {
				got = sandbox.name
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			for _, p := range c.places {
				if n := f.Coming(p); n != 0 {
					t.Errorf("%d starts still come to %s", n, p.name)
				}
			}
		})
	}
}

// Concurrent starts are spread evenly over the places.
func TestSpread(t *testing.T) {
	t.Parallel()
	places := []*island{{name: "a"}, {name: "b"}, {name: "c"}}
	f := newFleet(t, 0, places...)
	var all, here sync.WaitGroup
	here.Add(30)
	for range 30 {
		all.Go(func() {
			_ = f.Try(t.Context(), env.Spec{}, func(p *island) error {
				p.mu.Lock()
				p.started++
				p.mu.Unlock()
				here.Done()
				here.Wait()
				return nil
			})
		})
	}
	all.Wait()
	for _, p := range places {
		if p.started != 10 {
			t.Errorf("%s got %d of 30 starts, want 10", p.name, p.started)
		}
	}
}

func TestPrefetch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &island{name: "a"}
		f := newFleet(t, 2, a)
		start := func(s env.Spec, want string) *hut {
			t.Helper()
			sandbox, err := f.Start(t.Context(), s)
			if err != nil || sandbox.name != want || sandbox.spec.Rollout != s.Rollout {
				t.Fatalf("got %+v, %v; want %s", sandbox, err, want)
			}
			return sandbox
		}
		prefetch := func(s env.Spec) {
			t.Helper()
			if err := f.Prefetch(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 { // the third has no room
			prefetch(env.Spec{Image: "i"})
		}
		start(env.Spec{Image: "other"}, "a3")
		start(env.Spec{Image: "i", Rollout: "one"}, "a1")
		start(env.Spec{Image: "i", CopyIn: "/repository"}, "a4") // the one that waits has no repository
		start(env.Spec{Image: "i", Rollout: "two"}, "a2")
		start(env.Spec{Image: "i", Rollout: "three"}, "a5")

		prefetch(env.Spec{Image: "i", Rollout: "mine"})
		start(env.Spec{Image: "i", Rollout: "yours"}, "a7")
		f.idle[0].sandbox.dead = errors.New("dead")
		start(env.Spec{Image: "i", Rollout: "mine"}, "a8")

		prefetch(env.Spec{Image: "i"})
		prefetch(env.Spec{Image: "i"})
		time.Sleep(tooLate)
		oldest := f.idle[0].sandbox
		prefetch(env.Spec{Image: "new"})
		if !oldest.closed || len(f.idle) != 2 {
			t.Errorf("%d wait after the oldest (closed: %v) gave way", len(f.idle), oldest.closed)
		}
		f.Shed(t.Context())
		if len(f.idle) != 1 || f.idle[0].sandbox.spec.Image != "new" {
			t.Errorf("%d wait after one was shed", len(f.idle))
		}
		if err := f.Close(t.Context()); err != nil || len(f.idle) != 0 {
			t.Errorf("%d are left: %v", len(f.idle), err)
		}
		prefetch(env.Spec{Image: "i"}) // closed, so it only fetches
		a.err = errors.New("no such image")
		if err := f.Prefetch(t.Context(), env.Spec{Image: "none"}); err == nil || !strings.Contains(err.Error(), "no such") {
			t.Errorf("prefetch without an image: %v", err)
		}
	})
}
