package train

import (
	"context"
	"errors"
	"maps"
	"slices"

	"deepswe/rl/metrics"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// practice is the course of a run that learns from its own rollouts.
type practice struct{ *loop }

// begin opens the tasks and what was learned from them, and the stream of training rollouts.
func (l practice) begin(ctx context.Context, s *state, resumed bool, history []metrics.Point) (err error) {
	if prepare := l.environment.Prepare; prepare != nil {
		if err := prepare(ctx); err != nil {
			return err
		}
	}
	if err := l.tasks.open(l.loop, *s); err != nil {
		return err
	}
	if l.visits, err = record.OpenVisits(l.dir, s.weights()); err != nil {
		return err
	}
	if source := l.environment.Source; source != nil {
		l.source = frequent(l.environment.Tasks(part.Train), source)
	}
	l.stages.resume(s.Stages, history)
	if l.config.Evaluate.Workers > 0 && l.config.Evaluate.Every > 0 {
		l.validator = newValidator(ctx, l.loop)
	}
	if resumed {
		if err = l.load(ctx, *s, history); err == nil {
			err = l.remeasure(ctx, *s, history)
		}
	} else {
		err = l.warmStart(ctx)
	}
	if err == nil {
		err = l.publish(ctx)
	}
	if err != nil {
		return err
	}
	if !resumed && l.due(0) {
		if err := l.untrained(ctx, s); err != nil {
			return err
		}
	}
	l.open(ctx, *s)
	return nil
}

// close ends the rollouts under way.
func (l practice) close() error {
	var err error
	if l.stream != nil {
		err = l.closeStream()
	}
	l.validator.close()
	if l.visits != nil {
		err = errors.Join(err, l.visits.Close())
	}
	return errors.Join(err, l.tasks.close())
}

// untrained measures the fresh policy.
func (l practice) untrained(ctx context.Context, s *state) error {
	values := map[string]float64{}
	l.published(values)
	if err := l.random(ctx, values); err != nil {
		return err
	}
	if err := l.first(ctx, values); err != nil || l.validator == nil {
		return err
	}
	l.saved = progress{step: -1} // a run that is killed before the measurement has ended needs the fresh weights again
	return l.save(context.WithoutCancel(ctx), s)
}

// measure starts a measurement beside training, or takes it.
func (l practice) measure(ctx context.Context, step int, values map[string]float64) error {
	if _, ok := values[versionMetric]; !ok { // it was published when the run was resumed
		l.published(values)
	}
	if !l.due(step) {
		return nil
	}
	if l.validator != nil {
		return l.validator.begin(ctx, measurement{step, l.policy})
	}
	measured, err := l.validate(ctx, step, l.policy, l.config.Rollouts.Workers)
	maps.Copy(values, measured)
	return err
}

// remeasure repeats the measurements during which the run was killed. Their policies are in checkpoints.
func (l practice) remeasure(ctx context.Context, s state, history []metrics.Point) error {
	if l.validator == nil {
		return nil
	}
	done := map[int]bool{}
	for _, p := range history {
		if _, ok := p.Values["time/evaluate"]; ok {
			done[p.Step] = true
		}
	}
	for step := range s.Step + 1 {
		if !l.due(step) || done[step] || !slices.Contains(s.Kept, checkpointName(step)) {
			continue
		}
		if err := l.trainer.Load(ctx, checkpointName(step)); err != nil {
			// The state may name checkpoints that were removed after it was written.
			l.log.Warn("not measured: the policy cannot be loaded any more", "step", step, "error", err)
			continue
		}
		p, err := l.trainer.Publish(ctx)
		if err != nil {
			return err
		}
		if err := l.validator.begin(ctx, measurement{step, p}); err != nil {
			return err
		}
	}
	return l.trainer.Load(ctx, s.Checkpoint)
}

// warmStart lets the trainer learn from demonstrations. Its points are those of the steps before 0, one for each
// pass; the first one has the validation of the fresh policy, if that is measured before training.
func (l *loop) warmStart(ctx context.Context) error {
	if l.trainer.WarmStart == nil {
		return nil
	}
	start := l.now()
	if err := l.publish(ctx); err != nil {
		return err
	}
	fresh := l.policy
	losses, err := l.trainer.WarmStart(ctx)
	if err != nil || len(losses) == 0 {
		return err
	}
	seconds := l.now().Sub(start).Seconds()
	for i, loss := range losses {
		step := i - len(losses)
		values := map[string]float64{"imitation/loss": loss, "imitation/pass": float64(i + 1)}
		if i == 0 && l.due(0) && l.validator == nil {
			measured, err := l.validate(ctx, step, fresh, l.config.Rollouts.Workers)
			if err != nil {
				return err
			}
			maps.Copy(values, measured)
		}
		if i == len(losses)-1 {
			values["time/imitation"] = seconds
		}
		if err := l.emit(metrics.Point{Step: step, Time: l.now(), Values: values}); err != nil {
			return err
		}
	}
	l.log.Info("imitated the demonstrations", "passes", len(losses), "loss", losses[len(losses)-1], "seconds", seconds)
	return nil
}
