package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"gopkg.in/yaml.v3"

	"deepswe/agent/run"
	"deepswe/rl/metrics"
	"deepswe/rl/report"
	"deepswe/rl/train/config"
	"deepswe/rl/train/examples"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// once trains from the last checkpoint until the run is done or fails, and sets the result's points.
func once(ctx context.Context, c config.Config, o Options, dir *run.Dir, data *examples.Set, r *Result) (err error) {
	l, err := build(ctx, c, o, dir, data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := dir.Note("begin", map[string]int{"after": max(l.from, -1)}); err != nil {
		return err
	}
	err = l.run(ctx)
	end := map[string]string{}
	if err != nil {
		end["error"] = err.Error()
	}
	err = errors.Join(err, dir.Note("end", end), l.recorder.report())
	r.Points = l.recorder.points
	return err
}

// build opens what a configuration names, and makes the values that a run consists of: nothing behind it sees the
// configuration. data is what the run imitates; nil if it plays. The caller closes the loop.
func build(ctx context.Context, c config.Config, o Options, dir *run.Dir, data *examples.Set) (_ *loop, err error) {
	if err := errors.Join(removeTorn(dir.Path()), removeTorn(dir.Path(record.CheckpointsDir))); err != nil {
		return nil, err
	}
	l := &loop{
		site: site{dir: dir, log: o.Log, now: o.Now}, guard: guard{settings: c.Guards}, steps: c.Steps,
		every: c.Checkpoint.Every,
	}
	l.keeper = keeper{site: &l.site, rollouts: c.Rollouts, keep: c.Checkpoint.Keep}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	gates := run.Gates{
		Model: run.NewGate(c.Rollouts.Models), Sandbox: run.NewGate(c.Rollouts.Sandboxes),
		Grading: run.NewGate(cmp.Or(c.Rollouts.Gradings, c.Rollouts.Workers)),
	}
	stages := &stages{list: c.Stages}
	algorithm := c.RL()
	environment, err := openEnvironment(ctx, c, o, part.EnvironmentOptions{
		Seed: c.Seed, Temperature: c.Evaluate.Temperature, Gates: gates, Workers: c.Rollouts.Workers,
		Grades: algorithm.Grades, Limits: stages.limits, Dir: dir, Version: o.Version, Outside: o.Outside,
		Abandon: o.Abandon, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	if environment.Player != nil {
		l.closers = append(l.closers, environment.Close)
	}
	l.trainer, err = c.Trainer.Open(ctx, part.TrainerOptions{
		Seed: c.Seed, Dir: dir.Path(record.CheckpointsDir), Workers: o.Processors, Language: environment.Language,
		Imitates: data != nil, Outside: o.Outside, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.TrainerKey, err)
	}
	l.closers = append(l.closers, l.trainer.Close)
	if data != nil {
		own := *data
		if err := own.Fit(l.trainer, c.SFT); err != nil {
			return nil, err
		}
		m := &imitation{site: &l.site, data: &own, settings: *c.SFT, optimizer: c.Optimizer, seed: c.Seed}
		l.steps, l.begin = m.updates(), m.begin
	} else {
		if err := fits(c, l.trainer); err != nil {
			return nil, err
		}
		p := player{environment, gates, c.Rollouts, o.Log, o.Abandon}
		x := examiner{player: p, site: &l.site, settings: c.Evaluate, steps: c.Steps, maxLength: algorithm.MaxLength}
		l.begin = plan{
			site: &l.site, examiner: x, keeper: &l.keeper, stages: stages, curriculum: c.Curriculum, seed: c.Seed,
			algorithm: algorithm, optimizer: c.Optimizer,
		}.begin
	}
	return l, l.open(c, o)
}

// openEnvironment opens the environment. A run that imitates asks it for vocabulary and prompts only.
func openEnvironment(
	ctx context.Context, c config.Config, o Options, all part.EnvironmentOptions,
) (part.Environment, error) {
	if c.Environment == nil {
		return part.Environment{}, nil
	}
	if c.Objective == config.Imitation {
		all = part.EnvironmentOptions{Seed: c.Seed, Outside: o.Outside, Log: o.Log}
	}
	e, err := c.Environment.Open(ctx, all)
	if err != nil {
		return e, fmt.Errorf("%s: %w", config.EnvironmentKey, err)
	}
	if c.Objective == config.Imitation {
		return part.Environment{Language: e.Language}, e.Close()
	}
	return e, nil
}

// fits refuses contexts that are longer than the sampler's.
func fits(c config.Config, t part.Trainer) error {
	most := t.MaxContext
	if most == 0 {
		return nil
	}
	var errs []error
	check := func(key string, tokens int) {
		if tokens > most {
			errs = append(errs, fmt.Errorf("%s is %d, and the server takes %d tokens; to fix: lower it, or start the server "+
				"with a longer context", key, tokens, most))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Contexts)) {
		check(config.EnvironmentKey+"."+key, c.Contexts[key])
	}
	for i, s := range c.Stages {
		check(fmt.Sprintf("stages[%d].context", i), s.Context)
	}
	return errors.Join(errs...)
}

// open reads the state that the run resumes from, and opens its metrics and its report.
func (l *loop) open(c config.Config, o Options) (err error) {
	if l.state, l.resumed, err = readState(l.dir); err != nil {
		return err
	}
	l.from = math.MinInt // without a checkpoint, the points of a warm start are written again, too
	if l.resumed {
		l.from = l.state.Step
	}
	text, err := c.YAML()
	if err != nil {
		return err
	}
	sinks, err := openSinks(l.dir, l.from, o, cmp.Or(o.Run, c.Name))
	if err != nil {
		return err
	}
	l.closers = append(l.closers, func() error { return l.sink.Close() })
	l.sink = sinks
	if l.history, err = metrics.ReadJSONL(l.dir.Path(record.MetricsFile)); err != nil {
		return err
	}
	if o.Trackio != nil {
		about := tracked(o, l.dir)
		if err := yaml.Unmarshal(text, &about.Config); err != nil {
			return err
		}
		l.sink = append(sinks, o.Trackio.Run(about, l.history))
	}
	l.recorder = &recorder{dir: l.dir, now: o.Now, log: o.Log, points: slices.Clone(l.history), about: report.Run{
		Name: cmp.Or(o.Run, c.Name), Steps: l.steps, Seed: c.Seed, Algorithm: c.Algorithm.Preset, Config: string(text),
	}}
	if c.Objective == config.Imitation {
		l.recorder.about.Algorithm = "supervised fine-tuning"
	}
	if o.Observer != nil {
		c.Steps = l.steps
		l.recorder.next = o.Observer(cmp.Or(o.Run, c.Name), c)
	}
	l.observer = l.recorder
	return nil
}

// tracked identifies a run on a Trackio server.
func tracked(o Options, dir *run.Dir) metrics.TrackioRun {
	created := dir.Manifest.Created.UnixMilli()
	return metrics.TrackioRun{
		Name: cmp.Or(o.Run, filepath.Base(dir.Path())), ID: dir.Manifest.ID + "-" + strconv.FormatInt(created, 36),
	}
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
