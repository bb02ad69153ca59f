package train

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// player plays rollouts of an environment.
type player struct {
	environment part.Environment
	calls       *run.Gate // of the model
	rollouts    config.Rollouts
	log         *slog.Logger
	// abandon, when closed, ends the drain of a stopped run early.
	abandon <-chan struct{}
}

func ended(e run.Event) bool { return e.Kind == run.Finished || e.Kind == run.Failed }

// play plays a plan of a split with a policy and the given number of workers.
func (p player) play(ctx context.Context, s part.Split, policy rl.Policy, plan []run.Job, j run.Journal, workers int,
	playing func(done int)) ([]run.Outcome, error) {
	runner := p.environment.Runner(s, p.calls.Guard(stamped(policy)))
	done := 0
	e := p.engine(runner, func() int64 { return policy.Version }, j, func(e run.Event) {
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
func (p player) engine(runner run.Runner, version func() int64, j run.Journal, observe func(run.Event)) *run.Engine {
	r := p.rollouts
	tries := cmp.Or(r.Retries, -1)
	var mu sync.Mutex
	failed := map[run.Job]map[string]float64{} // the failed tries of the attempts under way, by cause
	return &run.Engine{
		Journal: j, Log: p.log,
		Runner: run.RunnerFunc(func(ctx context.Context, a run.Job) (run.Result, error) {
			began := version()
			res, err := runner.Run(ctx, a)
			record.Stamp(res.Turns, began)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && failed[a] == nil {
				failed[a] = map[string]float64{}
			}
			if err != nil {
				failed[a][retryPrefix+causeOf(ctx, err)]++
			}
			if tries := maps.Clone(failed[a]); tries != nil {
				maps.Copy(tries, res.Metrics)
				res.Metrics = tries
			}
			return res, err
		}),
		Options: run.Options{
			Workers: r.Workers, Deadline: time.Duration(r.Deadline), Drain: time.Duration(r.Drain), Abandon: p.abandon,
			Retries: tries, MaxFailures: r.MaxFailures,
			Observe: func(e run.Event) {
				if ended(e) {
					mu.Lock()
					delete(failed, e.Job)
					mu.Unlock()
				}
				observe(e)
			},
		},
	}
}
