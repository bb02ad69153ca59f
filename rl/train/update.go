package train

import (
	"context"
	"errors"
	"maps"
	"time"

	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/train/record"
)

// step learns from the groups of an update and publishes the policy. It returns the metrics and the position after
// these groups.
func (l practice) step(ctx context.Context, step int, from place) (map[string]float64, place, error) {
	start := l.now()
	u := &update{loop: l.loop, step: step, take: l.stream.take}
	if err := u.learn(ctx, from); err != nil {
		return nil, from, err
	}
	values, err := u.values(context.WithoutCancel(ctx))
	if err != nil {
		return nil, from, err
	}
	after := from
	for _, g := range u.groups {
		after = after.take(g.number)
	}
	if err := l.finish(ctx, start, values); err != nil {
		return nil, from, err
	}
	l.begun = false
	if err := l.learned(step, u.outcomes(), values); err != nil {
		return nil, from, err
	}
	if err := l.journals.CloseBefore(l.complete(step, after) + 1); err != nil {
		return nil, from, err
	}
	if l.config.Rollouts.MaxStaleness > 0 {
		err = l.ahead(step+1, after)
	}
	return values, after, err
}

// complete returns the last step of which no group is left to learn from once the given one is done.
func (l *loop) complete(step int, at place) int {
	if l.config.Rollouts.MaxStaleness > 0 {
		return at.Cursor / l.config.Rollouts.Tasks
	}
	return step
}

// publishGrace is how long a publication may go on after the run's context has ended.
const publishGrace = 5 * time.Second

// finish publishes the updated policy and adds the metrics of the step. If the run is stopped and the publication does
// not end in time, the step is unpublished.
func (l *loop) finish(ctx context.Context, start time.Time, values map[string]float64) error {
	begun := l.now()
	publishing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(publishGrace, cancel) })()
	err := l.publish(publishing)
	l.unpublished = publishing.Err() != nil && err != nil && !errors.Is(err, rl.ErrApart)
	if err != nil && !l.unpublished {
		return err
	}
	now := l.now()
	values["time/publish"] = now.Sub(begun).Seconds()
	if !l.unpublished {
		l.stream.updated(l.policy.Version)
		l.published(values)
	}
	values["time/step"] = now.Sub(start).Seconds()
	values["time/wait_trainer"] = l.stream.rest().Seconds()
	values["workers/busy"] = l.occupancy.take()
	values["workers/idle"] = 1 - values["workers/busy"]
	speeds(values, now.Sub(start))
	return nil
}

// published adds the metrics of the policy's publication.
func (l *loop) published(values map[string]float64) {
	if gap := l.policy.Gap; gap.Tokens > 0 {
		values["publish/gap_mean"], values["publish/gap_max"] = gap.Mean, gap.Max
	}
	if gauges := l.trainer.Gauges; gauges != nil {
		maps.Copy(values, gauges())
	}
	values[versionMetric] = float64(l.policy.Version)
}

const versionMetric = "policy/version"

// publish makes rollouts sample from the trainer's current weights.
func (l *loop) publish(ctx context.Context) (err error) {
	if l.policy, err = l.trainer.Publish(ctx); err == nil {
		current := l.policy
		l.live.current.Store(&current)
	}
	return err
}

// rollouts converts outcomes into the algorithm's rollouts.
func (l *loop) rollouts(outcomes []run.Outcome) []rl.Rollout {
	rollouts := make([]rl.Rollout, len(outcomes))
	for i, o := range outcomes {
		rollouts[i] = record.RolloutOf(o, rl.VersionNumber(l.policy.Version))
	}
	return rollouts
}

// optimized adds the metrics of a batch's optimizer steps.
func optimized(values map[string]float64, stats rl.Stats, norms float64, updates, skipped int) {
	maps.Copy(values, stats.Metrics())
	if updates > 0 {
		values["optim/grad_norm"] = norms / float64(updates)
	}
	values["optim/updates"], values["optim/skipped"] = float64(updates), float64(skipped)
}

// update learns from the groups of a step. It is made in parts: minibatches, each of the groups that become complete
// next. Loss weights are normalised within a part, since each is an optimizer step of its own. A part whose advantages
// are all zero makes none: Adam would change the weights by its momentum alone.
type update struct {
	loop *loop
	step int
	// take waits for complete groups, at most as many as given.
	take func(most int) ([]*group, error)

	groups           []*group
	stats            rl.Stats
	norms            float64
	updates, skipped int
	// waited for rollouts, planned rows and computed the update.
	waited, planned, computed time.Duration
	// kept holds the parts for further epochs.
	kept  []keptPart
	probe probe
}

// keptPart is the rows of a part and the factor that corrects their loss weights.
type keptPart struct {
	rows  []rl.Row
	scale float64
}

// learn makes all optimizer steps. With a staleness of 0, no later group is admitted, and all of this step's are
// complete before the first optimizer step. Otherwise the trainer works on groups as they become complete, while other
// rollouts go on.
func (u *update) learn(ctx context.Context, from place) error {
	l, n, parts := u.loop, u.loop.config.Rollouts.Tasks, u.loop.config.Optimizer.Minibatches
	if l.config.Rollouts.MaxStaleness == 0 {
		start := l.now()
		groups, err := l.rounds(u.step, from)
		if err != nil {
			return err
		}
		u.since(start, &u.waited)
		n = len(groups)
		u.take = func(most int) (taken []*group, _ error) {
			taken, groups = groups[:most], groups[most:]
			return taken, nil
		}
	} else {
		if err := l.ahead(u.step, from); err != nil {
			return err
		}
		l.progress.begin(u.step, n*l.config.Rollouts.Group)
	}
	for k := range parts {
		if err := u.part(ctx, (k+1)*n/parts-k*n/parts); err != nil {
			return err
		}
	}
	return u.again(ctx)
}

