package swe

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"deepswe/agent/run"
	"deepswe/env"
)

// noting remembers what it was asked to start, and makes nothing.
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

// Sandboxes are started in the order of the plan, and no more of them than asked for.
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
