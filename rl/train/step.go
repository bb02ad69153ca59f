package train

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"deepswe/agent/run"
	"deepswe/rl"
)

// order is the sequence of tasks: all of them, shuffled anew for each pass. It depends on the seed and the number of
// tasks taken only, so a resumed run continues it.
type order struct {
	seed  uint64
	tasks []string

	round   int
	shuffle []int
}

const orderStream = 0x6f72646572

// at returns the task at a position of the endless sequence.
func (o *order) at(place int) string {
	round := place / len(o.tasks)
	if o.shuffle == nil || round != o.round {
		o.round = round
		o.shuffle = rand.New(rand.NewPCG(o.seed^orderStream, uint64(round))).Perm(len(o.tasks))
	}
	return o.tasks[o.shuffle[place%len(o.tasks)]]
}

// step rolls out, updates and publishes. It returns the metrics and the position after the tasks that it took.
func (l *loop) step(ctx context.Context, step int, from place) (values map[string]float64, after place, err error) {
	if l.config.Rollouts.MaxStaleness > 0 {
		return l.streamed(ctx, step, from)
	}
	start := l.now()
	outcomes, after, err := l.collect(step, from)
	if err != nil {
		return nil, from, err
	}
	rolled := l.now()
	rollouts := l.rollouts(outcomes)
	rows, batch, err := l.config.RL().Rows(rollouts)
	if err != nil {
		return nil, from, err
	}
	batches := [][]rl.Row{rows}
	if l.config.Optimizer.Minibatches > 1 {
		batches, err = l.minibatches(rollouts)
	} else if batch.Groups.Effective == 0 {
		batches = nil
	}
	if err != nil {
		return nil, from, err
	}
	values = batch.Metrics(rl.VersionNumber(l.policy.Version))
	describe(values, outcomes, l.source)
	stuck(values, rollouts, l.config.Rollouts.Group)
	values["time/rollouts"], values["time/rows"] = rolled.Sub(start).Seconds(), l.now().Sub(rolled).Seconds()
	values["time/wait_rollouts"] = values["time/rollouts"]

	// An update that has begun is finished, because half of one could not be saved.
	updating := context.WithoutCancel(ctx)
	p := &probe{}
	if len(batches) > 0 {
		if err := p.take(updating, l.trainer, batches[0], rollouts, l.policy.Version); err != nil {
			return nil, from, err
		}
	}
	if err := l.update(updating, step, batches, values); err != nil {
		return nil, from, err
	}
	compared, err := p.values(updating, l.trainer)
	if err != nil {
		return nil, from, err
	}
	maps.Copy(values, compared)
	if err := l.finish(ctx, start, values); err != nil {
		return nil, from, err
	}
	return values, after, l.learned(step, outcomes, values)
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
	if t, ok := l.trainer.(Gauged); ok {
		maps.Copy(values, t.Gauges())
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
		rollouts[i] = rolloutOf(o, rl.VersionNumber(l.policy.Version))
	}
	return rollouts
}

// collect plays the groups of a step: a round of them, and with Refill further rounds for as many as had equal rewards.
func (l *loop) collect(step int, from place) ([]run.Outcome, place, error) {
	if err := l.journals.open(step); err != nil {
		return nil, from, err
	}
	var all []run.Outcome
	slot, want := 0, l.config.Rollouts.Tasks
	for round := 0; round <= l.config.Rollouts.Refill && want > 0; round++ {
		groups := make([]*group, want)
		for i := range groups {
			var err error
			if groups[i], err = l.group(step, slot, from.Cursor); err != nil {
				return nil, from, err
			}
			slot++
			from.Cursor++
		}
		l.progress.begin(step, len(groups)*l.config.Rollouts.Group)
		l.stream.admit(groups...)
		outcomes, err := l.gather(groups)
		if err != nil {
			return nil, from, err
		}
		all = append(all, outcomes...)
		want -= differing(outcomes, l.config.Rollouts.Group)
	}
	return all, from, l.journals.close(step)
}

// gather waits for all of the groups, and returns their outcomes in order.
func (l *loop) gather(groups []*group) ([]run.Outcome, error) {
	for left := len(groups); left > 0; {
		taken, err := l.stream.take(left)
		if err != nil {
			return nil, err
		}
		left -= len(taken)
	}
	return outcomesOf(groups), nil
}

// group returns the group that takes task number of the sequence, for a slot of a step.
func (l *loop) group(step, slot, number int) (*group, error) {
	task, err := l.tasks.at(number)
	g := &group{number: number, name: groupName(step, slot)}
	for i := range l.config.Rollouts.Group {
		g.jobs = append(g.jobs, run.Job{Task: task, Group: g.name, Index: i})
	}
	return g, err
}

// differing counts the groups whose rewards are not all equal.
func differing(outcomes []run.Outcome, size int) int {
	n := 0
	for group := range slices.Chunk(outcomes, size) {
		seen := map[float64]bool{}
		for _, o := range group {
			if r := o.Reward; r != nil {
				seen[*r] = true
			}
		}
		if len(seen) > 1 {
			n++
		}
	}
	return n
}

// update makes the optimizer steps of a batch: one for each part in each epoch.
func (l *loop) update(ctx context.Context, step int, batches [][]rl.Row, values map[string]float64) error {
	o := l.config.Optimizer
	start := l.now()
	stage := l.stages.at(step)
	rate := o.rate(step, stage)
	var stats rl.Stats
	var norms float64
	updates, skipped := 0, 0
	for range o.Epochs {
		for _, rows := range batches {
			s, err := l.trainer.ForwardBackward(ctx, rows, l.config.RL().Objective)
			if err != nil {
				return err
			}
			stats.Add(s)
			done, err := l.trainer.Step(ctx, o.rl(step, stage))
			if err != nil {
				return err
			}
			if done.Skipped {
				skipped++
				continue
			}
			updates++
			norms += done.GradientNorm
		}
	}
	optimized(values, stats, norms, updates, skipped)
	values["optim/lr"], values["time/update"] = rate, l.now().Sub(start).Seconds()
	return nil
}

// optimized adds the metrics of a batch's optimizer steps.
func optimized(values map[string]float64, stats rl.Stats, norms float64, updates, skipped int) {
	maps.Copy(values, stats.Metrics())
	if updates > 0 {
		values["optim/grad_norm"] = norms / float64(updates)
	}
	values["optim/updates"], values["optim/skipped"] = float64(updates), float64(skipped)
}

// minibatches returns the rows of each minibatch. Loss weights are normalised within a minibatch, since each is an
// optimizer step of its own. A minibatch whose advantages are all zero is left out: Adam would change the weights by
// its momentum alone.
func (l *loop) minibatches(rollouts []rl.Rollout) ([][]rl.Row, error) {
	var batches [][]rl.Row
	groups := len(rollouts) / l.config.Rollouts.Group
	n := min(l.config.Optimizer.Minibatches, groups)
	for k := range n {
		from, to := k*groups/n*l.config.Rollouts.Group, (k+1)*groups/n*l.config.Rollouts.Group
		rows, batch, err := l.config.RL().Rows(rollouts[from:to])
		if err != nil {
			return nil, err
		}
		if batch.Groups.Effective > 0 {
			batches = append(batches, rows)
		}
	}
	return batches, nil
}
