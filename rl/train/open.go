package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"deepswe/agent/run"
	"deepswe/rl/train/config"
	"deepswe/rl/train/examples"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// newLoop opens the environment and the trainer. rows are what the run imitates; nil if it plays.
func newLoop(ctx context.Context, c config.Config, o Options, dir *run.Dir, rows *examples.Set) (_ *loop, err error) {
	if err := errors.Join(removeTorn(dir.Path()), removeTorn(dir.Path(record.CheckpointsDir))); err != nil {
		return nil, err
	}
	l := &loop{
		config: c, stages: &stages{list: c.Stages}, dir: dir, log: o.Log, abandon: o.Abandon, now: o.Now,
		gates: run.Gates{
			Model: run.NewGate(c.Rollouts.Models), Sandbox: run.NewGate(c.Rollouts.Sandboxes),
			Grading: run.NewGate(cmp.Or(c.Rollouts.Gradings, c.Rollouts.Workers)),
		},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	language, err := l.openEnvironment(ctx, o, rows != nil)
	if err != nil {
		return nil, err
	}
	trainer, err := c.Trainer.Open(ctx, part.TrainerOptions{
		Seed: c.Seed, Dir: dir.Path(record.CheckpointsDir), Workers: o.Processors, Language: language, Imitates: rows != nil,
		Outside: o.Outside, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.TrainerKey, err)
	}
	l.trainer = trainer
	if rows == nil {
		l.course = practice{l}
		return l, fits(&c, trainer)
	}
	own := *rows
	m := &imitation{l, &own}
	if err := own.Fit(trainer, c.SFT); err != nil {
		return nil, err
	}
	l.course, l.config.Steps = m, m.updates()
	return l, nil
}

// openEnvironment opens the environment. If the run imitates, it asks it for vocabulary and prompts only.
func (l *loop) openEnvironment(ctx context.Context, o Options, imitates bool) (part.Language, error) {
	c := &l.config
	if imitates && c.Environment == nil {
		return nil, nil
	}
	options := part.EnvironmentOptions{Seed: c.Seed, Outside: o.Outside, Log: o.Log}
	if !imitates {
		options.Temperature, options.Gates, options.Workers = c.Evaluate.Temperature, l.gates, c.Rollouts.Workers
		algorithm := c.RL()
		options.Grades, options.Limits = algorithm.Grades, l.stages.limits
		options.Dir, options.Version, options.Abandon = l.dir, o.Version, o.Abandon
	}
	environment, err := c.Environment.Open(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.EnvironmentKey, err)
	}
	if imitates {
		return environment.Language, environment.Close()
	}
	l.environment = environment
	return environment.Language, nil
}

// close closes what newLoop has opened.
func (l *loop) close() error {
	var errs []error
	if l.trainer.Trainer != nil {
		errs = append(errs, l.trainer.Close())
	}
	if l.environment.Player != nil {
		errs = append(errs, l.environment.Close())
	}
	return errors.Join(errs...)
}

// fits refuses contexts that are longer than the sampler's.
func fits(c *config.Config, t part.Trainer) error {
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
