package train

import (
	"context"
	"slices"
	"time"

	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// open starts the stream of training rollouts and its journals.
func (l *loop) open(ctx context.Context, s state) {
	l.journals = &record.Journals{Dir: l.dir, Version: func() int64 { return l.live.current.Load().Version }}
	l.stream = newStream(l.config.Rollouts.MaxStaleness, l.now)
	l.stream.updates, l.stream.version = s.weights(), l.policy.Version
	l.admitted = s.Cursor
	if s.Pending != nil {
		l.admitted = s.Pending.Cursor
	}
	l.progress = &counter{observer: l.observer}
	l.occupancy = newOccupancy(l.config.Rollouts.Workers, l.now)
	runner := l.environment.Runner(part.Train, l.gates.Model.Guard(&l.live))
	version := func() int64 { return l.live.current.Load().Version }
	e := l.engine(runner, version, l.journals, func(e run.Event) {
		l.occupancy.observe(e)
		if ended(e) {
			l.progress.ended()
		}
	})
	l.stream.start(ctx, e)
}

// closeStream ends the stream and closes its journals.
func (l *loop) closeStream() error {
	l.stream.close()
	return l.journals.CloseAll()
}

func ended(e run.Event) bool { return e.Kind == run.Finished || e.Kind == run.Failed }

// play plays a plan of a split with a policy and the given number of workers.
func (l *loop) play(ctx context.Context, s part.Split, p rl.Policy, plan []run.Job, j run.Journal, workers int,
	playing func(done int)) ([]run.Outcome, error) {
	runner := l.environment.Runner(s, l.gates.Model.Guard(stamped(p)))
	done := 0
	e := l.engine(runner, func() int64 { return p.Version }, j, func(e run.Event) {
		if ended(e) {
			done++
			playing(done)
		}
	})
	e.Options.Workers = workers
	return e.Run(ctx, plan)
}

// engine returns an engine with the configuration's settings. Turns that do not say which version sampled them get the
// version with which their rollout began.
func (l *loop) engine(runner run.Runner, version func() int64, j run.Journal, observe func(run.Event)) *run.Engine {
	r := l.config.Rollouts
	tries := r.Retries
	if tries == 0 {
		tries = -1
	}
	failed := &retries{}
	return &run.Engine{
		Journal: j, Log: l.log,
		Runner: run.RunnerFunc(func(ctx context.Context, a run.Job) (run.Result, error) {
			began := version()
			res, err := runner.Run(ctx, a)
			if err != nil {
				failed.count(a, causeOf(ctx, err))
			}
			record.Stamp(res.Turns, began)
			res.Metrics = failed.of(a, res.Metrics)
			return res, err
		}),
		Options: run.Options{
			Workers: r.Workers, Deadline: time.Duration(r.Deadline), Drain: time.Duration(r.Drain), Abandon: l.abandon,
			Retries: tries, MaxFailures: r.MaxFailures,
			Observe: func(e run.Event) {
				if ended(e) {
					failed.forget(e.Job)
				}
				observe(e)
			},
		},
	}
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
		if err := l.journals.Open(step); err != nil {
			return nil, err
		}
		task, err := l.tasks.at(n)
		if err != nil {
			return nil, err
		}
		g := &group{number: n, name: record.GroupName(step, slot)}
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
