package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"time"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// loop runs one training run from its last checkpoint to the end.
type loop struct {
	config      config.Config
	course      course
	environment part.Environment // without a player if nothing is played
	trainer     part.Trainer
	gates       run.Gates
	dir         *run.Dir
	sink        metrics.Sink
	observer    Observer
	log         *slog.Logger
	// abandon, when closed, ends the drain of a stopped run early.
	abandon <-chan struct{}
	now     func() time.Time

	guard guard
	// policy is the last published policy; live samples with it, and switches when another is published.
	policy rl.Policy
	live   live
	tasks  tasks
	visits *disk.Log
	stages *stages
	// source returns the repository of a task; nil if the environment has none.
	source func(task string) string
	// stream plays the training rollouts, and journals record them. admitted is the number of admitted groups.
	stream    *stream
	journals  *record.Journals
	progress  *counter
	occupancy *occupancy
	admitted  int
	// validator measures policies beside training; nil if validation and training alternate.
	validator *validator
	// begun is set while the trainer holds an unfinished update.
	begun bool
	// unpublished is set if the run was stopped while the policy of a finished update was published.
	unpublished bool
	// saved is the progress in state.json.
	saved progress
}

// flushTimeout limits the saving that is done after the run's context has ended.
const flushTimeout = 2 * time.Minute

// course is what a run learns from.
type course interface {
	// begin loads the weights of the last checkpoint, or measures fresh ones, and prepares the first step.
	begin(ctx context.Context, s *state, resumed bool, history []metrics.Point) error
	// step makes an update. It returns its metrics and the position after what it has learned from.
	step(ctx context.Context, step int, from place) (map[string]float64, place, error)
	// measure adds the validation results of a step's policy to its values, if they are due.
	measure(ctx context.Context, step int, values map[string]float64) error
	// close ends what begin has opened, also if begin has failed.
	close() error
}

// run trains until all steps are done. A resumed run continues from s, its last checkpoint; history has its metrics up
// to that step.
//
// When ctx ends, rollouts under way get the time of rollouts.drain to end; then the state after the last update is
// saved, and the error wraps run.ErrInterrupted. A run that goes on from there, or from the last checkpoint after a
// kill, takes the same steps as one that was never stopped.
func (l *loop) run(ctx context.Context, s state, resumed bool, history []metrics.Point) (err error) {
	l.guard = guard{settings: l.config.Guards}
	l.saved = progress{s.Step, s.Pending != nil}
	defer func() { err = errors.Join(err, l.course.close()) }()
	if err := l.course.begin(ctx, &s, resumed, history); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	for s.Step < l.config.Steps {
		step := s.Step + 1
		if err := l.next(ctx, &s); err != nil {
			return errors.Join(fmt.Errorf("train: step %d: %w", step, err), l.salvage(ctx, &s, err))
		}
	}
	return l.measured(ctx, true)
}

// load loads the last checkpoint, and shows the guard what came before.
func (l *loop) load(ctx context.Context, s state, history []metrics.Point) error {
	if err := l.trainer.Load(ctx, s.Checkpoint); err != nil {
		return err
	}
	for _, p := range history {
		if _, err := l.guard.observe(p); err != nil {
			l.log.Warn("a guard had stopped this run", "step", p.Step, "error", err)
			l.guard = guard{settings: l.config.Guards}
		}
	}
	return nil
}

// first measures the policy before the first step.
func (l *loop) first(ctx context.Context, values map[string]float64) error {
	if err := l.course.measure(ctx, 0, values); err != nil {
		return err
	}
	return l.emit(metrics.Point{Step: 0, Time: l.now(), Values: values})
}

// measured emits the results of measurements beside training. With all set, it waits for those under way.
func (l *loop) measured(ctx context.Context, all bool) error {
	if l.validator == nil {
		return nil
	}
	points, err := l.validator.take(ctx, all)
	for _, p := range points {
		err = errors.Join(err, l.emit(p))
	}
	return err
}

// next takes one step, and validates and saves if these are due.
func (l *loop) next(ctx context.Context, s *state) error {
	step := s.Step + 1
	if s.Pending == nil {
		values, after, err := l.course.step(ctx, step, s.place)
		if err != nil {
			return err
		}
		// JSON has no NaN or infinity. These are counted as a skipped step.
		maps.DeleteFunc(values, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
		s.Pending = &pending{Values: values, place: after}
		if l.unpublished {
			return fmt.Errorf("%w: %w", run.ErrInterrupted, ctx.Err())
		}
	}
	values := s.Pending.Values
	if err := l.course.measure(ctx, step, values); err != nil {
		return err
	}
	p := metrics.Point{Step: step, Time: l.now(), Values: values}
	if err := errors.Join(l.emit(p), l.measured(ctx, false)); err != nil {
		return err
	}
	s.Step, s.place, s.Pending = step, s.Pending.place, nil
	warnings, stop := l.guard.observe(p)
	parked, err := l.tasks.warn()
	warnings = append(append(warnings, parked...), l.stages.observe(p, l.unadmitted(step))...)
	s.Stages = l.stages.begun()
	for _, w := range warnings {
		l.log.Warn(w, "step", step)
		l.observer.Warning(fmt.Sprintf("step %d: %s", step, w))
	}
	if stop = cmp.Or(stop, err); stop != nil {
		return stop
	}
	if step == l.config.Steps || step%l.config.Checkpoint.Every == 0 || l.validator != nil && l.due(step) {
		// A checkpoint is always completed. The trainer has timeouts of its own.
		return l.save(context.WithoutCancel(ctx), s)
	}
	return nil
}

// unadmitted returns the first step after the given one of which no group has been admitted.
func (l *loop) unadmitted(step int) int {
	if l.config.Rollouts.MaxStaleness == 0 {
		return step + 1
	}
	return l.admitted/l.config.Rollouts.Tasks + 1
}

func (l *loop) emit(p metrics.Point) error {
	if err := l.sink.Write(p); err != nil {
		return err
	}
	l.observer.Point(p)
	return nil
}

// salvage saves the state of an interrupted run. After any other error the trainer itself may have failed, and if it
// already holds a part of the next update, its weights belong to no step: in both cases the last checkpoint is kept.
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
