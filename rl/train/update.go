package train

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/train/config"
	"deepswe/rl/train/record"
)

// step learns from the groups of an update and publishes the policy.
func (p *practice) step(ctx context.Context, step int, from place) (learned, error) {
	start := p.now()
	stage := p.stages.at(step)
	u := &update{
		practice: p, number: step, algorithm: stage.RL(), optimizer: stage.Optimizer, take: p.supply.stream.takeGroups,
	}
	values, err := u.make(ctx, from)
	if err != nil && u.begun {
		err = torn{err}
	}
	if err != nil {
		return learned{}, err
	}
	done := learned{values: values, place: from}
	for _, g := range u.groups {
		done.place = done.takeGroup(g.number)
	}
	begun := p.now()
	finishing, cancel := p.finishing(ctx)
	defer cancel()
	published, err := p.publisher.finish(finishing)
	if err != nil {
		return learned{}, torn{err}
	}
	now := p.now()
	values["time/publish"] = now.Sub(begun).Seconds()
	if done.unpublished = !published; published {
		p.supply.stream.updated(p.publisher.policy.Version)
		p.publisher.describe(values)
	}
	values["time/step"] = now.Sub(start).Seconds()
	p.supply.waited(values)
	speeds(values, now.Sub(start))
	if err := p.note(step, u.groups, done.place, values); err != nil {
		return learned{}, err
	}
	if err := p.supply.journals.CloseBefore(p.stages.complete(done.place, step) + 1); err != nil {
		return learned{}, err
	}
	if p.rollouts.MaxStaleness > 0 {
		err = p.supply.ahead(step+1, done.place)
	}
	return done, err
}

// update learns from the groups of a step. It is made in parts: minibatches, each of the groups that become complete
// next. Loss weights are normalised within a part, since each is an optimizer step of its own. A part whose advantages
// are all zero makes none: Adam would change the weights by its momentum alone.
type update struct {
	*practice
	number int
	// algorithm and optimizer are those of the stage.
	algorithm rl.Algorithm
	optimizer config.Optimizer
	// take waits for complete groups, at most as many as given.
	take func(most int) ([]*group, error)

	groups           []*group
	stats            rl.Stats
	norms            float64
	updates, skipped int
	// How long the update waited for rollouts, planned rows, and was computed.
	waited, planned, computed time.Duration
	// kept holds the parts for further epochs.
	kept  []keptPart
	probe probe
	// distillation is what the teacher has said of the rows.
	distillation distillation
	// begun is set once the trainer holds a part of the update.
	begun bool
}

// keptPart is the rows of a part and the factor that corrects their loss weights.
type keptPart struct {
	rows  []rl.Row
	scale float64
}

// make learns, and returns the metrics of the update.
func (u *update) make(ctx context.Context, from place) (map[string]float64, error) {
	if err := u.learn(ctx, from); err != nil {
		return nil, err
	}
	ctx, cancel := u.finishing(ctx)
	defer cancel()
	return u.values(ctx)
}

// learn makes all optimizer steps. With a staleness of 0, no later group is admitted, and all of this step's are
// complete before the first optimizer step. Otherwise the trainer works on groups as they become complete, while other
// rollouts go on.
func (u *update) learn(ctx context.Context, from place) error {
	now := u.stages.at(u.number).Rollouts
	n, parts := now.Tasks, u.optimizer.Minibatches
	if u.rollouts.MaxStaleness == 0 {
		start := u.now()
		groups, err := u.supply.rounds(u.number, from)
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
		if err := u.supply.ahead(u.number, from); err != nil {
			return err
		}
		u.supply.progress.beginStep(u.number, n*now.Group)
	}
	for k := range parts {
		if err := u.part(ctx, (k+1)*n/parts-k*n/parts); err != nil {
			return err
		}
	}
	return u.again(ctx)
}