// part makes one optimizer step from the next groups. The trainer gets them as they come, with loss weights that assume
// an estimated total; the optimizer step corrects the estimate.
func (u *update) part(ctx context.Context, size int) error {
	var whole, guess float64
	// rows and rollouts wait for a group with advantages: without any there is no optimizer step.
	var rows, kept []rl.Row
	var rollouts []rl.Rollout
	effective := false
	var stats rl.Stats
	for left := size; left > 0; {
		groups, played, err := u.next(left)
		if err != nil {
			return err
		}
		left -= len(groups)
		start := u.loop.now()
		chunk, batch, err := u.loop.config.RL().Rows(played)
		if err != nil {
			return err
		}
		divisor := u.loop.config.RL().Divisor(batch)
		if guess == 0 {
			guess = divisor * float64(size) / float64(len(groups))
		}
		whole += divisor
		for i := range chunk {
			chunk[i].Scale *= quotient(divisor, guess)
		}
		rows, rollouts = append(rows, chunk...), append(rollouts, played...)
		u.planned += u.loop.now().Sub(start)
		if effective = effective || batch.Groups.Effective > 0; !effective {
			continue
		}
		s, err := u.forward(ctx, rows, rollouts)
		if err != nil {
			return err
		}
		stats.Add(s)
		if u.loop.config.Optimizer.Epochs > 1 {
			kept = append(kept, rows...)
		}
		rows, rollouts = nil, nil
	}
	if !effective {
		return nil
	}
	scale := quotient(guess, whole)
	stats.Loss *= scale
	u.stats.Add(stats)
	u.kept = append(u.kept, keptPart{kept, scale})
	return u.optimize(ctx, scale)
}

// next waits for the next groups.
func (u *update) next(most int) ([]*group, []rl.Rollout, error) {
	defer u.since(u.loop.now(), &u.waited)
	groups, err := u.take(most)
	u.groups = append(u.groups, groups...)
	return groups, u.loop.rollouts(outcomesOf(groups)), err
}

// since adds the time since start to a total.
func (u *update) since(start time.Time, total *time.Duration) { *total += u.loop.now().Sub(start) }

// quotient divides; without any tokens or rows to count, nothing is scaled.
func quotient(a, b float64) float64 {
	if b == 0 {
		return 1
	}
	return a / b
}

// again makes the further epochs over the parts.
func (u *update) again(ctx context.Context) error {
	for range u.loop.config.Optimizer.Epochs - 1 {
		for _, p := range u.kept {
			stats, err := u.forward(ctx, p.rows, nil)
			if err != nil {
				return err
			}
			stats.Loss *= p.scale
			u.stats.Add(stats)
			if err := u.optimize(ctx, p.scale); err != nil {
				return err
			}
		}
	}
	return nil
}

// forward lets the trainer learn from rows. Before the first optimizer step, the probe gets them first, with their
// rollouts.
func (u *update) forward(ctx context.Context, rows []rl.Row, rollouts []rl.Rollout) (rl.Stats, error) {
	ctx = context.WithoutCancel(ctx) // an update that has begun is finished, because half of one could not be saved
	l := u.loop
	if u.updates+u.skipped == 0 {
		if err := u.probe.take(ctx, l.trainer, rows, rollouts, l.policy.Version); err != nil {
			return rl.Stats{}, err
		}
	}
	defer u.since(l.now(), &u.computed)
	l.begun = true
	return l.trainer.ForwardBackward(ctx, rows, l.config.RL().Objective)
}

func (u *update) optimize(ctx context.Context, scale float64) error {
	defer u.since(u.loop.now(), &u.computed)
	o := u.loop.config.Optimizer.Settings(u.step, u.loop.stages.at(u.step))
	o.Scale = scale
	done, err := u.loop.trainer.Step(context.WithoutCancel(ctx), o)
	switch {
	case err != nil:
		return err
	case done.Skipped:
		u.skipped++
	default:
		u.updates++
		u.norms += done.GradientNorm
	}
	return nil
}

// values returns the metrics of the step. All groups count as one batch.
func (u *update) values(ctx context.Context) (map[string]float64, error) {
	l, outcomes := u.loop, u.outcomes()
	rollouts := l.rollouts(outcomes)
	members := make([]rl.Member, len(rollouts))
	for i := range rollouts {
		members[i] = rl.Measure(&rollouts[i], l.config.Algorithm.MaxLength)
	}
	_, batch, err := l.config.RL().Plan(members)
	if err != nil {
		return nil, err
	}
	values := batch.Metrics(rl.VersionNumber(l.policy.Version))
	describe(values, outcomes, l.source)
	stuck(values, rollouts, l.config.Rollouts.Group)
	optimized(values, u.stats, u.norms, u.updates, u.skipped)
	values["optim/lr"] = l.config.Optimizer.Rate(u.step, l.stages.at(u.step))
	values["time/update"] = u.computed.Seconds()
	values["time/wait_rollouts"] = u.waited.Seconds()
	if l.config.Rollouts.MaxStaleness == 0 {
		values["time/rollouts"], values["time/rows"] = u.waited.Seconds(), u.planned.Seconds()
	}
	compared, err := u.probe.values(ctx, l.trainer)
	maps.Copy(values, compared)
	return values, err
}

// outcomes returns those of all groups, in the order of admission.
func (u *update) outcomes() []run.Outcome {
	sortGroups(u.groups)
	return outcomesOf(u.groups)
}

func outcomesOf(groups []*group) []run.Outcome {
	var outcomes []run.Outcome
	for _, g := range groups {
		outcomes = append(outcomes, g.outcomes...)
	}
	return outcomes
}
