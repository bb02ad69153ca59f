package coding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/agent/prompt"
	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/dataset"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/tools"
	"deepswe/verify"
	"deepswe/verify/swe"
)

// turnsOf is the model of one rollout. Each turn has its own seed: with a common one, replies to similar prompts would
// be sampled with the same random numbers.
type turnsOf struct {
	agent.Model
	rollout string
}

func (n turnsOf) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	r.Rollout = n.rollout
	if seed := r.Sampling.Seed; seed != nil {
		turn := int64(0)
		for _, m := range r.Messages {
			if m.Role == agent.RoleAssistant {
				turn++
			}
		}
		r.Sampling.Seed = new((*seed + turn) & math.MaxInt64)
	}
	return n.Model.Complete(ctx, r)
}

// Settings is the configuration of the environment "swe": the coding agent, played as by deepswe eval.
type Settings struct {
	// Train, Validation and Suites select tasks. If Validation names no file, the share Share of the training tasks is
	// used for validation instead.
	Train      Tasks   `yaml:"train"`
	Validation Suite   `yaml:"validation"`
	Share      float64 `yaml:"validation_share" most:"0.9"`
	Suites     []Suite `yaml:"suites"`
	// Census is how the soundness of training tasks is checked: check, off, or the path of a census.json from deepswe
	// eval --census.
	Census string `yaml:"census"`
	// CensusMutants is the number of wrong solutions of each sound task by which the check measures its tests.
	CensusMutants int `yaml:"census_mutants" least:"0"`
	// Canary is whether rewards are confirmed by tests that must fail: on, off, or by one kind of them only.
	Canary string `yaml:"canary"`
	// Evidence is the weakest evidence of a reward, without which a rollout has none: outside, paired,
	// outright, or none.
	Evidence string `yaml:"evidence"`
	// Odds are the odds that such evidence must have against a guess of which tests were made wrong, if up to 8 runs of
	// the tests can reach them.
	Odds float64 `yaml:"odds"`

	// Agent is the agent that works, as for --agent of eval, and AgentSetup installs what a command line starts; empty is
	// deepswe's own.
	Agent      string `yaml:"agent"`
	AgentSetup string `yaml:"agent_setup"`

	PromptPack string `yaml:"prompt_pack"`
	Format     string `yaml:"format"`
	MaxSteps   int    `yaml:"max_steps" least:"1"`
	Context    int    `yaml:"context" least:"1"`
	// ReplyTokens is the maximum length of a reply; 0 means the rest of the context.
	ReplyTokens    int             `yaml:"reply_tokens" least:"0"`
	Timeout        config.Duration `yaml:"timeout"`
	CommandTimeout config.Duration `yaml:"command_timeout"`
	// GradeTimeout limits the tests of training rollouts. Validation uses the limit of an evaluation.
	GradeTimeout config.Duration `yaml:"grade_timeout"`

	Sandbox cli.SandboxFlags `yaml:"sandbox"`
}

// NewSettings returns the defaults.
func NewSettings() *Settings {
	return &Settings{
		Census: censusCheck, CensusMutants: swe.DefaultMutants, Canary: canaryOn,
		Evidence: string(verify.PairedEvidence), Odds: verify.DefaultOdds, Format: trajectory.FormatXML, MaxSteps: 50,
		Context: 32768, Timeout: config.Duration(2 * time.Hour), CommandTimeout: config.Duration(90 * time.Second),
		GradeTimeout: config.Duration(300 * time.Second), Sandbox: cli.SandboxFlags{Env: cli.EnvAuto},
	}
}

// Complete makes paths absolute, because a run may be resumed from another directory, and sets the maximum length of a
// row to the context.
func (s *Settings) Complete(c *config.Config) error {
	if c.Algorithm.MaxLength == 0 {
		c.Algorithm.MaxLength = max(s.Context, c.Longest(func(g config.Stage) int { return g.Context }))
	}
	paths := []*string{
		&s.Train.Path, &s.Train.ExcludeReposOf, &s.Validation.Path, &s.Validation.ExcludeReposOf,
	}
	for i := range s.Suites {
		paths = append(paths, &s.Suites[i].Path, &s.Suites[i].ExcludeReposOf)
	}
	if !prompt.Named(s.PromptPack) {
		paths = append(paths, &s.PromptPack)
	}
	if s.Census != censusCheck && s.Census != censusOff {
		paths = append(paths, &s.Census)
	}
	if s.Sandbox.File != "" {
		paths = append(paths, &s.Sandbox.File)
	}
	paths = slices.DeleteFunc(paths, func(p *string) bool { return dataset.Bundled(*p) })
	if err := config.Absolute(paths...); err != nil {
		return err
	}
	own := s.agent()
	c.Contexts, c.Replays = s.contexts(), own.Own()
	return s.validate(c)
}

