package train

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"deepswe/agent/run"
)

// stopping is how a run ends before it is done: what has begun gets a time to end, because half of it is of no use.
type stopping struct {
	// late is closed at the end of that time, and over at the end of the time for a checkpoint, which follows it. Both
	// times begin after the run's context has ended, and end at once when the user asks a second time to stop.
	late, over <-chan struct{}
}

// newStopping watches ctx: once it has ended, what is under way has the time of drain, and then a checkpoint as long
// again, unless abandon is closed. The caller must call the returned function, which ends the watch.
func newStopping(ctx context.Context, drain time.Duration, abandon <-chan struct{}) (stopping, func() error) {
	late, over, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ctx.Done():
		case <-done:
			return
		}
		for _, ended := range []chan struct{}{late, over} {
			select {
			case <-time.After(drain):
			case <-abandon:
			case <-done:
				return
			}
			close(ended)
		}
	})
	return stopping{late, over}, func() error {
		close(done)
		watching.Wait()
		return nil
	}
}

// finishing returns a context for what is finished although the run is stopped. It ends when late is closed.
func (s stopping) finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	return until(ctx, s.late)
}

// saving returns a context for a checkpoint, which is completed although the run is stopped. It ends when over is
// closed.
func (s stopping) saving(ctx context.Context) (context.Context, context.CancelFunc) {
	return until(ctx, s.over)
}

// until returns a context with the values of ctx that ends when the channel is closed, and not with ctx.
func until(ctx context.Context, ended <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel()
		watching.Wait()
	}
}

// interrupted makes an error of a run that was asked to stop wrap [run.ErrInterrupted], whatever the error is.
func interrupted(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, run.ErrInterrupted) {
		return err
	}
	return fmt.Errorf("%w: %w", run.ErrInterrupted, err)
}
