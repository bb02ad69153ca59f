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
	if err := l.journals.closeBefore(l.complete(step, after) + 1); err != nil {
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
		rollouts[i] = rolloutOf(o, rl.VersionNumber(l.policy.Version))
	}
	return rollouts
}

// ahead admits the groups that updates up to MaxStaleness after the step may learn from, which is enough for each of
// these updates.
func (l *loop) ahead(step int, at place) error {
	tasks := l.config.Rollouts.Tasks
	limit := min(step+l.config.Rollouts.MaxStaleness, l.config.Steps) * tasks
	_, err := l.admit(at, limit, func(n int) (int, int) { return n/tasks + 1, n % tasks })
	return err
}

// rounds plays the groups of a step alone, and returns them when all are complete: a round of them, and with Refill
// further rounds for as many as had equal rewards.
func (l *loop) rounds(step int, from place) ([]*group, error) {
	var all []*group
	size, want := l.config.Rollouts.Group, l.config.Rollouts.Tasks
	for round := 0; round <= l.config.Rollouts.Refill && want > 0; round++ {
		l.progress.begin(step, want*size)
		groups, err := l.admit(from, l.admitted+want, func(n int) (int, int) { return step, n - from.Cursor })
		if err != nil {
			return nil, err
		}
		for left := len(groups); left > 0; {
			taken, err := l.stream.take(left)
			if err != nil {
				return nil, err
			}
			left -= len(taken)
		}
		all = append(all, groups...)
		want -= differing(outcomesOf(groups), size)
	}
	return all, nil
}

// admit admits the groups with numbers below the limit. slot returns the step that a group is admitted for, and its
// slot there.
func (l *loop) admit(at place, limit int, slot func(number int) (int, int)) ([]*group, error) {
	var groups []*group
	for ; l.admitted < limit; l.admitted++ {
		n := l.admitted
		if slices.Contains(at.Ahead, n) {
			continue
		}
		step, slot := slot(n)
		if err := l.journals.open(step); err != nil {
			return nil, err
		}
		task, err := l.tasks.at(n)
		if err != nil {
			return nil, err
		}
		g := &group{number: n, name: groupName(step, slot)}
		for i := range l.config.Rollouts.Group {
			g.jobs = append(g.jobs, run.Job{Task: task, Group: g.name, Index: i})
		}
		groups = append(groups, g)
	}
	l.stream.admit(groups...)
	return groups, nil
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

// optimized adds the metrics of a batch's optimizer steps.
func optimized(values map[string]float64, stats rl.Stats, norms float64, updates, skipped int) {
	maps.Copy(values, stats.Metrics())
	if updates > 0 {
		values["optim/grad_norm"] = norms / float64(updates)
	}
	values["optim/updates"], values["optim/skipped"] = float64(updates), float64(skipped)
}
