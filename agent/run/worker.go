package run

import (
	"context"
	"sync"
)

// worker is one attempt's share of Options.Workers.
type worker struct {
	places chan struct{}
	// early is called when the place was given up before the attempt had ended.
	early func()

	mu   sync.Mutex
	held bool
}

// workerKey is the key of the *worker in a rollout's context.
type workerKey struct{}

// Release makes the worker of the rollout whose context ctx is available to other rollouts, while this one
// continues, for example with grading, which a gate limits. It also applies to retries. Outside an Engine, and
// after the first call, it does nothing.
func Release(ctx context.Context) {
	if w, ok := ctx.Value(workerKey{}).(*worker); ok {
		if w.release() {
			w.early()
		}
	}
}

// release reports whether there was a place to give up.
func (w *worker) release() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.held {
		return false
	}
	w.held = false
	<-w.places
	return true
}
