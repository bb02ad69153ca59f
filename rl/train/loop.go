package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"time"

	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/metrics"
)

// loop is one run.
type loop struct {
	config      Config
	environment Environment
	trainer     rl.Trainer
	gates       run.Gates
	dir         *run.Dir
	sink        metrics.Sink
	observer    Observer
	log         *slog.Logger
	// abandon, when closed, ends the drain of a stopped run early.
	abandon <-chan struct{}
	now     func() time.Time

	guard guard
	// policy is what the trainer published last; live is the same for the rollouts under way.
	policy rl.Policy
	live   live
	order  order
	// stream plays the training rollouts, and journals keep them. admitted is the number of groups that were let in.
	stream   *stream
	journals *journals
	progress *counter
	admitted int
	// begun is set while the trainer holds a part of an update.
	begun bool
	// saved is what state.json has.
	saved progress
}

// flushTimeout bounds what is still done after the run's context has ended: it is to be saved, but not waited for
// indefinitely.
const flushTimeout = 2 * time.Minute

// run trains until all steps are done. A resumed run continues from s, its last checkpoint; history has its metrics up
// to that step.
//
// When ctx ends, rollouts under way get the time of rollouts.drain to end; then the state after the last update is
// saved, and the error wraps run.ErrInterrupted. A run that goes on from there, or from the last checkpoint after a
// kill, takes the same steps as one that was never stopped.
func (l *loop) run(ctx context.Context, s state, resumed bool, history []metrics.Point) (err error) {
	l.guard = guard{settings: l.config.Guards}
	if p, ok := l.environment.(Preparer); ok {
		if err := p.Prepare(ctx); err != nil {
			return fmt.Errorf("train: %w", err)
		}
	}
	l.order = order{seed: l.config.Seed, tasks: l.environment.Tasks(Train)}
	if len(l.order.tasks) == 0 {
		return errors.New("train: the environment has no tasks to learn from")
	}
	if err := l.begin(ctx, s, resumed, history); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	l.open(ctx, s)
	defer func() { err = errors.Join(err, l.closeStream()) }()
	for s.Step < l.config.Steps {
		step := s.Step + 1
		if err := l.next(ctx, &s); err != nil {
			return errors.Join(fmt.Errorf("train: step %d: %w", step, err), l.salvage(ctx, &s, err))
		}
	}
	return nil
}

// begin loads the last checkpoint, or measures the fresh policy.
func (l *loop) begin(ctx context.Context, s state, resumed bool, history []metrics.Point) (err error) {
	l.saved = progress{s.Step, s.Pending != nil}
	if resumed {
		if err := l.trainer.Load(ctx, s.Checkpoint); err != nil {
			return err
		}
		for _, p := range history {
			if _, err := l.guard.observe(p); err != nil {
				l.log.Warn("a guard had stopped this run", "step", p.Step, "error", err)
				l.guard = guard{settings: l.config.Guards}
			}
		}
	}
	if err := l.publish(ctx); err != nil {
		return err
	}
	if resumed || !l.config.Evaluate.Before || l.config.Evaluate.Every == 0 {
		return nil
	}
	values := map[string]float64{"policy/version": float64(l.policy.Version)}
	if err := l.evaluate(ctx, 0, values); err != nil {
		return err
	}
	if err := l.random(ctx, values); err != nil {
		return err
	}
	return l.emit(metrics.Point{Step: 0, Time: l.now(), Values: values})
}

// next takes one step and, where it is time, validates and saves.
func (l *loop) next(ctx context.Context, s *state) error {
	step := s.Step + 1
	if s.Pending == nil {
		values, after, err := l.step(ctx, step, s.place)
		if err != nil {
			return err
		}
		// What is not finite has no place in a file, and is counted as a skipped step.
		maps.DeleteFunc(values, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
		s.Pending = &pending{Values: values, place: after}
	}
	values := s.Pending.Values
	last := step == l.config.Steps
	if every := l.config.Evaluate.Every; every > 0 && (last || step%every == 0) {
		if err := l.evaluate(ctx, step, values); err != nil {
			return err
		}
	}
	p := metrics.Point{Step: step, Time: l.now(), Values: values}
	if err := l.emit(p); err != nil {
		return err
	}
	s.Step, s.place, s.Pending = step, s.Pending.place, nil
	warnings, stop := l.guard.observe(p)
	for _, w := range warnings {
		l.log.Warn(w, "step", step)
		l.observer.Warning(fmt.Sprintf("step %d: %s", step, w))
	}
	if stop != nil {
		return stop
	}
	if last || step%l.config.Checkpoint.Every == 0 {
		// Half a checkpoint is of no use to anybody, and the trainer bounds its own waits.
		return l.save(context.WithoutCancel(ctx), s)
	}
	return nil
}

func (l *loop) emit(p metrics.Point) error {
	if err := l.sink.Write(p); err != nil {
		return err
	}
	l.observer.Point(p)
	return nil
}

// salvage saves what a run that was stopped has learned. After any other error the trainer may be what has failed, and
// the checkpoint before has to do, as it has to where a part of the next update is in the trainer already.
func (l *loop) salvage(ctx context.Context, s *state, cause error) error {
	if !errors.Is(cause, run.ErrInterrupted) && !errors.Is(cause, ErrGuard) || s.weights() == 0 || l.begun {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := l.save(ctx, s); err != nil {
		return fmt.Errorf("save before the end: %w", err)
	}
	return nil
}
