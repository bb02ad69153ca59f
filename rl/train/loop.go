package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"deepswe/agent/run"
	"deepswe/rl/metrics"
	"deepswe/rl/train/part"
)

// site is where a run takes place: its directory, its trainer, and who watches it. It stays the same while a run lasts.
type site struct {
	dir      *run.Dir
	trainer  part.Trainer
	points   *metrics.JSONL
	feeds    []*metrics.Feed
	observer Observer
	log      *slog.Logger
	now      func() time.Time
	stopping
}

// emit writes a point to all who watch.
func (s *site) emit(p metrics.Point) error {
	if err := s.points.Write(p); err != nil {
		return err
	}
	for _, f := range s.feeds {
		f.Write(p)
	}
	s.observer.Point(p)
	return nil
}

// loop is one training run, from its last checkpoint to the end.
type loop struct {
	site
	// every is the number of steps from one checkpoint to the next.
	steps, every int
	// beginCourse opens what the run learns from. It brings the state of a run that is new up to date.
	beginCourse func(ctx context.Context, s *state, resumed bool, history []metrics.Point) (course, error)
	// state is what the run begins with: that of a checkpoint, if the run is resumed. from is the last step whose metrics
	// are kept, below 0 for none, and history has these metrics.
	state    state
	resumed  bool
	from     int
	history  []metrics.Point
	recorder *recorder

	guard   guard
	keeper  keeper
	closers []func() error
	// ended is why the run ended, or nil if it is done.
	ended error
}

// course is what a run learns from.
type course struct {
	// step makes an update.
	step func(ctx context.Context, step int, from place) (learned, error)
	// measure adds the validation results of a step's policy to its values, if they are due.
	measure func(ctx context.Context, step int, values map[string]float64) error
	// observe takes the metrics of a finished step. It returns warnings, or an error that ends the run. It is nil for a
	// course that does not depend on metrics.
	observe func(p metrics.Point) ([]string, error)
	// remember adds to a state what the course resumes from, and splits returns its sets of validation tasks; both are nil
	// for a course that plays nothing.
	remember func(s *state)
	splits   func() []part.Split
	// beside measures policies while the run goes on; nil if nothing is measured then.
	beside *validator
	// close ends what was opened at the beginning.
	close func() error
}

// learned is the result of an update.
type learned struct {
	values map[string]float64
	// place is the position after what was learned from.
	place
	// unpublished is set if the run was stopped while the policy was published.
	unpublished bool
}

// torn is the error of an update that the trainer has made in part, so that its weights belong to no step.
type torn struct{ error }

func (t torn) Unwrap() error { return t.error }

// close closes what was opened for the run, the last first.
func (l *loop) close() error {
	var errs []error
	for _, c := range slices.Backward(l.closers) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// run trains until all steps are done.
//
// When ctx ends, rollouts and an update under way get the time of rollouts.drain to end; then the state after the last
// update is saved, unless one was cut short, and the error wraps run.ErrInterrupted. A run that goes on from there, or
// from the last checkpoint, takes the same steps as one that was never stopped.
func (l *loop) run(ctx context.Context) (err error) {
	s := l.state
	l.keeper.saved = progress{s.Step, s.Pending != nil}
	if l.resumed {
		if err := l.trainer.Load(ctx, s.Checkpoint); err != nil {
			return fmt.Errorf("train: %w", err)
		}
		l.guard.replay(l.history, l.log)
	}
	c, err := l.beginCourse(ctx, &s, l.resumed, l.history)
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for s.Step < l.steps {
		step := s.Step + 1
		if err := l.takeStep(ctx, c, &s); err != nil {
			return errors.Join(fmt.Errorf("train: step %d: %w", step, err), l.salvage(ctx, &s, err))
		}
	}
	return l.measured(ctx, c.beside, true)
}

// takeStep takes one step, and validates and saves if these are due.
func (l *loop) takeStep(ctx context.Context, c course, s *state) error {
	step := s.Step + 1
	if s.Pending == nil {
		done, err := c.step(ctx, step, s.place)
		if err != nil {
			return err
		}
		// JSON has no NaN or infinity. The step that they come from is counted as skipped.
		maps.DeleteFunc(done.values, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
		s.Pending = &pending{Values: done.values, place: done.place}
		if done.unpublished {
			return ctx.Err()
		}
	}
	values := s.Pending.Values
	if err := c.measure(ctx, step, values); err != nil {
		return err
	}
	p := metrics.Point{Step: step, Time: l.now(), Values: values}
	if err := errors.Join(l.emit(p), l.measured(ctx, c.beside, false)); err != nil {
		return err
	}
	s.Step, s.place, s.Pending = step, s.Pending.place, nil
	warnings, stop := l.guard.observeStep(p)
	if c.observe != nil {
		more, err := c.observe(p)
		warnings, stop = append(warnings, more...), cmp.Or(stop, err)
	}
	for _, w := range warnings {
		l.log.Warn(w, "step", step)
		l.observer.Warning(fmt.Sprintf("step %d: %s", step, w))
	}
	if stop != nil {
		return stop
	}
	if step == l.steps || step%l.every == 0 || c.beside.due(step) {
		saving, cancel := l.saving(ctx)
		defer cancel()
		return l.keeper.save(saving, s)
	}
	return nil
}

// measured emits the results of measurements beside training. With all set, it waits for those under way.
func (l *loop) measured(ctx context.Context, beside *validator, all bool) error {
	if beside == nil {
		return nil
	}
	points, err := beside.takePoints(ctx, all)
	for _, p := range points {
		err = errors.Join(err, l.emit(p))
	}
	return err
}

// salvage saves the state of a run that was interrupted, or stopped by a guard. After any other error the trainer
// itself may have failed, and if it already holds a part of the next update, its weights belong to no step: in both
// cases the last checkpoint is kept.
func (l *loop) salvage(ctx context.Context, s *state, cause error) error {
	_, part := errors.AsType[torn](cause)
	if part || ctx.Err() == nil && !errors.Is(cause, errGuard) || s.weights() == 0 {
		return nil
	}
	ctx, cancel := l.saving(ctx)
	defer cancel()
	if err := l.keeper.save(ctx, s); err != nil {
		return fmt.Errorf("save before the end: %w", err)
	}
	return nil
}