func (s *Settings) validate(c *config.Config) error {
	var errs []error
	player := s.agent()
	if err := player.Check(); err != nil {
		errs = append(errs, fmt.Errorf("agent: %w", err))
	}
	if s.Train.Path == "" {
		errs = append(errs, errors.New("train.path is missing: want a dataset, as for deepswe eval --tasks"))
	}
	if s.Validation.Path != "" && s.Share > 0 {
		errs = append(errs, errors.New("validation.path and validation_share are both given: want one of them"))
	}
	if s.Validation.Path == "" && s.Share == 0 && len(s.Suites) == 0 && c.Evaluate.Every > 0 {
		errs = append(errs, errors.New("there is nothing to validate on: want validation.path, validation_share, suites, or "+
			"evaluate.every: 0"))
	}
	names := map[string]bool{"": true, string(part.Train): true, string(part.Validation): true}
	for i, suite := range s.Suites {
		if names[suite.Name] || !suiteName.MatchString(suite.Name) {
			errs = append(errs, fmt.Errorf("suites[%d].name is %q: want a name of its own, of small letters, digits, - and _", i,
				suite.Name))
		}
		names[suite.Name] = true
		if suite.Path == "" {
			errs = append(errs, fmt.Errorf("suites[%d].path is missing: want a dataset", i))
		}
		errs = append(errs, suite.validate(fmt.Sprintf("suites[%d]", i)))
	}
	if s.Validation.Name != "" {
		errs = append(errs, errors.New("validation.name: only suites have names"))
	}
	if _, ok := agent.FormatNamed(s.Format); !ok {
		errs = append(errs, fmt.Errorf("format is %q: want %s or %s", s.Format, trajectory.FormatXML, trajectory.FormatTools))
	}
	if s.Canary != canaryOn && !slices.Contains(verify.CanaryModes(), verify.CanaryMode(s.Canary)) {
		errs = append(errs, fmt.Errorf("canary is %q: want on, or one of %v", s.Canary, verify.CanaryModes()))
	}
	if !slices.Contains(verify.Strengths(), verify.Strength(s.Evidence)) {
		errs = append(errs, fmt.Errorf("evidence is %q: want one of %v", s.Evidence, verify.Strengths()))
	}
	if !(s.Odds >= 1) { // also refuses NaN
		errs = append(errs, fmt.Errorf("odds is %v: want at least 1", s.Odds))
	}
	if s.Timeout == 0 || s.CommandTimeout == 0 || s.GradeTimeout == 0 {
		errs = append(errs, errors.New("timeout, command_timeout and grade_timeout must be longer than 0"))
	}
	return errors.Join(append(errs, s.Train.validate("train"), s.Validation.validate("validation"))...)
}

// Suite is a set of validation tasks. Zero limits mean those of training.
type Suite struct {
	Name     string `yaml:"name,omitempty"`
	Tasks    `yaml:",inline"`
	MaxSteps int             `yaml:"max_steps" least:"0"`
	Context  int             `yaml:"context" least:"0"`
	Timeout  config.Duration `yaml:"timeout"`
}

// suiteName matches valid names of suites, which become parts of the names of metrics and files.
var suiteName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)

// suites returns all sets of validation tasks.
func (s *Settings) suites() map[part.Split]Suite {
	all := map[part.Split]Suite{part.Validation: s.Validation}
	for _, suite := range s.Suites {
		all[part.Split(suite.Name)] = suite
	}
	return all
}

// contexts returns the context lengths that the endpoint must support, by key.
func (s *Settings) contexts() map[string]int {
	all := map[string]int{"context": s.Context, "validation.context": s.Validation.Context}
	for i, suite := range s.Suites {
		all[fmt.Sprintf("suites[%d].context", i)] = suite.Context
	}
	return all
}

