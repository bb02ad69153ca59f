package swe

import (
	"context"
	"log/slog"
	"sync"

	"deepswe/agent/run"
	"deepswe/env"
)

// prefetcher is the part of env.Provider that fetches images and starts sandboxes ahead of time.
type prefetcher interface {
	Prefetch(ctx context.Context, s env.Spec) error
}

// ahead fetches the images of the next rollouts, or starts their sandboxes, a few at a time, while others run.
type ahead struct {
	provider prefetcher
	spec     func(task string) env.Spec
	log      *slog.Logger

	first   int      // rollouts that start at once and have not started yet
	next    []string // tasks of the rollouts that nothing was prefetched for yet, in order
	waiting chan string
	stop    context.CancelFunc
	workers sync.WaitGroup
}

// newAhead starts to prefetch for a plan, except for its first rollouts, which start at once. It keeps as many
// sandboxes ready as warm says. If warm is 0, it only fetches images, for as many rollouts as run at once, so that an
// image is there when its rollout starts. It fetches few at a time, because fetching takes processor time.
func newAhead(ctx context.Context, p prefetcher, plan []run.Job, workers, warm int,
	spec func(string) env.Spec, log *slog.Logger) *ahead {
	a := &ahead{provider: p, spec: spec, log: log, first: workers, waiting: make(chan string, len(plan))}
	for _, j := range plan[min(workers, len(plan)):] {
		a.next = append(a.next, j.Task)
	}
	ctx, a.stop = context.WithCancel(ctx)
	fetchers, distance := warm, warm
	if warm == 0 {
		fetchers, distance = (workers+3)/4, workers
	}
	for range fetchers {
		a.workers.Go(func() { a.work(ctx) })
	}
	for range distance {
		a.refill()
	}
	return a
}

// observing returns observe extended to prefetch for another rollout whenever one starts.
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

// refill requests a prefetch for the next rollout. It is called by one goroutine at a time, as observe is.
func (a *ahead) refill() {
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
				// The rollout will get the same error and report it.
				a.log.Info("cannot prefetch", "task", task, "error", err)
			}
		}
	}
}

// close ends the work. The provider removes sandboxes that were not used.
func (a *ahead) close() {
	a.stop()
	a.workers.Wait()
}
