package train

import (
	"context"
	"errors"
	"slices"
	"sync"

	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/metrics"
)

// validator measures published policies while the training goes on, one at a time and in their order. Only the loop
// calls it.
type validator struct {
	loop *loop
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	// queue are the measurements to come, with the one under way. Each holds its policy, which goes on sampling until
	// the measurement has ended.
	queue  []measurement
	points []metrics.Point // that nobody has taken yet
	err    error
}

// measurement is a policy as it was after a step.
type measurement struct {
	step   int
	policy rl.Policy
}

// waiting bounds the policies that are kept for measuring, beside the one that is being measured.
const waiting = 1

func newValidator(ctx context.Context, l *loop) *validator {
	v := &validator{loop: l}
	v.changed = sync.NewCond(&v.mu)
	ctx, v.stop = context.WithCancel(ctx)
	wake := context.AfterFunc(ctx, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.changed.Broadcast()
	})
	v.done.Go(func() {
		defer wake()
		v.work(ctx)
	})
	return v
}

// work measures until the context ends.
func (v *validator) work(ctx context.Context) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for {
		for len(v.queue) == 0 && ctx.Err() == nil {
			v.changed.Wait()
		}
		if ctx.Err() != nil || v.err != nil {
			return
		}
		m := v.queue[0]
		v.mu.Unlock()
		values, err := v.loop.validate(ctx, m.step, m.policy, v.loop.config.Evaluate.Workers)
		v.mu.Lock()
		switch {
		case err == nil:
			v.points = append(v.points, metrics.Point{Step: m.step, Time: v.loop.now(), Values: values})
		case !errors.Is(err, run.ErrInterrupted):
			v.err = err
		}
		v.queue = v.queue[1:]
		v.changed.Broadcast()
		if err != nil {
			return
		}
	}
}

// begin measures a policy when those before it are done, and waits while too many are to be measured.
func (v *validator) begin(ctx context.Context, m measurement) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(v.queue) > waiting && v.err == nil && ctx.Err() == nil {
		v.changed.Wait()
	}
	v.queue = append(v.queue, m)
	v.changed.Broadcast()
	return v.err
}

// take returns what has been measured since the last call. With all it waits until nothing is left to measure.
func (v *validator) take(ctx context.Context, all bool) ([]metrics.Point, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for all && len(v.queue) > 0 && v.err == nil && ctx.Err() == nil {
		v.changed.Wait()
	}
	points := v.points
	v.points = nil
	if all && ctx.Err() != nil && v.err == nil {
		return points, run.ErrInterrupted
	}
	return points, v.err
}

// first is the oldest step that is still to be measured or to be taken, or no step at all.
func (v *validator) first() (step int, ok bool) {
	if v == nil {
		return 0, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.points {
		return p.Step, true
	}
	for _, m := range v.queue {
		return m.step, true
	}
	return 0, false
}

// needs reports whether the checkpoint of a step belongs to a policy that is still to be measured.
func (v *validator) needs(checkpoint string) bool {
	if v == nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.queue, func(m measurement) bool { return checkpointName(m.step) == checkpoint }) ||
		slices.ContainsFunc(v.points, func(p metrics.Point) bool { return checkpointName(p.Step) == checkpoint })
}

// close ends the measurement under way.
func (v *validator) close() {
	if v != nil {
		v.stop()
		v.done.Wait()
	}
}
