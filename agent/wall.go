package agent

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errWall is the cause of a context that Limits.Wall ended.
var errWall = errors.New("the rollout's time is up")

// WallClock ends a rollout when its time is up. It can be paused. A nil WallClock does nothing.
type WallClock struct {
	end context.CancelCauseFunc

	mu     sync.Mutex
	timer  *time.Timer
	left   time.Duration
	since  time.Time // when left began to run
	paused int
}

// StartWall returns a context that ends with errWall after limit, not counting pauses.
func StartWall(ctx context.Context, limit time.Duration) (context.Context, *WallClock) {
	ctx, end := context.WithCancelCause(ctx)
	w := &WallClock{end: end, left: limit, since: time.Now()}
	w.timer = time.AfterFunc(limit, func() { end(errWall) })
	return ctx, w
}

// Pause stops the clock until the function that it returns is called.
func (w *WallClock) Pause() (over func()) {
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

func (w *WallClock) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused--; w.paused == 0 {
		w.since = time.Now()
		w.timer.Reset(max(w.left, 0))
	}
}

// Stop ends the clock and its context.
func (w *WallClock) Stop() {
	w.mu.Lock()
	w.timer.Stop()
	w.mu.Unlock()
	w.end(nil)
}
