package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"deepswe/agent/cli"
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

// maxLosses is how often in a row a run goes on after losing its trainer.
const maxLosses = 5

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
	best, losses := -1, 0
	for {
		err = in.once(ctx, &r)
		if !errors.Is(err, rl.ErrTrainerLost) || ctx.Err() != nil {
			return r, err
		}
		// Finished rollouts are in the journals, so the steps since the checkpoint are repeated exactly.
		if n := len(r.Points); n > best {
			best, losses = n, 0
		}
		if losses++; losses > maxLosses {
			return r, fmt.Errorf("the trainer was lost %d times without a step in between: %w", losses, err)
		}
		o.World.Log.Warn("the trainer was lost; the run goes on from its last checkpoint", "error", err)
	}
}
