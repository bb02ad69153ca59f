package train

import (
	"context"
	"errors"
	"sync"

	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/metrics"
)

// validator measures published policies while training goes on, one at a time and in order. It is called by the loop
// only.
type validator struct {
	examiner examiner
	stop     context.CancelFunc
	done     sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	// queue holds the measurement under way and those to come. Each keeps its policy available for sampling until it
	// has ended.
	queue  []measurement
	points []metrics.Point // not taken yet
	err    error
}

// measurement is the policy after a step.
type measurement struct {
	step    int
	policy  rl.Policy
	release func() // the policy is needed no longer
}

// waiting is the maximum number of policies that wait to be measured.
const waiting = 1

func newValidator(ctx context.Context, x examiner) *validator {
	v := &validator{examiner: x}
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
		values, err := v.examiner.validate(ctx, m.step, m.policy, v.examiner.settings.Workers)
		v.mu.Lock()
		switch {
		case err == nil:
			v.points = append(v.points, metrics.Point{Step: m.step, Time: v.examiner.now(), Values: values})
		case !errors.Is(err, run.ErrInterrupted):
			v.err = err
		}
		m.release()
		v.queue = v.queue[1:]
		v.changed.Broadcast()
		if err != nil {
			return
		}
	}
}

// queueMeasurement queues a policy, and waits while too many are queued.
func (v *validator) queueMeasurement(ctx context.Context, m measurement) error {
	m.release = func() {}
	if held, ok := m.policy.Model.(rl.Held); ok {
		m.release = held.Hold()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(v.queue) > waiting && v.err == nil && ctx.Err() == nil {
		v.changed.Wait()
	}
	v.queue = append(v.queue, m)
	v.changed.Broadcast()
	return v.err
}

// takePoints returns the results since the last call. With all set, it first waits until nothing is left to measure.
func (v *validator) takePoints(ctx context.Context, all bool) ([]metrics.Point, error) {
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

// due reports whether the policy of a step is measured.
func (v *validator) due(step int) bool { return v != nil && v.examiner.due(step) }

// open returns the steps whose results have not been taken yet, the oldest first.
func (v *validator) open() (steps []int) {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.points {
		steps = append(steps, p.Step)
	}
	for _, m := range v.queue {
		steps = append(steps, m.step)
	}
	return steps
}

// close stops the measurement under way.
func (v *validator) close() {
	if v != nil {
		v.stop()
		v.done.Wait()
		for _, m := range v.queue {
			m.release()
		}
	}
}