// sweEnvironment is the coding agent as an environment. Its tasks come from a dataset.
type sweEnvironment struct {
	settings Settings
	options  part.EnvironmentOptions
	dir      *run.Dir        // set by Prepare
	attempt  attempt.Attempt // without its model
	chosenTasks
	provider *env.Meter
	graders  graders
	// scores are the mutation scores of the training tasks that have one; set by Prepare.
	scores map[string]float64
}

// canaryOn is the name of the usual mode.
const canaryOn = "on"

// graders holds the evaluators of training and validation. They are shared, because they cache what they learn about
// tasks.
type graders struct {
	once       sync.Once
	train      verify.Evaluator
	validation verify.Evaluator
}

// Open reads the tasks, and opens the provider of sandboxes.
func (s *Settings) Open(ctx context.Context, o part.EnvironmentOptions) (part.Environment, error) {
	log := o.World.Logger()
	chosen, err := s.choose(log)
	if err != nil {
		return part.Environment{}, err
	}
	e := &sweEnvironment{settings: *s, options: o, chosenTasks: *chosen}
	var pack *prompt.Pack
	if s.PromptPack != "" {
		own, err := prompt.Load(s.PromptPack)
		if err != nil {
			return part.Environment{}, err
		}
		for _, note := range own.Notes {
			log.Warn(note)
		}
		pack = &own
	}
	provider, err := s.open(ctx, o.World, e.image)
	if err != nil {
		return part.Environment{}, err
	}
	e.provider = env.NewMeter(provider)
	format, _ := agent.FormatNamed(s.Format) // checked by validate
	e.attempt = attempt.Attempt{
		Settings: agent.Settings{
			ModelName: "policy", Prompt: prompt.Opening(pack, s.Sandbox.Network), Format: format, Log: log, Tokens: true,
			Limits: agent.Limits{Steps: s.MaxSteps, Wall: time.Duration(s.Timeout), Context: s.Context,
				ReplyTokens: s.ReplyTokens},
		},
		Provider: e.provider, Network: s.Sandbox.Network, Abandon: o.World.Abandon, Version: o.World.Version,
		Tools: tools.Options{CommandTimeout: time.Duration(s.CommandTimeout)}, LogOnly: true,
	}
	if pack != nil {
		e.attempt.Wrap = pack.Observations
	}
	own := s.agent()
	if e.attempt.Player, err = own.Player(ctx, o.World, nil); err != nil {
		return part.Environment{}, errors.Join(err, e.provider.Close())
	}
	opened := part.Environment{
		Player: e, Source: e.source, Prepare: e.prepare, Close: e.provider.Close, Beginning: e.beginning,
		Gauges: e.provider.Gauges,
	}
	for _, suite := range s.Suites {
		opened.Suites = append(opened.Suites, part.Split(suite.Name))
	}
	return opened, nil
}

// agent returns the flags of eval that name the agent.
func (s *Settings) agent() cli.AgentFlags { return cli.AgentFlags{Name: s.Agent, SetUp: s.AgentSetup} }

// open opens the provider of sandboxes. image is the image of one of the tasks, or empty if none has one.
func (s *Settings) open(ctx context.Context, w cli.World, image string) (env.Provider, error) {
	user, err := w.LoadConfig()
	if err != nil {
		return nil, err
	}
	choice, err := s.Sandbox.Choice(user)
	if err != nil {
		return nil, err
	}
	choice.Image = image
	if err := choice.Check(); err != nil {
		return nil, fmt.Errorf("sandbox: %w (the image is that of the task, or environment.sandbox.image "+
			"if the task does not name one)", err)
	}
	return w.Sandbox(ctx, choice)
}

// Tasks returns the tasks that Prepare has not left out.
func (e *sweEnvironment) Tasks(s part.Split) []string { return e.ids[s] }

// source returns a task's repository.
func (e *sweEnvironment) source(task string) string { return e.tasks[task].Repo }

