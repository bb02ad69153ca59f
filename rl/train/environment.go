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

// Train tasks are learned from, Validation tasks only measured.
const (
	Train      Split = "train"
	Validation Split = "validation"
)

// Environment is what a policy learns: tasks, and a way to play them.
type Environment interface {
	// Tasks names the tasks of a split. The answer never changes.
	Tasks(s Split) []string
	// Runner plays them with a model, which is another one after every update. The rollouts of Validation are sampled as
	// the configuration says, those of Train at temperature 1.
	Runner(s Split, m agent.Model) run.Runner
	// Random plays them with random moves, as a baseline for the plots; nil where the environment has no such player.
	Random() run.Runner
	// Close ends what the environment has opened. No other call follows it.
	Close() error
}

// Suites is an Environment with further sets of validation tasks. Each is a Split, which is measured like Validation.
type Suites interface {
	Suites() []Split
}

// Sources is an Environment whose tasks come from different places, such as repositories.
type Sources interface {
	Source(task string) string
}

// Preparer is an Environment that has to look at its tasks before they are learned from. Prepare comes before the first
// call of Tasks, and again where a run is resumed.
type Preparer interface {
	Prepare(ctx context.Context) error
}

// Speaker is an Environment that a policy without any knowledge of language can learn.
type Speaker interface {
	// Language is what it has to read and write, or an error where the settings ask for more than such a policy can read.
	Language() (embedded.Language, error)
}

// EnvironmentSettings are the section environment of a configuration: a pointer to a struct with yaml tags, with the
// defaults in it.
type EnvironmentSettings interface {
	// Complete sets what was left at zero, here and in c, where the environment knows a good value, and then validates
	// the section.
	Complete(c *Config) error
	Open(ctx context.Context, o EnvironmentOptions) (Environment, error)
}

// Checker are EnvironmentSettings that name files. Check reads them before a run's directory is made; its error wraps
// [ErrTasks] where nothing can be learned from them.
type Checker interface {
	Check(log *slog.Logger) error
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

// Outside opens what a configuration names beyond this process.
type Outside interface {
	// Sandbox opens a provider for tasks of which one has the image; none has where it is empty.
	Sandbox(ctx context.Context, s Sandbox, image string) (env.Provider, error)
	// Model opens an endpoint's model, or a recorded one. Empty settings are the user's own.
	Model(ctx context.Context, e Endpoint) (Served, error)
	// Getenv reads the environment: keys are nowhere else.
	Getenv(name string) string
}

// Sandbox says where the rollouts of an environment run, like the flags of eval.
type Sandbox struct {
	Env string `yaml:"env"`
	// Hosts are Docker daemons.
	Hosts          []string `yaml:"hosts"`
	KubeContexts   []string `yaml:"kube_contexts"`
	KubeNamespaces []string `yaml:"kube_namespaces"`
	RegistryMirror string   `yaml:"registry_mirror"`
	ImageBudget    string   `yaml:"image_budget"`
	// Warm is how many sandboxes a daemon keeps ready.
	Warm int `yaml:"warm"`
	// Network opens the network of agents' sandboxes.
	Network bool `yaml:"network"`
}

// Endpoint names a model of an endpoint, like the flags of eval.
type Endpoint struct {
	BaseURL string `yaml:"base_url"`
	Model   string `yaml:"model"`
	// Tokens says what prompts are made of: auto, extend or template.
	Tokens string `yaml:"tokens"`
}

// Served is a model of an endpoint.
type Served struct {
	Model agent.Model
	Name  string
	// Context is its context length in tokens, 0 where it is not known.
	Context int
	// Identity tells whether the endpoint is the same another time; zero for a recorded model.
	Identity llm.Identity
}

// TrainerSettings are the section trainer, like EnvironmentSettings. The environment's section is completed first.
type TrainerSettings interface {
	Complete(c *Config) error
	Open(ctx context.Context, o TrainerOptions) (rl.Trainer, error)
}

// ContextBound is a trainer whose sampler takes no more tokens than that, prompt and reply together; 0 is unknown.
type ContextBound interface {
	MaxContext() int
}

// ContextUser are EnvironmentSettings whose rollouts have bounded contexts: their keys in the section, with the tokens.
type ContextUser interface {
	Contexts() map[string]int
}

// TrainerOptions is what a trainer needs from the rest of the configuration.
type TrainerOptions struct {
	Seed uint64
	// Dir is for checkpoints; it need not exist.
	Dir string
	// Workers bounds the processors to use, 0 for all.
	Workers int
	// Speaker is the environment if it implements Speaker, else nil.
	Speaker Speaker
	// Imitates says that nothing will be sampled, so that no language is needed.
	Imitates bool
	Outside  Outside
	Log      *slog.Logger
}

// Parts are the environments and trainers that a configuration can name. Each function returns fresh settings with
// their defaults.
type Parts struct {
	Environments map[string]func() EnvironmentSettings
	Trainers     map[string]func() TrainerSettings
}

// BuiltIn has the parts that this program brings.
func BuiltIn() Parts {
	return Parts{
		Environments: map[string]func() EnvironmentSettings{
			"frozenlake": func() EnvironmentSettings { return newFrozenLake() },
			"residue":    func() EnvironmentSettings { return newResidue() },
			"swe":        func() EnvironmentSettings { return newSWE() },
		},
		Trainers: map[string]func() TrainerSettings{
			"embedded": func() TrainerSettings { return newEmbedded() },
			"rows":     func() TrainerSettings { return &rowsOnly{} },
			"tinker":   func() TrainerSettings { return newTinker() },
		},
	}
}
