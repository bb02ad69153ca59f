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

// ahead starts sandboxes for the next rollouts, a few at a time, while others run.
type ahead struct {
	provider prefetcher
	spec     func(task string) env.Spec
	log      *slog.Logger

	mu      sync.Mutex
	first   int      // rollouts that start at once and have not started yet
	next    []string // tasks of the rollouts without a sandbox yet, in order
	waiting chan string
	stop    context.CancelFunc
	workers sync.WaitGroup
}

// newAhead starts working for a plan, except for its first rollouts, which start at once.
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

// observing returns observe extended to start another sandbox for every rollout that takes one.
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

// refill requests a sandbox for the next rollout.
func (a *ahead) refill() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.next) > 0 {
		a.waiting <- a.next[0] // never blocks: its buffer holds the whole plan
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
				// The rollout that needs the sandbox will get the same error and report it.
				a.log.Info("cannot start a sandbox ahead of time", "task", task, "error", err)
			}
		}
	}
}

// close ends the work. The provider removes sandboxes that were not used.
func (a *ahead) close() {
	a.stop()
	a.workers.Wait()
}
