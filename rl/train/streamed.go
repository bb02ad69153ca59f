package train

import (
	"context"
	"maps"
	"slices"
	"time"

	"deepswe/agent/run"
	"deepswe/rl"
)

// streamed takes a step of the asynchronous loop: the trainer works on groups as they become complete, while other
// rollouts go on.
func (l *loop) streamed(ctx context.Context, step int, from place) (map[string]float64, place, error) {
	start := l.now()
	if err := l.admit(step, from); err != nil {
		return nil, from, err
	}
	tasks, parts := l.config.Rollouts.Tasks, l.config.Optimizer.Minibatches
	l.progress.begin(step, tasks*l.config.Rollouts.Group)
	u := &streamedUpdate{loop: l, step: step}
	for k := range parts {
		if err := u.part(ctx, (k+1)*tasks/parts-k*tasks/parts); err != nil {
			return nil, from, err
		}
	}
	if err := u.again(ctx); err != nil {
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
	if err := l.journals.closeBefore(after.Cursor/tasks + 1); err != nil {
		return nil, from, err
	}
	return values, after, l.admit(step+1, after)
}

// admit admits the groups that updates up to MaxStaleness after the step may learn from, which is enough for each of
// these updates.
func (l *loop) admit(step int, at place) error {
	tasks := l.config.Rollouts.Tasks
	limit := min(step+l.config.Rollouts.MaxStaleness, l.config.Steps) * tasks
	var groups []*group
	for ; l.admitted < limit; l.admitted++ {
		n := l.admitted
		if slices.Contains(at.Ahead, n) {
			continue
		}
		if err := l.journals.open(n/tasks + 1); err != nil {
			return err
		}
		g, err := l.group(n/tasks+1, n%tasks, n)
		if err != nil {
			return err
		}
		groups = append(groups, g)
	}
	l.stream.admit(groups...)
	return nil
}

// streamedUpdate is an update in parts: minibatches, each made of the groups that become complete next.
type streamedUpdate struct {
	loop *loop
	step int

	groups           []*group
	stats            rl.Stats
	norms            float64
	updates, skipped int
	waited, computed time.Duration
	// kept holds the parts for further epochs.
	kept  []keptPart
	probe probe
}

// keptPart is the rows of a part and the factor that corrects their loss weights.
type keptPart struct {
	rows  []rl.Row
	scale float64
}

// part makes one optimizer step from the next groups. The trainer gets them as they come, with loss weights that assume
// an estimated total; the optimizer step corrects the estimate.
func (u *streamedUpdate) part(ctx context.Context, size int) error {
	l := u.loop
	var whole, guess float64
	var aside, rows []rl.Row // aside waits for a group with advantages: without any there is no optimizer step
	effective := false
	var stats rl.Stats
	for left := size; left > 0; {
		asked := l.now()
		groups, err := l.stream.take(left)
		u.waited += l.now().Sub(asked)
		if err != nil {
			return err
		}
		left -= len(groups)
		u.groups = append(u.groups, groups...)
		rollouts := l.rollouts(outcomesOf(groups))
		chunk, batch, err := l.config.RL().Rows(rollouts)
		if err != nil {
			return err
		}
		if err := u.compare(ctx, chunk, rollouts); err != nil {
			return err
		}
		divisor := l.config.RL().Divisor(batch)
		if guess == 0 {
			guess = divisor * float64(size) / float64(len(groups))
		}
		whole += divisor
		for i := range chunk {
			chunk[i].Scale *= divisor / guess
		}
		aside = append(aside, chunk...)
		if effective = effective || batch.Groups.Effective > 0; !effective {
			continue
		}
		s, err := u.forward(ctx, aside)
		if err != nil {
			return err
		}
		stats.Add(s)
		if l.config.Optimizer.Epochs > 1 {
			rows = append(rows, aside...)
		}
		aside = nil
	}
	if !effective {
		return nil
	}
	scale := guess / whole
	stats.Loss *= scale
	u.stats.Add(stats)
	u.kept = append(u.kept, keptPart{rows, scale})
	return u.optimize(ctx, scale)
}

// compare gives rows to the probe, as long as no optimizer step was made.
func (u *streamedUpdate) compare(ctx context.Context, rows []rl.Row, rollouts []rl.Rollout) error {
	if u.updates+u.skipped > 0 {
		return nil
	}
	start := u.loop.now()
	defer func() { u.computed += u.loop.now().Sub(start) }()
	return u.probe.take(context.WithoutCancel(ctx), u.loop.trainer, rows, rollouts, u.loop.policy.Version)
}

// again makes the further epochs over the parts.
func (u *streamedUpdate) again(ctx context.Context) error {
	for range u.loop.config.Optimizer.Epochs - 1 {
		for _, p := range u.kept {
			stats, err := u.forward(ctx, p.rows)
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

func (u *streamedUpdate) forward(ctx context.Context, rows []rl.Row) (rl.Stats, error) {
	start := u.loop.now()
	u.loop.begun = true
	s, err := u.loop.trainer.ForwardBackward(context.WithoutCancel(ctx), rows, u.loop.config.RL().Objective)
	u.computed += u.loop.now().Sub(start)
	return s, err
}

func (u *streamedUpdate) optimize(ctx context.Context, scale float64) error {
	start := u.loop.now()
	o := u.loop.config.Optimizer.rl(u.step, u.loop.stages.at(u.step))
	o.Scale = scale
	done, err := u.loop.trainer.Step(context.WithoutCancel(ctx), o)
	u.computed += u.loop.now().Sub(start)
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
func (u *streamedUpdate) values(ctx context.Context) (map[string]float64, error) {
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
	values["optim/lr"] = l.config.Optimizer.rate(u.step, l.stages.at(u.step))
	values["time/update"] = u.computed.Seconds()
	values["time/wait_rollouts"] = u.waited.Seconds()
	compared, err := u.probe.values(ctx, l.trainer)
	maps.Copy(values, compared)
	return values, err
}

// outcomes returns those of all groups, in the order of admission.
func (u *streamedUpdate) outcomes() []run.Outcome {
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
