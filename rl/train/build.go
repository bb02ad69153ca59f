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
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"

	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/metrics"
	"deepswe/rl/report"
	"deepswe/rl/train/config"
	"deepswe/rl/train/examples"
	"deepswe/rl/train/modelfiles"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// inputs is what a run learns from, and where it is kept. They stay open when the trainer is lost.
type inputs struct {
	config      config.Config
	options     Options
	environment part.Environment
	stages      *stages
	prefixes    *prefixes // nil if every rollout begins with its task
	// data is what the run imitates; nil if it plays.
	data *examples.Set
	dir  *run.Dir
	// text is the complete configuration in YAML.
	text string
}

// open opens what a run learns from, and only then its directory, so that a run that cannot learn leaves none behind.
// The caller closes the inputs, also after an error.
func open(ctx context.Context, c config.Config, o Options) (in *inputs, err error) {
	in = &inputs{config: c, options: o, stages: &stages{config: &c}}
	if err := in.openEnvironment(ctx); err != nil {
		return in, fmt.Errorf("%s: %w", config.EnvironmentKey, err)
	}
	if c.Objective == config.Imitation {
		model := ""
		if c.SFT.Model != "" {
			model, _ = modelfiles.Find(c.SFT.Tokenizer, c.SFT.Model, o.World.Getenv) // only conversations need it
		}
		if in.data, err = examples.Read(ctx, c.SFT, model, c.Seed); err != nil {
			return in, err
		}
	}
	in.dir, in.text, err = o.OpenDir(c)
	if in.stages.prefixes() {
		in.prefixes = &prefixes{dir: in.dir, write: in.environment.Beginning, byGroup: map[string]*prefix{}}
	}
	return in, err
}

// OpenDir creates the directory of a run with the configuration, or opens it to resume the run. It returns the complete
// configuration in YAML as well.
func (o Options) OpenDir(c config.Config) (*run.Dir, string, error) {
	o = o.withDefaults()
	if o.Resume {
		return record.Resume(c, o.Dir)
	}
	return record.Create(c, o.Dir, o.World.Program(), o.Now())
}

// openEnvironment opens the environment. A run that imitates asks it for vocabulary and prompts only.
func (in *inputs) openEnvironment(ctx context.Context) (err error) {
	c := in.config
	if c.Environment == nil {
		return nil
	}
	r := c.Rollouts
	o := part.EnvironmentOptions{
		Seed: c.Seed, Temperature: c.Evaluate.Temperature, Workers: r.Workers,
		Gates:  run.Gates{Sandbox: run.NewGate(r.Sandboxes), Grading: run.NewGate(cmp.Or(r.Gradings, r.Workers))},
		Grades: in.stages.grades, Limits: in.stages.limits, World: in.options.World,
	}
	if in.stages.prefixes() {
		o.Prefix = func(j run.Job) part.Prefix { return in.prefixes.of(j) } // in.prefixes is set before a rollout is played
	}
	if in.environment, err = c.Environment.Open(ctx, o); err != nil {
		return err
	}
	if c.Objective == config.Imitation {
		err = in.closeEnvironment()
		in.environment = part.Environment{Language: in.environment.Language}
	}
	return err
}

func (in *inputs) closeEnvironment() error {
	if in.environment.Close == nil {
		return nil
	}
	return in.environment.Close()
}

func (in *inputs) close() error {
	err := in.closeEnvironment()
	if in.dir != nil {
		err = errors.Join(err, in.dir.Close())
	}
	return err
}

