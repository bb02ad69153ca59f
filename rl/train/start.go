package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/examples"
	"deepswe/rl/train/modelfiles"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// Options are the settings of a run that do not change what is learned.
type Options struct {
	// Dir is the run's directory.
	Dir string
	// Run is the run's name among those of an ablation; empty for a run by itself.
	Run string
	// Processors is the maximum number of processors that the trainer uses; 0 means all.
	Processors int
	// Program is the name and version for the run's manifest.
	Program string
	// Resume continues the run in Dir. Without it, Dir must not contain a run.
	Resume bool
	// Observer returns the observer for a run's name. If nil, runs are not observed.
	Observer func(run string, c config.Config) Observer
	// Metrics, if not nil, receives the points of every run.
	Metrics *metrics.Prometheus
	// Trackio, if not nil, receives the points of every run, too.
	Trackio *metrics.Trackio
	Log     *slog.Logger
	// Abandon, when closed, ends the drain of an interrupted run early.
	Abandon <-chan struct{}
	// Version is this program's version, for trajectories.
	Version string
	// Outside opens sandboxes and endpoints. It may be nil if the configuration needs none.
	Outside part.Outside
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// OpenDir creates the directory of a run with the configuration, or opens it to resume the run.
func (o Options) OpenDir(c config.Config) (*run.Dir, error) {
	o = o.withDefaults()
	if o.Resume {
		return record.Resume(c, o.Dir)
	}
	return record.Create(c, o.Dir, o.Program, o.Now())
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
	for _, p := range slices.Backward(r.Points) {
		if v, ok := p.Values[name]; ok {
			return v, true
		}
	}
	return 0, false
}

// maxLosses is how often in a row a run goes on after losing its trainer.
const maxLosses = 5

// Start makes one run as the configuration says, and writes its report. If it returns an error, it returns what the run
// has done so far as well.
func Start(ctx context.Context, c config.Config, o Options) (_ Result, err error) {
	o = o.withDefaults()
	r := Result{Run: cmp.Or(o.Run, c.Name), Dir: o.Dir, Seed: c.Seed}
	data, err := check(ctx, c, o)
	if err != nil {
		return r, err
	}
	dir, err := o.OpenDir(c)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	best, losses := -1, 0
	for {
		err = once(ctx, c, o, dir, data, &r)
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
		o.Log.Warn("the trainer was lost; the run goes on from its last checkpoint", "error", err)
	}
}

// check reads what the run is to learn from, before its directory is created. It returns the examples of a run that
// imitates.
func check(ctx context.Context, c config.Config, o Options) (*examples.Set, error) {
	if c.Environment != nil {
		if err := c.Environment.Check(o.Log); err != nil {
			return nil, fmt.Errorf("%s: %w", config.EnvironmentKey, err)
		}
	}
	if c.Objective != config.Imitation {
		return nil, nil
	}
	model := ""
	if c.SFT.Model != "" {
		model, _ = modelfiles.Find(c.SFT.Tokenizer, c.SFT.Model, o.Outside.Getenv) // only conversations need it
	}
	return examples.Read(ctx, c.SFT, model, c.Seed)
}
