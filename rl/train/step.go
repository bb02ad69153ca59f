package train

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"deepswe/agent/run"
	"deepswe/rl"
)

// order is the order in which tasks are taken: a new shuffle of all of them each time around. It follows from the seed
// and the count of tasks taken, so that a resumed run goes on with the same ones.
type order struct {
	seed  uint64
	tasks []string

	round   int
	shuffle []int
}

const orderStream = 0x6f72646572

// at is the task at a place in the endless sequence.
func (o *order) at(place int) string {
	round := place / len(o.tasks)
	if o.shuffle == nil || round != o.round {
		o.round = round
		o.shuffle = rand.New(rand.NewPCG(o.seed^orderStream, uint64(round))).Perm(len(o.tasks))
	}
	return o.tasks[o.shuffle[place%len(o.tasks)]]
}

// step rolls out, updates and publishes. It returns the metrics and the cursor behind the tasks that it took.
func (l *loop) step(ctx context.Context, step, cursor int) (values map[string]float64, after int, err error) {
	start := l.now()
	outcomes, cursor, err := l.collect(ctx, step, cursor)
	if err != nil {
		return nil, 0, err
	}
	rolled := l.now()
	rollouts := make([]rl.Rollout, len(outcomes))
	for i, o := range outcomes {
		rollouts[i] = rolloutOf(o, rl.VersionNumber(l.policy.Version))
	}
	rows, batch, err := l.config.RL().Rows(rollouts)
	if err != nil {
		return nil, 0, err
	}
	batches := [][]rl.Row{rows}
	if l.config.Optimizer.Minibatches > 1 {
		batches, err = l.minibatches(rollouts)
	} else if batch.Groups.Effective == 0 {
		batches = nil
	}
	if err != nil {
		return nil, 0, err
	}
	values = batch.Metrics(rl.VersionNumber(l.policy.Version))
	means(outcomes, values)
	values["time/rollouts"], values["time/rows"] = rolled.Sub(start).Seconds(), l.now().Sub(rolled).Seconds()
	values["workers/idle"] = idle(outcomes, min(l.config.Rollouts.Workers, len(outcomes)), rolled.Sub(start).Seconds())

	// An update that has begun is finished: half of one could not be saved.
	ctx = context.WithoutCancel(ctx)
	if err := l.update(ctx, step, batches, values); err != nil {
		return nil, 0, err
	}
	published := l.now()
	if l.policy, err = l.trainer.Publish(ctx); err != nil {
		return nil, 0, err
	}
	values["time/publish"] = l.now().Sub(published).Seconds()
	values["policy/version"] = float64(l.policy.Version)
	values["time/step"] = l.now().Sub(start).Seconds()
	return values, cursor, nil
}

// collect plays the groups of a step: a round of them, and with Refill further rounds for as many as had equal rewards.
func (l *loop) collect(ctx context.Context, step, cursor int) ([]run.Outcome, int, error) {
	j, err := openJournal(journalPath(l.dir, step, Train), l.policy.Version)
	if err != nil {
		return nil, 0, err
	}
	var all []run.Outcome
	slot, want := 0, l.config.Rollouts.Tasks
	for round := 0; round <= l.config.Rollouts.Refill && want > 0; round++ {
		var plan []run.Job
		for range want {
			group := fmt.Sprintf("%s.%d", stepName(step), slot)
			for i := range l.config.Rollouts.Group {
				plan = append(plan, run.Job{Task: l.order.at(cursor), Group: group, Index: i})
			}
			slot++
			cursor++
		}
		outcomes, err := l.play(ctx, step, Train, plan, j)
		if err != nil {
			return nil, 0, errors.Join(err, j.close())
		}
		all = append(all, outcomes...)
		want -= differing(outcomes, l.config.Rollouts.Group)
	}
	return all, cursor, j.close()
}

// differing counts the groups of a plan with more than one reward.
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

// play runs a plan with the settings of the configuration.
func (l *loop) play(ctx context.Context, step int, s Split, plan []run.Job, j run.Journal) ([]run.Outcome, error) {
	r := l.config.Rollouts
	runner := l.environment.Runner(s, l.gates.Model.Guard(stamped(l.policy)))
	version := l.policy.Version
	done := 0
	retries := r.Retries
	if retries == 0 {
		retries = -1
	}
	e := run.Engine{
		Journal: j, Log: l.log,
		Runner: run.RunnerFunc(func(ctx context.Context, a run.Job) (run.Result, error) {
			res, err := runner.Run(ctx, a)
			stamp(res.Turns, version)
			return res, err
		}),
		Options: run.Options{
			Workers: r.Workers, Deadline: time.Duration(r.Deadline), Drain: time.Duration(r.Drain), Abandon: l.abandon,
			Retries: retries, MaxFailures: r.MaxFailures,
			Observe: func(e run.Event) {
				if e.Kind == run.Finished || e.Kind == run.Failed {
					done++
					l.observer.Playing(step, s, done, len(plan))
				}
			},
		},
	}
	return e.Run(ctx, plan)
}

// update makes the optimizer steps of a batch: one for each part in each epoch.
func (l *loop) update(ctx context.Context, step int, batches [][]rl.Row, values map[string]float64) error {
	o := l.config.Optimizer
	start := l.now()
	rate := o.LearningRate
	if step < o.Warmup {
		rate *= float64(step) / float64(o.Warmup)
	}
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
			done, err := l.trainer.Step(ctx, rl.Optimizer{
				LearningRate: rate, Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon,
				WeightDecay: o.WeightDecay, ClipNorm: o.ClipNorm,
			})
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
	maps.Copy(values, stats.Metrics())
	if updates > 0 {
		values["optim/grad_norm"] = norms / float64(updates)
	}
	values["optim/lr"], values["optim/updates"], values["optim/skipped"] = rate, float64(updates), float64(skipped)
	values["time/update"] = l.now().Sub(start).Seconds()
	return nil
}

// minibatches are the rows of each minibatch. Shares of the loss are worked out within it, since each is an optimizer
// step of its own. One without an advantage other than zero is left out: Adam would change the weights by its momentum
// alone.
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

// means averages what engine and environment measured over the rollouts that have a reward. A name of the environment
// that is not a path is put below rollout/.
func means(outcomes []run.Outcome, values map[string]float64) {
	sums, counts := map[string]float64{}, map[string]float64{}
	add := func(name string, v float64) {
		sums[name] += v
		counts[name]++
	}
	for _, o := range outcomes {
		if o.Reward == nil {
			continue
		}
		t := o.Times
		add("time/model", t.Model)
		add("time/environment", t.Environment)
		add("time/reward", t.Reward)
		add("time/queue", t.Queue)
		add("time/rollout", t.Total)
		for name, v := range o.Metrics {
			if !strings.Contains(name, "/") {
				name = "rollout/" + name
			}
			add(name, v)
		}
	}
	for name, sum := range sums {
		values[name] = sum / counts[name]
	}
}

// idle is the fraction of the workers' time without a rollout. Replayed rollouts took none of it.
func idle(outcomes []run.Outcome, workers int, wall float64) float64 {
	busy := 0.0
	for _, o := range outcomes {
		if !o.Replayed {
			busy += o.Times.Total
		}
	}
	if total := wall * float64(workers); total > 0 {
		return max(0, 1-busy/total)
	}
	return 0
}
