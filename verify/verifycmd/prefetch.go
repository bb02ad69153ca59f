package verifycmd

import (
	"context"
	"log/slog"
	"sync"

	"deepswe/agent/run"
	"deepswe/env"
)

// prefetcher is the part of env.Provider that makes sandboxes ready before they are needed.
type prefetcher interface {
	Prefetch(ctx context.Context, s env.Spec) error
}

// ahead makes sandboxes ready for the attempts that come next, a few at a time, while others run.
type ahead struct {
	provider prefetcher
	spec     func(task string) env.Spec
	log      *slog.Logger

	mu      sync.Mutex
	next    []string // tasks of the attempts that nothing was made ready for, in their order
	waiting chan string
	stop    context.CancelFunc
	workers sync.WaitGroup
}

// newAhead begins to work for a plan. The first attempts, which start at once, are left out.
func newAhead(ctx context.Context, p prefetcher, plan []run.Job, workers, warm int, spec func(string) env.Spec, log *slog.Logger) *ahead {
	a := &ahead{provider: p, spec: spec, log: log, waiting: make(chan string, len(plan))}
	for _, attempt := range plan[min(workers, len(plan)):] {
		a.next = append(a.next, attempt.Task)
	}
	ctx, a.stop = context.WithCancel(ctx)
	for range warm {
		a.workers.Go(func() { a.work(ctx) })
		a.started()
	}
	return a
}

// started is told of every attempt that starts beyond the first ones: there is room to make another one ready.
func (a *ahead) started() {
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
				// Whoever needs the sandbox will meet the same failure, and report it.
				a.log.Info("a sandbox could not be made ready ahead of time", "task", task, "error", err)
			}
		}
	}
}

// close ends the work. Sandboxes that nobody took are the provider's to remove.
func (a *ahead) close() {
	a.stop()
	a.workers.Wait()
}
