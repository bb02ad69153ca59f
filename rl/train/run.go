package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"gopkg.in/yaml.v3"

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

// Start makes one run as the configuration says, and writes its report. If it returns an error, it returns what the run
// has done so far as well. An ablation is many runs: see [Ablate].
func Start(ctx context.Context, c config.Config, o Options) (_ Result, err error) {
	o = o.withDefaults()
	r := Result{Run: cmp.Or(o.Run, c.Name), Dir: o.Dir, Seed: c.Seed}
	if c.Environment != nil {
		if err := c.Environment.Check(o.Log); err != nil {
			return r, fmt.Errorf("%s: %w", config.EnvironmentKey, err)
		}
	}
	var rows *examples.Set
	if c.Objective == config.Imitation {
		model := ""
		if c.SFT.Model != "" {
			model, _ = modelfiles.Find(c.SFT.Tokenizer, c.SFT.Model, o.Outside.Getenv) // only conversations need it
		}
		if rows, err = examples.Read(ctx, c.SFT, model, c.Seed); err != nil {
			return r, err
		}
	}
	dir, err := o.OpenDir(c)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	best, losses := -1, 0
	for {
		r, err = runOnce(ctx, c, o, r, dir, rows)
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

// OpenDir creates the directory of a run with the configuration, or opens it to resume the run.
func (o Options) OpenDir(c config.Config) (*run.Dir, error) {
	o = o.withDefaults()
	if o.Resume {
		return record.Resume(c, o.Dir)
	}
	return record.Create(c, o.Dir, o.Program, o.Now())
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

// maxLosses is how often in a row a run goes on after losing its trainer.
const maxLosses = 5

// runOnce trains from the last checkpoint until the run is done or fails.
func runOnce(
	ctx context.Context, c config.Config, o Options, r Result, dir *run.Dir, rows *examples.Set,
) (_ Result, err error) {
	l, err := newLoop(ctx, c, o, dir, rows)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	s, resumed, err := readState(dir)
	if err != nil {
		return r, err
	}
	after := math.MinInt // without a checkpoint, the points of a warm start are written again, too
	if resumed {
		after = s.Step
	}
	return recorded(l.config, o, r, dir, after, func(sink metrics.Sink, w *recorder) error {
		l.sink, l.observer = sink, w
		return l.run(ctx, s, resumed, w.run.Points)
	})
}

// recorded trains, and writes the run's metrics and report. after is the last step whose metrics are kept; it is below
// 0 for none.
func recorded(
	c config.Config, o Options, r Result, dir *run.Dir, after int, train func(sink metrics.Sink, w *recorder) error,
) (_ Result, err error) {
	sinks, err := openSinks(dir, after, o, r.Run)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sinks.Close()) }()
	if r.Points, err = metrics.ReadJSONL(dir.Path(record.MetricsFile)); err != nil {
		return r, err
	}
	if o.Trackio != nil {
		about, err := tracked(c, o, dir)
		if err != nil {
			return r, err
		}
		sinks = append(sinks, o.Trackio.Run(about, r.Points))
	}
	w := &recorder{run: r, config: c, dir: dir, now: o.Now, log: o.Log}
	if o.Observer != nil {
		w.next = o.Observer(r.Run, c)
	}
	if err := dir.Note("begin", map[string]int{"after": max(after, -1)}); err != nil {
		return r, err
	}
	err = train(sinks, w)
	end := map[string]string{}
	if err != nil {
		end["error"] = err.Error()
	}
	return w.run, errors.Join(err, dir.Note("end", end), w.report())
}

// tracked identifies a run on a Trackio server.
func tracked(c config.Config, o Options, dir *run.Dir) (metrics.TrackioRun, error) {
	text, err := c.YAML()
	if err != nil {
		return metrics.TrackioRun{}, err
	}
	created := dir.Manifest.Created.UnixMilli()
	about := metrics.TrackioRun{Name: o.Run, ID: dir.Manifest.ID + "-" + strconv.FormatInt(created, 36)}
	if o.Run == "" { // a run by itself, whose name is the configuration's
		about.Name = filepath.Base(dir.Path())
	}
	return about, yaml.Unmarshal(text, &about.Config)
}

// openSinks opens the metrics for writing. Points after the given step are removed.
func openSinks(dir *run.Dir, after int, o Options, run string) (metrics.Sinks, error) {
	j, err := metrics.OpenJSONL(dir.Path(record.MetricsFile), after)
	if err != nil {
		return nil, err
	}
	t, err := metrics.OpenTensorBoard(dir.Path(record.TensorBoardDir), max(after, -1), o.Now())
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	sinks := metrics.Sinks{j, t}
	if o.Metrics != nil {
		sinks = append(sinks, o.Metrics.Run(run))
	}
	return sinks, nil
}
