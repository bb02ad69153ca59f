package games

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/rl/frozenlake"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/trainer/embedded"
)

// FrozenLake is the configuration of the environment "frozenlake".
type FrozenLake struct {
	MinSize   int     `yaml:"min_size"`
	MaxSize   int     `yaml:"max_size"`
	MinFrozen float64 `yaml:"min_frozen"`
	MaxFrozen float64 `yaml:"max_frozen"`
	// MaxSteps is the maximum length of a map's shortest path, MaxTurns the maximum number of replies in an episode.
	MaxSteps int `yaml:"max_steps"`
	MaxTurns int `yaml:"max_turns" least:"1"`
	// Submit selects the submit game, in which an episode ends with a reply without a move, not on arrival.
	Submit bool `yaml:"submit"`
	// ValidationTurns is MaxTurns for validation episodes; 0 means MaxTurns.
	ValidationTurns int `yaml:"validation_turns" least:"0"`
	// Rendering is chat for language models, and compact for the embedded policy. Radius is how many fields around the
	// player compact shows.
	Rendering       frozenlake.Rendering `yaml:"rendering"`
	Radius          int                  `yaml:"radius" least:"1"`
	MaxTokens       int                  `yaml:"max_tokens" least:"1"`
	TrainTasks      int                  `yaml:"train_tasks" least:"1"`
	ValidationTasks int                  `yaml:"validation_tasks" least:"0"`
}

// NewFrozenLake returns the defaults.
func NewFrozenLake() *FrozenLake {
	return &FrozenLake{
		MinSize: 2, MaxSize: 9, MinFrozen: 0.6, MaxFrozen: 0.85, MaxSteps: 8, MaxTurns: 10,
		Rendering: frozenlake.Compact, Radius: 5, TrainTasks: 10000, ValidationTasks: 200,
	}
}

func (f *FrozenLake) maps() frozenlake.Options {
	return frozenlake.Options{
		MinSize: f.MinSize, MaxSize: f.MaxSize, MinFrozen: f.MinFrozen, MaxFrozen: f.MaxFrozen, MaxSteps: f.MaxSteps,
	}
}

// Complete sets the maximum length of a reply, and that of a row of compact episodes. A turn has two role tokens, an
// observation and its end token, and a reply with the end token that is added if it was cut off.
func (f *FrozenLake) Complete(c *config.Config) error {
	if f.MaxTokens == 0 {
		f.MaxTokens = 4
		if f.Rendering == frozenlake.Chat {
			f.MaxTokens = 1024
		}
	}
	turns := max(f.MaxTurns, f.ValidationTurns, c.Longest(func(s config.Stage) int { return s.MaxSteps }))
	if c.Algorithm.MaxLength == 0 && f.Rendering == frozenlake.Compact {
		c.Algorithm.MaxLength = turns * (frozenlake.CompactTokens(f.Radius) + 3 + f.MaxTokens + 1)
	}
	if c.Longest(func(s config.Stage) int { return s.Context }) > 0 {
		return errors.New("no limit of the context can change in a stage: an episode has max_turns only")
	}
	return f.validate()
}

func (f *FrozenLake) validate() error {
	var rendering error
	if f.Rendering != frozenlake.Chat && f.Rendering != frozenlake.Compact {
		rendering = fmt.Errorf("rendering is %q: want %s or %s", f.Rendering, frozenlake.Compact, frozenlake.Chat)
	}
	return errors.Join(f.maps().Validate(), rendering)
}

// Open creates the environment.
func (f *FrozenLake) Open(_ context.Context, o part.EnvironmentOptions) (part.Environment, error) {
	l := &lakes{settings: *f, options: o}
	return part.Environment{Player: l, Random: l.random(), Language: l.language}, nil
}

// lakes is FrozenLake as an environment. A task is the number of a map. The numbers of validation follow those of
// training.
type lakes struct {
	settings FrozenLake
	options  part.EnvironmentOptions
}

const lakePrefix = "lake-"

func (l *lakes) Tasks(s part.Split) []string {
	return numbered(lakePrefix+"%05d", s, l.settings.TrainTasks, l.settings.ValidationTasks)
}

// numbered returns the tasks of a split, which are numbers in a format: those of validation follow those of training.
func numbered(format string, s part.Split, train, validation int) []string {
	from, n := 0, train
	if s == part.Validation {
		from, n = train, validation
	}
	tasks := make([]string, n)
	for i := range tasks {
		tasks[i] = fmt.Sprintf(format, from+i)
	}
	return tasks
}

// language returns the vocabulary of the compact rendering.
func (l *lakes) language() (embedded.Language, error) {
	s := l.settings
	if s.Rendering != frozenlake.Compact {
		return embedded.Language{}, fmt.Errorf("the embedded policy reads rendering %s only, not %s", frozenlake.Compact,
			s.Rendering)
	}
	return embedded.Language{
		Vocabulary: frozenlake.Vocabulary(), Window: frozenlake.CompactTokens(s.Radius), Reply: s.MaxTokens,
	}, nil
}

func (l *lakes) Runner(s part.Split, m agent.Model) run.Runner {
	if s == part.Validation {
		turns := cmp.Or(l.settings.ValidationTurns, l.settings.MaxTurns)
		return l.runner(func(run.Job) agent.Model { return m }, l.options.Temperature, func(run.Job) int { return turns })
	}
	return l.runner(func(run.Job) agent.Model { return m }, 1, func(j run.Job) int {
		return cmp.Or(l.options.Limits(j).Steps, l.settings.MaxTurns)
	})
}

// random returns a player of uniformly random valid moves.
func (l *lakes) random() run.Runner {
	return l.runner(func(a run.Job) agent.Model {
		return &frozenlake.Random{Rand: rand.New(rand.NewPCG(uint64(a.Seed(l.options.Seed, -2)), 0))}
	}, 1, func(run.Job) int { return cmp.Or(l.settings.ValidationTurns, l.settings.MaxTurns) })
}

func (l *lakes) runner(
	model func(run.Job) agent.Model, temperature float64, turns func(run.Job) int,
) run.Runner {
	return run.RunnerFunc(func(ctx context.Context, a run.Job) (run.Result, error) {
		number, err := strconv.ParseUint(strings.TrimPrefix(a.Task, lakePrefix), 10, 64)
		if err != nil {
			return run.Result{}, run.Abort(fmt.Errorf("task %q is not a lake: %w", a.Task, err))
		}
		s := l.settings
		seed := func(turn int) int64 { return a.Seed(l.options.Seed, turn) }
		p := frozenlake.Player{
			Model: model(a), Rendering: s.Rendering, Radius: s.Radius, MaxTurns: turns(a),
			Submit: s.Submit, MaxTokens: s.MaxTokens, Temperature: &temperature, Seed: seed,
		}
		// Maps are the same for every seed of a run, so that runs can be compared.
		g, err := p.Play(ctx, frozenlake.NewEpisode(frozenlake.Generate(number, s.maps())))
		return run.Result{
			Reward: g.Rollout.Reward, StopReason: g.Rollout.StopReason, Turns: g.Rollout.Turns, Messages: g.Rollout.Messages,
			Times: run.Times{Model: g.Model, Environment: g.Environment},
			Metrics: map[string]float64{
				"invalid_replies": float64(g.Invalid), "tokens/think_per_turn": g.ThinkPerTurn(),
			},
		}, err
	})
}