// Runner returns a runner that plays and grades rollouts, like deepswe eval.
func (e *sweEnvironment) Runner(s part.Split, m agent.Model) run.Runner {
	r := &swe.Runner{
		Tasks: e.tasks, Dir: e.dir.Attempt, Attempt: e.attempt, Evaluator: e.evaluator(s), Seed: &e.options.Seed,
		Gates: run.Gates{Sandbox: e.options.Gates.Sandbox, Grading: e.options.Gates.Grading},
	}
	r.Attempt.Model = m
	temperature, limits := 1.0, e.options.Limits
	if s == part.Train {
		r.Ungraded = func(stop agent.StopReason) bool { return !e.options.Grades(stop) }
	} else {
		suite := e.settings.suites()[s]
		temperature = e.options.Temperature
		limits = func(run.Job) part.Limits { return part.Limits{Steps: suite.MaxSteps, Context: suite.Context} }
		r.Attempt.Limits.Wall = cmp.Or(time.Duration(suite.Timeout), r.Attempt.Limits.Wall)
	}
	r.Attempt.Sampling = agent.OnPolicy(&temperature)
	return run.RunnerFunc(func(ctx context.Context, j run.Job) (run.Result, error) {
		own, l := *r, limits(j)
		if err := e.beginFromPrefix(s, j); err != nil {
			return run.Result{}, run.Abort(err)
		}
		own.Attempt.Limits.Steps = cmp.Or(l.Steps, own.Attempt.Limits.Steps)
		own.Attempt.Limits.Context = cmp.Or(l.Context, own.Attempt.Limits.Context)
		own.Attempt.Model = turnsOf{own.Attempt.Model, fmt.Sprintf("%s/%s/%d", j.Group, j.Task, j.Index)}
		res, err := own.Run(ctx, j)
		if errors.Is(err, agent.ErrPrefix) {
			return run.Result{StopReason: agent.SandboxError, Metrics: map[string]float64{part.PrefixDiffers: 1}}, nil
		}
		if err != nil {
			return res, err
		}
		return res, e.complete(s, j, &res)
	})
}

// evaluator returns the grader of a split's patches.
func (e *sweEnvironment) evaluator(s part.Split) *verify.Evaluator {
	g := &e.graders
	g.once.Do(func() {
		for _, v := range []*verify.Evaluator{&g.train, &g.validation} {
			v.Provider, v.Run, v.Variants = e.provider, e.attempt.Run, verify.SampledWinners
			if e.settings.Canary != canaryOn {
				v.Canary = verify.CanaryMode(e.settings.Canary)
			}
		}
		g.train.Timeout, g.train.Training = time.Duration(e.settings.GradeTimeout), true
		g.train.Evidence, g.train.Odds = verify.Strength(e.settings.Evidence), e.settings.Odds
	})
	if s == part.Train {
		return &g.train
	}
	return &g.validation
}

// errNoTokens ends a run, because no other rollout would have tokens either.
var errNoTokens = errors.New("the model's replies have no token ids with logprobs, and nothing can be learned " +
	"without; to fix: use an endpoint that returns them (vLLM does, see deepswe doctor)")

// complete adds the sampled tokens to the result. A training rollout with replies but without tokens is an error.
func (e *sweEnvironment) complete(s part.Split, j run.Job, res *run.Result) error {
	d := swe.DetailOf(run.Outcome{Result: *res})
	res.Metrics = map[string]float64{"steps": float64(d.Steps), "format_errors": float64(d.FormatErrors)}
	if score, ok := e.scores[j.Task]; ok && s == part.Train && res.Reward != nil && *res.Reward >= 1 {
		res.Metrics["tests/mutation_score"] = score
	}
	if overfit, tried := d.Overfit(); tried && s == part.Train {
		res.Metrics["tests/overfit"] = number(overfit)
	}
	if res.Reward == nil && !res.NotGraded {
		return nil
	}
	dir, err := e.dir.Attempt(j)
	if err != nil {
		return run.Abort(err)
	}
	rec, err := trajectory.Open(filepath.Join(dir, attempt.StepsFile))
	if err != nil {
		return run.Abort(err)
	}
	var ok bool
	own := rec.Turns[min(rec.Header.Prefix, len(rec.Turns)):]
	learned := func(t trajectory.Turn) bool { return !t.Untrained }
	if res.Turns, ok = rec.Samples(); !ok && slices.ContainsFunc(own, learned) && s == part.Train {
		return run.Abort(fmt.Errorf("attempt %d at %s: %w", j.Index, j.Task, errNoTokens))
	}
	rec.Turns = own
	behaviour(res.Metrics, rec)
	return nil
}
