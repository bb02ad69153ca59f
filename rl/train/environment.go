package train

import (
	"log/slog"

	"deepswe/agent"
	"deepswe/agent/run"
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
	Open(o EnvironmentOptions) (Environment, error)
}

// EnvironmentOptions is what an environment needs from the rest of the configuration.
type EnvironmentOptions struct {
	// Seed of everything random in it.
	Seed uint64
	// Temperature of validation.
	Temperature float64
	// Gates bound sandboxes and gradings; calls of the model are bounded already.
	Gates run.Gates
	// Directory returns the place for what an attempt leaves, making it when needed.
	Directory func(a run.Job) (string, error)
	Log       *slog.Logger
}

// TrainerSettings are the section trainer, like EnvironmentSettings. The environment's section is completed first.
type TrainerSettings interface {
	Complete(c *Config) error
	Open(o TrainerOptions) (rl.Trainer, error)
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
	Log     *slog.Logger
}

// Parts are the environments and trainers that a configuration can name. Each function returns fresh settings with
// their defaults.
type Parts struct {
	Environments map[string]func() EnvironmentSettings
	Trainers     map[string]func() TrainerSettings
}

// BuiltIn has the parts that need nothing but this program: the environment frozenlake and the trainer embedded.
func BuiltIn() Parts {
	return Parts{
		Environments: map[string]func() EnvironmentSettings{
			"frozenlake": func() EnvironmentSettings { return newFrozenLake() },
		},
		Trainers: map[string]func() TrainerSettings{
			"embedded": func() TrainerSettings { return newEmbedded() },
		},
	}
}
