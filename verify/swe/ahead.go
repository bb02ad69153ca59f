package swe

import (
	"context"
	"log/slog"
	"sync"

	"deepswe/agent/run"
	"deepswe/env"
)

// prefetcher is the part of env.Provider that starts sandboxes ahead of time.
type prefetcher interface {
	Prefetch(ctx context.Context, s env.Spec) error
}

// ahead starts sandboxes for the rollouts that come next, a few at a time, while others run.
type ahead struct {
	provider prefetcher
	spec     func(task string) env.Spec
	log      *slog.Logger

	mu      sync.Mutex
	first   int      // rollouts that have yet to start at once
	next    []string // tasks of the rollouts that no sandbox was started for, in their order
	waiting chan string
	stop    context.CancelFunc
	workers sync.WaitGroup
}

// newAhead begins to work for a plan. The first rollouts, which start at once, are left out.
func newAhead(ctx context.Context, p prefetcher, plan []run.Job, workers, warm int,
	spec func(string) env.Spec, log *slog.Logger) *ahead {
	a := &ahead{provider: p, spec: spec, log: log, first: workers, waiting: make(chan string, len(plan))}
	for _, j := range plan[min(workers, len(plan)):] {
		a.next = append(a.next, j.Task)
	}
	ctx, a.stop = context.WithCancel(ctx)
	for range warm {
		a.workers.Go(func() { a.work(ctx) })
		a.refill()
	}
	return a
}

// observing is observe, and starts another sandbox for every rollout that has taken one.
func (a *ahead) observing(observe func(run.Event)) func(run.Event) {
	return func(e run.Event) {
		if e.Kind == run.Started {
			if a.first > 0 {
				a.first--
			} else {
				a.refill()
			}
		}
		if observe != nil {
			observe(e)
		}
	}
}

// refill asks for a sandbox for the next rollout.
func (a *ahead) refill() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.next) > 0 {
		a.waiting <- a.next[0] // never blocks: it holds the whole plan
		a.next = a.next[1:]
	}
}

func (a *ahead) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case task := <-a.waiting:
			if err := a.provider.Prefetch(ctx, a.spec(task)); err != nil && ctx.Err() == nil {
				// The rollout that needs the sandbox will meet the same failure, and report it.
				a.log.Info("a sandbox could not be started ahead of time", "task", task, "error", err)
			}
		}
	}
}

// close ends the work. Sandboxes that were not taken are the provider's to remove.
func (a *ahead) close() {
	a.stop()
	a.workers.Wait()
}
