package train

import (
	"context"
	"errors"
	"maps"
	"slices"

	"deepswe/env/disk"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
	"deepswe/verify/swe"
)

// plan is what is fixed before a run that learns from its own rollouts begins.
type plan struct {
	*site
	examiner examiner
	keeper   *keeper
	stages   *stages
	prefixes *prefixes // nil if every rollout begins with its task
	teacher  *teacher  // nil if there is none
	seed     uint64
}

// practice is such a run under way.
type practice struct {
	plan
	rollouts  config.Rollouts
	publisher publisher
	tasks     *tasks
	visits    *disk.Log
	// source returns the repository of a task; nil if the environment has none.
	source func(task string) string
	// validator measures policies beside training; nil if validation and training alternate.
	validator *validator
	supply    *supply // nil until the policy is published
}

// beginCourse opens the tasks and what was learned from them, publishes the policy, and starts the stream of training
// rollouts.
func (d plan) beginCourse(ctx context.Context, s *state, resumed bool, history []metrics.Point) (_ course, err error) {
	environment := d.examiner.environment
	if prepare := environment.Prepare; prepare != nil {
		if err := prepare(ctx, d.dir); err != nil {
			return course{}, err
		}
	}
	p := &practice{plan: d, rollouts: d.examiner.rollouts, publisher: publisher{trainer: d.trainer}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	d.stages.resume(s.Stages, history)
	all := order{seed: d.seed, tasks: environment.Tasks(part.Train)}
	if p.tasks, err = openTasks(d.stages, s.Step+1, all, d.dir.Path(tasksFile), s.Curriculum); err != nil {
		return course{}, err
	}
	p.tasks.prefixes = d.prefixes
	if p.visits, err = record.OpenVisits(d.dir, s.weights()); err != nil {
		return course{}, err
	}
	if source := environment.Source; source != nil {
		p.source = frequent(all.tasks, source)
	}
	if e := d.examiner.settings; e.Workers > 0 && e.Every > 0 {
		p.validator = newValidator(ctx, d.examiner)
	}
	d.keeper.course = course{
		step: p.step, measure: p.measure, observe: p.observeStep, remember: p.remember, splits: d.examiner.splits,
		beside: p.validator, close: p.close,
	}
	if err := p.publishFirst(ctx, s, resumed, history); err != nil {
		return course{}, err
	}
	if err := p.teacher.check(ctx, &p.publisher.live); err != nil {
		return course{}, err
	}
	p.supply = openSupply(ctx, d.site, d.examiner.player, &p.publisher, p.tasks, d.stages, d.examiner.steps, *s)
	return d.keeper.course, nil
}

// publishFirst publishes the policy that the first rollouts are sampled with. In a new run, it may learn from
// demonstrations first, and is measured.
func (p *practice) publishFirst(ctx context.Context, s *state, resumed bool, history []metrics.Point) (err error) {
	if resumed {
		err = p.remeasure(ctx, *s, history)
	} else {
		err = p.warmStart(ctx)
	}
	if err == nil {
		err = p.publisher.publish(ctx)
	}
	if err != nil || resumed || !p.examiner.due(0) {
		return err
	}
	values := map[string]float64{}
	p.publisher.describe(values)
	if err := p.examiner.random(ctx, values); err != nil {
		return err
	}
	if err := p.measure(ctx, 0, values); err != nil {
		return err
	}
	if err := p.emit(metrics.Point{Step: 0, Time: p.now(), Values: values}); err != nil || p.validator == nil {
		return err
	}
	p.keeper.saved = progress{step: -1} // a run that is killed before the measurement has ended needs the fresh weights
	return p.keeper.save(context.WithoutCancel(ctx), s)
}

// close ends the rollouts under way.
func (p *practice) close() error {
	var errs []error
	if p.supply != nil {
		errs = append(errs, p.supply.close())
	}
	p.validator.close()
	if p.visits != nil {
		errs = append(errs, p.visits.Close())
	}
	if p.tasks != nil {
		errs = append(errs, p.tasks.close())
	}
	return errors.Join(errs...)
}

// observeStep lets curriculum and stages see the metrics of a step.
func (p *practice) observeStep(at metrics.Point) ([]string, error) {
	warnings, err := p.tasks.warn()
	return append(warnings, p.stages.observeStep(at, p.supply.unadmitted(at.Step))...), err
}

// remember adds curriculum and stages to a state.
func (p *practice) remember(s *state) { s.Curriculum, s.Stages = p.tasks.state(), p.stages.begun() }

// note records how the rollouts of each group of an update ended. What was not graded says nothing about its task.
func (p *practice) note(step int, groups []*group, done place, values map[string]float64) error {
	now := p.stages.at(step).Prefix
	m := prefixMetrics{}
	for _, g := range groups {
		first := g.outcomes[0]
		v := record.Visit{Update: step, Step: record.StepOf(first.Group), Group: first.Group, Task: first.Task}
		solved, graded := 0, 0
		for _, o := range g.outcomes {
			v.Rewards, v.Stops = append(v.Rewards, o.Reward), append(v.Stops, o.StopReason)
			if o.Reward != nil {
				graded++
			}
			if swe.Solved(o) {
				solved++
			}
		}
		continued, err := p.tasks.observePrefix(v.Task, g, solved, graded, now, m)
		if err != nil {
			return err
		}
		if !continued {
			p.tasks.observeVisit(v.Task, solved, graded)
		}
		if err := p.visits.Append(v); err != nil {
			return err
		}
	}
	maps.Copy(values, p.tasks.values())
	if p.tasks.prefixes == nil {
		return nil
	}
	maps.Copy(values, m)
	return p.tasks.tidy(done)
}

// measure queues a measurement beside training or, without a validator, makes it at once.
func (p *practice) measure(ctx context.Context, step int, values map[string]float64) error {
	if _, ok := values[versionMetric]; !ok { // it was published when the run was resumed
		p.publisher.describe(values)
	}
	if !p.examiner.due(step) {
		return nil
	}
	if p.validator != nil {
		return p.validator.queueMeasurement(ctx, measurement{step: step, policy: p.publisher.policy})
	}
	measured, err := p.examiner.validate(ctx, step, p.publisher.policy, p.rollouts.Workers)
	maps.Copy(values, measured)
	return err
}

// remeasure repeats the measurements during which the run was killed. Their policies are in checkpoints.
func (p *practice) remeasure(ctx context.Context, s state, history []metrics.Point) error {
	if p.validator == nil {
		return nil
	}
	done, moved := map[int]bool{}, false
	for _, at := range history {
		if _, ok := at.Values["time/evaluate"]; ok {
			done[at.Step] = true
		}
	}
	for step := range s.Step + 1 {
		if !p.examiner.due(step) || done[step] || !slices.Contains(s.Kept, checkpointName(step)) {
			continue
		}
		moved = true
		if err := p.trainer.Load(ctx, checkpointName(step)); err != nil {
			// The state may name checkpoints that were removed after it was written.
			p.log.Warn("not measured: the policy cannot be loaded any more", "step", step, "error", err)
			continue
		}
		policy, err := p.trainer.Publish(ctx)
		if err != nil {
			return err
		}
		if err := p.validator.queueMeasurement(ctx, measurement{step: step, policy: policy}); err != nil {
			return err
		}
	}
	if !moved {
		return nil
	}
	return p.trainer.Load(ctx, s.Checkpoint)
}

// warmStart lets the trainer learn from demonstrations. Its points are those of the steps before 0, one for each
// pass; the first one has the validation of the fresh policy, if that is measured before training.
func (p *practice) warmStart(ctx context.Context) error {
	if p.trainer.WarmStart == nil {
		return nil
	}
	start := p.now()
	if err := p.publisher.publish(ctx); err != nil {
		return err
	}
	fresh := p.publisher.policy
	losses, err := p.trainer.WarmStart(ctx)
	if err != nil || len(losses) == 0 {
		return err
	}
	seconds := p.now().Sub(start).Seconds()
	for i, loss := range losses {
		step := i - len(losses)
		values := map[string]float64{"imitation/loss": loss, "imitation/pass": float64(i + 1)}
		if i == 0 && p.examiner.due(0) && p.validator == nil {
			measured, err := p.examiner.validate(ctx, step, fresh, p.examiner.rollouts.Workers)
			if err != nil {
				return err
			}
			maps.Copy(values, measured)
		}
		if i == len(losses)-1 {
			values["time/imitation"] = seconds
		}
		if err := p.emit(metrics.Point{Step: step, Time: p.now(), Values: values}); err != nil {
			return err
		}
	}
	p.log.Info("imitated the demonstrations", "passes", len(losses), "loss", losses[len(losses)-1], "seconds", seconds)
	return nil
}
