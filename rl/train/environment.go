package train

import (
	"context"
	"errors"
	"log/slog"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/rl"
	"deepswe/rl/trainer/embedded"
)

// Split names a set of tasks.
type Split string

// Tasks of Train are learned from, those of Validation only measured.
const (
	Train      Split = "train"
	Validation Split = "validation"
)

// Environment provides tasks, and a way to play them. Each field but Player may be its zero value.
type Environment struct {
	Player
	// Random plays random moves, as a baseline for charts.
	Random run.Runner
	// Suites are further sets of validation tasks, each measured like Validation.
	Suites []Split
	// Source returns the source of a task, such as its repository.
	Source func(task string) string
	// Prepare checks the tasks before training. It is called before the first call of Tasks, also when a run is resumed.
	Prepare  func(ctx context.Context) error
	Language Language
}

// Player plays the tasks of an environment.
type Player interface {
	// Tasks returns the names of a split's tasks. They never change.
	Tasks(s Split) []string
	// Runner returns a runner that plays the tasks with a model. Rollouts of Validation are sampled as configured,
	// those of Train at temperature 1.
	Runner(s Split, m agent.Model) run.Runner
	// Close releases what the environment has opened. No other call follows it.
	Close() error
}

// Language returns the vocabulary to read and write, for a policy without any language, or an error if the settings
// need more than such a policy can read. It is nil for an environment that needs a language model.
type Language func() (embedded.Language, error)

// EnvironmentSettings is the section "environment" of a configuration: a pointer to a struct with yaml tags that holds
// the defaults.
type EnvironmentSettings interface {
	// Complete fills in zero values, here and in c, for which the environment knows a good value. Then it validates the
	// section.
	Complete(c *Config) error
	// Check reads the files that the settings name, before a run's directory is created. Its error wraps [ErrTasks] if
	// nothing can be learned from them.
	Check(log *slog.Logger) error
	Open(ctx context.Context, o EnvironmentOptions) (Environment, error)
}

// ErrTasks reports that the tasks of an environment cannot be used as the configuration says.
var ErrTasks = errors.New("tasks")

// EnvironmentOptions is what an environment needs from the rest of the configuration.
type EnvironmentOptions struct {
	// Seed of everything random in it.
	Seed uint64
	// Temperature of validation.
	Temperature float64
	// Gates bound sandboxes and gradings; calls of the model are bounded already. Workers is how many rollouts are played
	// at once.
	Gates   run.Gates
	Workers int
	// Grades reports whether training rollouts that end for the reason need a reward.
	Grades func(agent.StopReason) bool
	// Limits returns those of a training rollout where a stage of the run has others than the environment's settings.
	Limits func(run.Job) Limits
	// Dir is the run's directory, Version this program's.
	Dir     *run.Dir
	Version string
	Outside Outside
	// Abandon, when closed, ends the salvage of what an interrupted rollout has done.
	Abandon <-chan struct{}
	Log     *slog.Logger
}

// Limits of a rollout. A zero field leaves the environment's.
type Limits struct {
	Steps, Context int
}

// Outside opens the sandboxes and endpoints that a configuration names.
type Outside interface {
	// Sandbox opens a provider for tasks, one of which has the given image; it is empty if none has one.
	Sandbox(ctx context.Context, s Sandbox, image string) (env.Provider, error)
	// Model opens an endpoint's model, or a recorded one. Empty settings are taken from the user's configuration.
	Model(ctx context.Context, e Endpoint) (Served, error)
	// Getenv returns an environment variable. API keys are read from there only.
	Getenv(name string) string
}

// Sandbox says where the rollouts of an environment run, like the flags of eval.
type Sandbox struct {
	Env string `yaml:"env"`
	// Image is the container image for tasks that do not name one.
	Image string `yaml:"image"`
	// Hosts lists Docker daemons.
	Hosts          []string `yaml:"hosts"`
	KubeContexts   []string `yaml:"kube_contexts"`
	KubeNamespaces []string `yaml:"kube_namespaces"`
	RegistryMirror string   `yaml:"registry_mirror"`
	ImageBudget    string   `yaml:"image_budget"`
	// Warm is the number of sandboxes that are kept ready on each daemon.
	Warm int `yaml:"warm"`
	// Network gives the agent's sandboxes a network.
	Network bool `yaml:"network"`
}

// Endpoint selects a model of an endpoint, like the flags of eval.
type Endpoint struct {
	BaseURL string `yaml:"base_url"`
	Model   string `yaml:"model"`
	// Tokens is how prompts are made: auto, extend or template.
	Tokens string `yaml:"tokens"`
}

// Served is a model that an endpoint serves.
type Served struct {
	Model agent.Model
	Name  string
	// Context is its context length in tokens, 0 if unknown.
	Context int
	// Identity shows whether the endpoint still serves the same model; zero for a recorded model.
	Identity llm.Identity
}

// TrainerSettings is the section "trainer", like EnvironmentSettings. The environment's section is completed first.
type TrainerSettings interface {
	Complete(c *Config) error
	Open(ctx context.Context, o TrainerOptions) (Trainer, error)
}

// Trainer is a trainer with what only some can do: each field but Trainer may be its zero value.
type Trainer struct {
	rl.Trainer
	// MaxContext is the maximum context of the sampler, in tokens of prompt and reply together.
	MaxContext int
	// Gauges returns metrics of the trainer's servers.
	Gauges func() map[string]float64
	// Accepts checks a row before the first update. The error wraps rl.ErrTooLong if the row is only too long.
	Accepts func(r *rl.Row) error
	// Imitate makes an update of cross-entropy in a cheaper way than ForwardBackward and Step.
	Imitate func(ctx context.Context, rows []rl.Row, o rl.Optimizer) (rl.Stats, rl.StepStats, error)
	// WarmStart learns from demonstrations before the first step. It returns the mean loss of each pass over them, in
	// nats per token. Called again in the same run, it returns the same losses without learning again.
	WarmStart func(ctx context.Context) ([]float64, error)
}

// TrainerOptions is what a trainer needs besides its own section.
type TrainerOptions struct {
	Seed uint64
	// Dir is the directory for checkpoints; it need not exist.
	Dir string
	// Workers is the maximum number of processors to use, 0 for all.
	Workers int
	// Language is the environment's.
	Language Language
	// Imitates is set if nothing will be sampled, so no vocabulary is needed.
	Imitates bool
	Outside  Outside
	Log      *slog.Logger
}

// Parts holds the environments and trainers that a configuration can name. Each function returns new settings with the
// defaults.
type Parts struct {
	Environments map[string]func() EnvironmentSettings
	Trainers     map[string]func() TrainerSettings
}

// BuiltIn returns the environments and trainers of this program.
func BuiltIn() Parts {
	return Parts{
		Environments: map[string]func() EnvironmentSettings{
			"frozenlake": func() EnvironmentSettings { return NewFrozenLake() },
			"residue":    func() EnvironmentSettings { return NewResidue() },
			"swe":        func() EnvironmentSettings { return NewSettings() },
		},
		Trainers: map[string]func() TrainerSettings{
			"embedded": func() TrainerSettings { return NewEmbedded() },
			"rows":     func() TrainerSettings { return &RowsOnly{} },
			"tinker":   func() TrainerSettings { return NewTinker() },
		},
	}
}
