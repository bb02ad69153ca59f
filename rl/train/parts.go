package train

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/rl"
)

// Split says which tasks are meant.
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
	// Runner plays them. The rollouts of Validation are sampled as the configuration says, those of Train at
	// temperature 1.
	Runner(s Split) run.Runner
}

// RandomPlayer is an Environment that knows what a policy without any skill reaches: a line for the plots.
type RandomPlayer interface {
	RandomRunner() run.Runner
}

// EnvironmentSettings are a section of the configuration: a pointer to a struct with yaml tags, filled with defaults.
type EnvironmentSettings interface {
	Validate() error
	// Open makes the environment over a model.
	Open(m agent.Model, o EnvironmentOptions) (Environment, error)
}

// EnvironmentOptions is what the rest of the configuration tells an environment.
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

// TrainerSettings are a section of the configuration, like EnvironmentSettings.
type TrainerSettings interface {
	Validate() error
	// Open makes the trainer and the model that samples from what it publishes.
	Open(e EnvironmentSettings, o TrainerOptions) (rl.Trainer, agent.Model, error)
}

// TrainerOptions is what the rest of the configuration tells a trainer.
type TrainerOptions struct {
	Seed uint64
	// Dir is for checkpoints; it need not exist.
	Dir string
	// Workers bounds the processors to use, 0 for all.
	Workers int
	Log     *slog.Logger
}

// Defaulter is a section that knows good values for what other sections left at zero. The environment is asked first.
type Defaulter interface {
	Defaults(c *Config)
}

// Parts are the environments and trainers that a configuration can name. Each function returns fresh settings with their
// defaults.
type Parts struct {
	Environments map[string]func() EnvironmentSettings
	Trainers     map[string]func() TrainerSettings
}

// BuiltIn has the parts that need nothing but this program: the environment frozenlake and the trainer embedded.
func BuiltIn() Parts {
	return Parts{
		Environments: map[string]func() EnvironmentSettings{"frozenlake": func() EnvironmentSettings { return newFrozenLake() }},
		Trainers:     map[string]func() TrainerSettings{"embedded": func() TrainerSettings { return newEmbedded() }},
	}
}

// section decodes a section whose key name chooses what it is.
func section[T any](n *yaml.Node, key, fallback string, kinds map[string]func() T) (name string, settings T, err error) {
	name = fallback
	rest := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	if n != nil {
		if n.Kind != yaml.MappingNode {
			return "", settings, fmt.Errorf("line %d: %s: want settings as key: value", n.Line, key)
		}
		rest.Line = n.Line
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == "name" {
				name = n.Content[i+1].Value
				continue
			}
			rest.Content = append(rest.Content, n.Content[i], n.Content[i+1])
		}
	}
	kind, ok := kinds[name]
	if !ok {
		names := strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
		if n == nil {
			return "", settings, fmt.Errorf("%s.name is missing: want one of %s", key, names)
		}
		return "", settings, fmt.Errorf("line %d: %s.name is %q: want one of %s", n.Line, key, name, names)
	}
	settings = kind()
	if err := decodeSection(rest, settings, key); err != nil {
		return "", settings, err
	}
	return name, settings, nil
}
