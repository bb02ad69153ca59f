package agent

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errWall is the cause of a context that Limits.Wall ended.
var errWall = errors.New("the rollout's time is up")

// wallClock ends a rollout when its time is up. It can be paused. A nil wallClock does nothing.
type wallClock struct {
	end context.CancelCauseFunc

	mu     sync.Mutex
	timer  *time.Timer
	left   time.Duration
	since  time.Time // when left began to run
	paused int
}

// startWall returns a context that ends with errWall after so much time.
func startWall(ctx context.Context, limit time.Duration) (context.Context, *wallClock) {
	ctx, end := context.WithCancelCause(ctx)
	w := &wallClock{end: end, left: limit, since: time.Now()}
	w.timer = time.AfterFunc(limit, func() { end(errWall) })
	return ctx, w
}

// pause stops the clock until the function that it returns is called.
func (w *wallClock) pause() (over func()) {
	if w == nil {
		return func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused++; w.paused == 1 && w.timer.Stop() {
		w.left -= time.Since(w.since)
	}
	return sync.OnceFunc(w.resume)
}

func (w *wallClock) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused--; w.paused == 0 {
		w.since = time.Now()
		w.timer.Reset(max(w.left, 0))
	}
}

// stop ends the clock and its context.
func (w *wallClock) stop() {
	w.mu.Lock()
	w.timer.Stop()
	w.mu.Unlock()
	w.end(nil)
}
