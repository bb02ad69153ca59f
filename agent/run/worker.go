package run

import (
	"context"
	"sync"
)

// worker is the place that an attempt has among Options.Workers.
type worker struct {
	places chan struct{}

	mu   sync.Mutex
	held bool
}

// workerKey holds the *worker in a rollout's context.
type workerKey struct{}

// Release gives the worker of the rollout whose context it is to another one, while this rollout goes on, retries
// included: with its grading, which is bounded by a gate of its own. Outside an Engine, and after the first time, it
// does nothing.
func Release(ctx context.Context) {
	if w, ok := ctx.Value(workerKey{}).(*worker); ok {
		w.release()
	}
}

func (w *worker) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held {
		w.held = false
		<-w.places
	}
}
