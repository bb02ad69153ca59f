package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/rl"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
)

// Options are the settings of a run that do not change what is learned.
type Options struct {
	// Dir is the run's directory.
	Dir string
	// Run is the run's name among those of an ablation; empty for a run by itself.
	Run string
	// Processors is the maximum number of processors that the trainer uses; 0 means all.
	Processors int
	// Resume continues the run in Dir. Without it, Dir must not contain a run.
	Resume bool
	// Observer returns the observer for a run's name and number of steps. If nil, runs are not observed.
	Observer func(run string, steps int) Observer
	// Metrics receive the points of every run.
	Metrics []metrics.Target
	// World opens sandboxes and endpoints. The zero World has none of them, and no environment variables.
	World cli.World
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.World.Getenv == nil {
		o.World.Getenv = func(string) string { return "" }
	}
	o.World.Log = o.World.Logger()
	return o
}

// Result is the outcome of a run.
type Result struct {
	// Run is the name of the run, Dir its directory.
	Run string
	Dir string
	// Variant and Seed identify a run of an ablation.
	Variant string
	Seed    uint64
	Points  []metrics.Point
}

// Final returns the last value of a metric, and whether there is one.
func (r Result) Final(name string) (float64, bool) {
	return metrics.Last(r.Points, name)
}

// Start makes one run as the configuration says, and writes its report. If it returns an error, it returns what the run
// has done so far as well.
func Start(ctx context.Context, c config.Config, o Options) (_ Result, err error) {
	o = o.withDefaults()
	r := Result{Run: cmp.Or(o.Run, c.Name), Dir: o.Dir, Seed: c.Seed}
	in, err := open(ctx, c, o)
	defer func() { err = interrupted(ctx, errors.Join(err, in.close())) }()
	if err != nil {
		return r, err
	}
	best, lost := -1, lostTrainer{}
	for {
		err = in.once(ctx, &r)
		if !errors.Is(err, rl.ErrTrainerLost) || ctx.Err() != nil {
			return r, err
		}
		// Finished rollouts are in the journals, so the steps since the checkpoint are repeated exactly.
		if n := len(r.Points); n > best {
			best, lost = n, lostTrainer{}
		}
		if lost.add(o.Now()) {
			return r, fmt.Errorf("the trainer was lost %d times without a step in between: %w", lost.times, err)
		}
		o.World.Log.Warn("the trainer was lost; the run goes on from its last checkpoint", "error", err)
		if err := env.Sleep(ctx, lost.pause()); err != nil {
			return r, err
		}
	}
}

// A run goes on after losing its trainer until it has lost it more than maxLosses times in a row, over lossPatience or
// longer: a server that is restarted may fail several tries in a row, and a broken one fails them all.
const (
	maxLosses    = 5
	lossPatience = 10 * time.Minute
)

// lostTrainer is how often a trainer was lost since the last step.
type lostTrainer struct {
	times int
	first time.Time
}

// add counts a loss, and reports whether it is one too many.
func (l *lostTrainer) add(now time.Time) bool {
	if l.times == 0 {
		l.first = now
	}
	l.times++
	return l.times > maxLosses && now.Sub(l.first) >= lossPatience
}

// pause is how long to wait before the next try: nothing after the first loss, at most a minute later.
func (l *lostTrainer) pause() time.Duration {
	if l.times < 2 {
		return 0
	}
	return min(time.Second<<min(l.times-2, 6), time.Minute)
}