// part makes one optimizer step from the next groups. The trainer gets them as they come, with loss weights that assume
// a total; if the total turns out to be another, the optimizer step corrects that.
func (u *update) part(ctx context.Context, size int) error {
	var whole, guess float64
	planned, sure := u.algorithm.Total(size * u.stages.at(u.number).Rollouts.Group)
	// rows and rollouts wait for a group with advantages: without any there is no optimizer step.
	var rows, kept []rl.Row
	var rollouts []rl.Rollout
	effective := false
	var stats rl.Stats
	for left := size; left > 0; {
		groups, played, err := u.nextGroups(left)
		if err != nil {
			return err
		}
		left -= len(groups)
		start := u.now()
		chunk, batch, err := u.algorithm.Rows(played)
		if err != nil {
			return err
		}
		if err := u.teach(ctx, chunk); err != nil {
			return err
		}
		divisor := u.algorithm.Divisor(batch)
		switch {
		case guess != 0:
		case len(groups) == size:
			guess, sure = divisor, true
		case sure:
			guess = planned
		default:
			guess = divisor * float64(size) / float64(len(groups))
		}
		whole += divisor
		for i := range chunk {
			chunk[i].Scale *= quotient(divisor, guess)
		}
		rows, rollouts = append(rows, chunk...), append(rollouts, played...)
		u.planned += u.now().Sub(start)
		if effective = effective || slices.ContainsFunc(chunk, func(r rl.Row) bool { return r.Effective() }); !effective {
			continue
		}
		s, err := u.learnFrom(ctx, rows, rollouts, !sure)
		if err != nil {
			return err
		}
		stats.Add(s)
		if u.optimizer.Epochs > 1 {
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

func (u *update) nextGroups(most int) ([]*group, []rl.Rollout, error) {
	defer u.since(u.now(), &u.waited)
	groups, err := u.take(most)
	u.groups = append(u.groups, groups...)
	return groups, u.publisher.rollouts(outcomesOf(groups)), err
}

// since adds the time since start to a total.
func (u *update) since(start time.Time, total *time.Duration) { *total += u.now().Sub(start) }

// quotient returns a/b, or 1 if b is 0: without tokens or rows to count, nothing is scaled.
func quotient(a, b float64) float64 {
	if b == 0 {
		return 1
	}
	return a / b
}

// again makes the further epochs over the parts.
func (u *update) again(ctx context.Context) error {
	for range u.optimizer.Epochs - 1 {
		for _, p := range u.kept {
			stats, err := u.learnFrom(ctx, p.rows, nil, p.scale != 1)
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

// learnFrom lets the trainer learn from rows. Those of the first optimizer step go to the probe as well, with their
// rollouts. estimated says that the scales of the rows are not final.
func (u *update) learnFrom(
	ctx context.Context, rows []rl.Row, rollouts []rl.Rollout, estimated bool,
) (rl.Stats, error) {
	ctx, cancel := u.finishing(ctx)
	defer cancel()
	defer u.since(u.now(), &u.computed)
	u.begun = true
	o := u.algorithm.Objective
	o.Estimated = estimated
	pass, err := u.trainer.ForwardBackward(ctx, rows, o)
	if err == nil && u.updates+u.skipped == 0 {
		u.probe.takeRows(rows, pass.Logprobs, rollouts, u.publisher.policy.Version)
	}
	return pass.Stats, err
}

func (u *update) optimize(ctx context.Context, scale float64) error {
	defer u.since(u.now(), &u.computed)
	o := u.optimizer.Settings(u.number)
	o.Scale = scale
	ctx, cancel := u.finishing(ctx)
	defer cancel()
	done, err := u.trainer.Step(ctx, o)
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
	sortGroups(u.groups)
	outcomes := outcomesOf(u.groups)
	rollouts := u.publisher.rollouts(outcomes)
	members := make([]rl.Member, len(rollouts))
	for i := range rollouts {
		members[i] = rl.Measure(&rollouts[i], u.algorithm.MaxLength)
	}
	_, batch, err := u.algorithm.Plan(members)
	if err != nil {
		return nil, err
	}
	values := batch.Metrics(rl.VersionNumber(u.publisher.policy.Version))
	describe(values, outcomes, u.source)
	if gauges := u.examiner.environment.Gauges; gauges != nil {
		maps.Copy(values, gauges())
	}
	entropy(values, rollouts)
	maps.Copy(values, u.stats.Metrics())
	if u.updates > 0 && !math.IsNaN(u.norms) {
		values["optim/grad_norm"] = u.norms / float64(u.updates)
	}
	if len(u.stages.config.Stages) > 0 {
		values[record.StageMetric] = float64(u.stages.number(u.number))
	}
	values["optim/updates"], values["optim/skipped"] = float64(u.updates), float64(u.skipped)
	values["optim/lr"] = u.optimizer.Rate(u.number)
	values["time/update"] = u.computed.Seconds()
	values["time/wait_rollouts"] = u.waited.Seconds()
	if u.rollouts.MaxStaleness == 0 {
		values["time/rollouts"], values["time/rows"] = u.waited.Seconds(), u.planned.Seconds()
	}
	u.distillation.describe(values)
	compared, err := u.probe.values(ctx, u.trainer)
	maps.Copy(values, compared)
	return values, err
}

func outcomesOf(groups []*group) []run.Outcome {
	var outcomes []run.Outcome
	for _, g := range groups {
		outcomes = append(outcomes, g.outcomes...)
	}
	return outcomes
}
