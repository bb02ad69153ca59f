package swe

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/agent/run"
	"deepswe/env"
)

// noting records what it is asked to prefetch, and starts nothing.
type noting struct {
	mu         sync.Mutex
	prefetched []env.Spec
}

func (n *noting) Prefetch(_ context.Context, s env.Spec) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.prefetched = append(n.prefetched, s)
	return nil
}

// Sandboxes are started in the order of the plan, and never more than asked for.
func TestAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &noting{}
		plan := run.Plan([]string{"a", "b", "c", "d", "e", "f"}, 1)
		a := newAhead(t.Context(), p, plan, 2, 2, func(task string) env.Spec { return env.Spec{Rollout: task} },
			slog.New(slog.DiscardHandler))
		defer a.close()
		start := a.observing(nil)
		ready := func() (tasks []string) {
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, s := range p.prefetched {
				tasks = append(tasks, s.Rollout)
			}
			slices.Sort(tasks)
			return tasks
		}
		if got := ready(); !slices.Equal(got, []string{"c", "d"}) {
			t.Errorf("at the start, %q are started", got)
		}
		for range 2 { // the first rollouts take none of them
			start(run.Event{Kind: run.Started})
		}
		if got := ready(); !slices.Equal(got, []string{"c", "d"}) {
			t.Errorf("after a and b have started, %q were started", got)
		}
		start(run.Event{Kind: run.Started})
		if got := ready(); !slices.Equal(got, []string{"c", "d", "e"}) {
			t.Errorf("after c has started, %q were started", got)
		}
		for range 5 {
			start(run.Event{Kind: run.Started})
		}
		if got := ready(); !slices.Equal(got, []string{"c", "d", "e", "f"}) {
			t.Errorf("in the end, %q were started", got)
		}
	})
}

// Without warm sandboxes, images are fetched ahead for as many rollouts as run at once, a few at a time.
func TestAheadOfImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &slow{noting: &noting{}}
		plan := run.Plan([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}, 1)
		a := newAhead(t.Context(), p, plan, 5, 0, func(task string) env.Spec { return env.Spec{Image: task} },
			slog.New(slog.DiscardHandler))
		defer a.close()
		start := a.observing(nil)
		for _, step := range []struct {
			started int
			want    []string
		}{
			{0, []string{"f", "g", "h", "i", "j"}},
			{5, []string{"f", "g", "h", "i", "j"}}, // the first rollouts have to fetch their images themselves
			{1, []string{"f", "g", "h", "i", "j", "k"}},
			{6, []string{"f", "g", "h", "i", "j", "k", "l"}},
		} {
			for range step.started {
				start(run.Event{Kind: run.Started})
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			var got []string
			for _, s := range p.prefetched {
				got = append(got, s.Image)
			}
			if slices.Sort(got); !slices.Equal(got, step.want) {
				t.Errorf("after %d more starts, %q were fetched, want %q", step.started, got, step.want)
			}
		}
		if p.most != 2 {
			t.Errorf("%d images were fetched at once, want 2", p.most)
		}
	})
}

// slow takes a minute to fetch an image.
type slow struct {
	*noting
	now, most int
}

func (s *slow) Prefetch(ctx context.Context, spec env.Spec) error {
	s.count(+1)
	defer s.count(-1)
	time.Sleep(time.Minute)
	return s.noting.Prefetch(ctx, spec)
}

func (s *slow) count(change int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += change
	s.most = max(s.most, s.now)
}