// once trains from the last checkpoint until the run is done or fails, and sets the result's points.
func (in *inputs) once(ctx context.Context, r *Result) (err error) {
	l, err := in.build(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := in.dir.Note("begin", map[string]int{"after": max(l.from, -1)}); err != nil {
		return err
	}
	err = interrupted(ctx, l.run(ctx))
	l.ended = err
	end := map[string]string{}
	if err != nil {
		end["error"] = err.Error()
	}
	err = errors.Join(err, in.dir.Note("end", end), l.recorder.report())
	r.Points = l.recorder.points
	return err
}

// build opens the trainer, and makes the values that a run consists of: what follows does not see the configuration.
// The caller closes the loop.
func (in *inputs) build(ctx context.Context) (_ *loop, err error) {
	c, o := in.config, in.options
	if err := errors.Join(removeTorn(in.dir.Path()), removeTorn(in.dir.Path(record.CheckpointsDir))); err != nil {
		return nil, err
	}
	l := &loop{
		site:  site{dir: in.dir, log: o.World.Log, now: o.Now},
		guard: guard{settings: c.Guards}, steps: c.Steps, every: c.Checkpoint.Every,
	}
	var watched func() error
	l.stopping, watched = newStopping(ctx, time.Duration(c.Rollouts.Drain), o.World.Abandon)
	l.closers = append(l.closers, watched)
	l.keeper = keeper{site: &l.site, rollouts: c.Rollouts, stages: in.stages, keep: c.Checkpoint.Keep}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	l.trainer, err = c.Trainer.Open(ctx, part.TrainerOptions{
		Seed: c.Seed, Dir: in.dir.Path(record.CheckpointsDir), Workers: o.Processors, Language: in.environment.Language,
		Calls: c.Rollouts.Models, Imitates: in.data != nil, World: o.World,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.TrainerKey, err)
	}
	l.closers = append(l.closers, l.trainer.Close)
	l.guard.pretrained = l.trainer.Pretrained && c.RL().Objective.Entropy == 0
	if in.data != nil {
		own := *in.data
		if err := own.Fit(l.trainer, c.SFT); err != nil {
			return nil, err
		}
		m := &imitation{site: &l.site, data: &own, settings: *c.SFT, optimizer: c.Optimizer, seed: c.Seed}
		l.steps, l.beginCourse = m.updates(), m.beginCourse
		return l, in.watch(l)
	}
	if err := fits(c, l.trainer); err != nil {
		return nil, err
	}
	if text := expertsWarning(l.trainer, c.RL().Objective); text != "" {
		o.World.Log.Warn(text, "experts", l.trainer.Experts)
	}
	p := player{in.environment, modelGate(c.Rollouts, l.trainer), c.Rollouts, o.World.Log, o.World.Abandon}
	taught, err := openTeacher(c.Teacher, o.World)
	if err != nil {
		return nil, err
	}
	x := examiner{player: p, site: &l.site, settings: c.Evaluate, steps: c.Steps, maxLength: c.Algorithm.MaxLength}
	l.beginCourse = plan{
		site: &l.site, examiner: x, keeper: &l.keeper, stages: in.stages, prefixes: in.prefixes, teacher: taught,
		seed: c.Seed,
	}.beginCourse
	return l, in.watch(l)
}

// modelGate limits the calls to those that the servers which sample have room for.
func modelGate(r config.Rollouts, t part.Trainer) *run.Gate {
	if r.Models == 0 || t.Samplers == nil {
		return run.NewGate(r.Models)
	}
	return run.NewVaryingGate(func() int { return r.Models * t.Samplers() })
}

// expertsWarning returns a warning for a mixture of experts whose sampler nothing corrects for: no trainer here can be
// told which experts the sampler chose.
func expertsWarning(t part.Trainer, o rl.Objective) string {
	if t.Experts < 2 || o.Corrections != (rl.Corrections{}) {
		return ""
	}
	return "the model is a mixture of experts: sampler and trainer choose them separately, and their log-probabilities " +
		"part by more than those of dense models; watch mismatch/kl_k3; to fix: correct for it in algorithm.set, with " +
		"decoupled=true, corrections.token_min=0.5, corrections.token_max=5 and corrections.truncate_token=5"
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

// watch reads the state that the run resumes from, and opens its metrics and its report.
func (in *inputs) watch(l *loop) (err error) {
	if l.state, l.resumed, err = readState(l.dir); err != nil {
		return err
	}
	l.from = math.MinInt // without a checkpoint, the points of a warm start are written again, too
	if l.resumed {
		l.from = l.state.Step
	}
	c, o := in.config, in.options
	name := cmp.Or(o.Run, c.Name)
	path := l.dir.Path(record.MetricsFile)
	if l.points, err = metrics.OpenJSONL(path, l.from); err != nil {
		return err
	}
	l.closers = append(l.closers, l.points.Close)
	if l.history, err = metrics.ReadJSONL(path); err != nil {
		return err
	}
	about, err := in.about()
	if err != nil {
		return err
	}
	for _, t := range append([]metrics.Target{metrics.TensorBoard(l.dir.Path(record.TensorBoardDir))}, o.Metrics...) {
		l.feeds = append(l.feeds, metrics.NewFeed(t, about, l.history, o.World.Log))
	}
	l.closers = append(l.closers, l.closeFeeds)
	l.recorder = &recorder{dir: l.dir, now: o.Now, log: o.World.Log, points: slices.Clone(l.history), about: report.Run{
		Name: name, Steps: l.steps, Seed: c.Seed, Algorithm: c.Algorithm.Preset, Config: in.text,
	}}
	if c.Objective == config.Imitation {
		l.recorder.about.Algorithm = "supervised fine-tuning"
	}
	if o.Observer != nil {
		l.recorder.next = o.Observer(name, l.steps)
	}
	l.observer = l.recorder
	return nil
}

// about identifies the run in its metrics.
func (in *inputs) about() (metrics.Run, error) {
	m := in.dir.Manifest
	r := metrics.Run{
		// The runs of an ablation are those of one project.
		Project: strings.TrimSuffix(in.config.Name, " "+in.options.Run),
		Name:    cmp.Or(in.options.Run, filepath.Base(in.dir.Path())),
		Label:   cmp.Or(in.options.Run, in.config.Name),
		ID:      m.ID + "-" + strconv.FormatInt(m.Created.UnixMilli(), 36),
		Created: m.Created, Begun: in.options.Now(),
	}
	return r, yaml.Unmarshal([]byte(in.text), &r.Config)
}

// closeFeeds tells all at once that the run has ended, so that several that fail take as long as one.
func (l *loop) closeFeeds() error {
	var closing sync.WaitGroup
	for _, f := range l.feeds {
		closing.Go(func() { f.Close(l.ended) })
	}
	closing.Wait()
	return nil
}
