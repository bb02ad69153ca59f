package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// pace is how long a feed waits: after a first failure, and at the end for all that is left.
type pace struct{ retry, end time.Duration }

var usual = pace{time.Second, 10 * time.Second}

const (
	sendTimeout = time.Minute
	mostRetry   = time.Minute
	// grace is how long a call has to notice that its time is over.
	grace = 2 * time.Second
	// mostWaiting is how many points are kept for a sink that fails, and mostSent how many are sent at once.
	mostWaiting, mostSent = 10_000, 100
)

// Feed carries the points of a run to a sink in the background. It can neither stop nor delay the run: what cannot be
// sent is tried again until Close, which waits for a bounded time. The first failure is a warning, and so is, at the
// end, how many points were lost.
type Feed struct {
	target Target
	sink   Sink
	log    *slog.Logger
	pace   pace
	cancel context.CancelFunc
	wake   chan struct{} // has a value if the queue changed
	ended  chan struct{} // is closed by Close
	done   chan struct{} // is closed when the sink is

	mu    sync.Mutex
	queue []Point
	lost  int
	cause error
}

// NewFeed begins to carry points. earlier are those of a resumed run.
func NewFeed(t Target, r Run, earlier []Point, log *slog.Logger) *Feed {
	return newFeed(t, r, earlier, log, usual)
}

func newFeed(t Target, r Run, earlier []Point, log *slog.Logger, p pace) *Feed {
	ctx, cancel := context.WithCancel(context.Background())
	f := &Feed{
		target: t, sink: t.Open(r), log: log, pace: p, cancel: cancel,
		wake: make(chan struct{}, 1), ended: make(chan struct{}), done: make(chan struct{}),
	}
	if t.Replay {
		f.queue = slices.Clone(earlier)
	}
	go f.carry(ctx)
	return f
}

// Write queues a point.
func (f *Feed) Write(p Point) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) >= mostWaiting {
		f.lost++
		return
	}
	f.queue = append(f.queue, p)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Close sends what is left and closes the sink, for a bounded time. cause is why the run ended, or nil if it is done.
func (f *Feed) Close(cause error) {
	f.cause = cause
	close(f.ended)
	defer time.AfterFunc(f.pace.end, f.cancel).Stop()
	select {
	case <-f.done:
	case <-time.After(f.pace.end + grace):
		// A disk that hangs cannot be interrupted. The run ends nevertheless.
		f.log.Warn("metrics: a write does not end, and is left behind", "to", f.target.Name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if lost := f.lost + len(f.queue); lost > 0 {
		f.log.Warn("metrics did not arrive; to fix: run deepswe train --resume with the same flags",
			"to", f.target.Name, "points", lost)
	}
}

// carry sends batches until the feed is closed and its queue is empty, or the context ends. Then it closes the sink.
func (f *Feed) carry(ctx context.Context) {
	defer close(f.done)
	defer f.cancel()
	warned, pause, ended := false, f.pace.retry, f.ended
	warn := func(text string, err error) {
		if !warned {
			f.log.Warn(text, "to", f.target.Name, "error", err)
		}
		warned = true
	}
	for f.await(ctx) {
		batch := f.nextPoints()
		err := f.call(ctx, func(ctx context.Context) error { return f.sink.Send(ctx, batch) })
		if err == nil {
			f.sent(len(batch))
			pause = f.pace.retry
			continue
		}
		warn("metrics do not arrive; trying again", err)
		select {
		case <-time.After(pause):
			pause = min(2*pause, mostRetry)
		case <-ended: // once: the last tries follow each other quickly
			ended, pause = nil, f.pace.retry
		case <-ctx.Done():
		}
	}
	<-f.ended
	if err := f.call(ctx, func(ctx context.Context) error { return f.sink.Close(ctx, f.cause) }); err != nil {
		warn("metrics: the end of the run did not arrive", err)
	}
}

// await waits for points, and reports whether there are any. There are none when the feed is closed or out of time.
func (f *Feed) await(ctx context.Context) bool {
	for ctx.Err() == nil && len(f.nextPoints()) == 0 {
		select {
		case <-f.wake:
		case <-f.ended:
			return len(f.nextPoints()) > 0
		}
	}
	return ctx.Err() == nil
}

// call calls the sink for a bounded time. A panic becomes an error.
func (f *Feed) call(ctx context.Context, do func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return do(ctx)
}

func (f *Feed) nextPoints() []Point {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.queue[:min(len(f.queue), mostSent)])
}

func (f *Feed) sent(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = slices.Delete(f.queue, 0, n)
}
