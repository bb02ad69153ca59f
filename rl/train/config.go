package train

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"gopkg.in/yaml.v3"

	"deepswe/rl"
)

// Config is a training run: what is learned, by which policy, how. README.md documents every key; [Load] fills in the
// defaults, and [Config.YAML] writes a configuration that loads to the same again.
type Config struct {
	// Name is the run's, in reports and in the default directory.
	Name string `yaml:"name"`
	// Seed decides everything that is random: weights, the order of tasks, sampling.
	Seed  uint64 `yaml:"seed"`
	Steps int    `yaml:"steps"`

	Environment EnvironmentSettings `yaml:"-"`
	Trainer     TrainerSettings     `yaml:"-"`

	Rollouts   Rollouts   `yaml:"rollouts"`
	Algorithm  Algorithm  `yaml:"algorithm"`
	Optimizer  Optimizer  `yaml:"optimizer"`
	Evaluate   Evaluate   `yaml:"evaluate"`
	Checkpoint Checkpoint `yaml:"checkpoint"`
	Guards     Guards     `yaml:"guards"`
	Curriculum Curriculum `yaml:"curriculum"`
	// Stages change settings in the course of the run.
	Stages []Stage `yaml:"stages"`

	// Objective is Reinforcement where it is empty.
	Objective Objective `yaml:"objective,omitempty"`
	// SFT is nil where the objective is another one; the other settings that are not about trainer, optimizer and
	// checkpoints mean nothing with it.
	SFT *SFT `yaml:"-"`

	// Simulate is about --simulate alone.
	Simulate *Latencies `yaml:"simulate,omitempty"`

	// Ablation makes many runs of one configuration; nil is a single run.
	Ablation *Ablation `yaml:"-"`

	environmentName, trainerName string
	parts                        Parts
}

// Rollouts is how many rollouts a step has and how they run.
type Rollouts struct {
	// Tasks is the number of groups of a step, Group the rollouts in each.
	Tasks int `yaml:"tasks"`
	Group int `yaml:"group"`
	// Refill is how many more rounds may look for groups whose rewards differ, until there are Tasks of them (the
	// dynamic sampling of DAPO).
	Refill int `yaml:"refill"`
	// MaxStaleness is how many updates may lie between the beginning of a rollout and the one that learns from it. With 0
	// rollouts and updates take turns.
	MaxStaleness int `yaml:"max_staleness"`
	// Workers run rollouts at once; Models, Sandboxes and Gradings bound what they do at once, 0 for no bound.
	Workers   int `yaml:"workers"`
	Models    int `yaml:"models"`
	Sandboxes int `yaml:"sandboxes"`
	Gradings  int `yaml:"gradings"`
	// Deadline ends a rollout that hangs, 0 for never; Drain is what rollouts under way get when the run is interrupted.
	Deadline Duration `yaml:"deadline"`
	Drain    Duration `yaml:"drain"`
	// Retries after infrastructure failures; MaxFailures in a row end the run, 0 for never.
	Retries     int `yaml:"retries"`
	MaxFailures int `yaml:"max_failures"`
	// KeepLogs leaves the rollouts of every step on the disk, compressed; without it they go when a checkpoint has their
	// effect.
	KeepLogs bool `yaml:"keep_logs"`
}

// Algorithm is a preset of package rl and changes to it.
type Algorithm struct {
	Preset string `yaml:"preset"`
	// MaxLength is the longest row in tokens, and W of the constant length normalisation.
	MaxLength int `yaml:"max_length"`
	// Set changes single switches, as --set of deepswe export does.
	Set map[string]string `yaml:"set"`

	resolved rl.Algorithm
}

// Optimizer is rl.Optimizer and how often it steps.
type Optimizer struct {
	LearningRate float64 `yaml:"learning_rate"`
	// Warmup raises the learning rate linearly over so many steps.
	Warmup      int     `yaml:"warmup"`
	Beta1       float64 `yaml:"beta1"`
	Beta2       float64 `yaml:"beta2"`
	Epsilon     float64 `yaml:"epsilon"`
	WeightDecay float64 `yaml:"weight_decay"`
	ClipNorm    float64 `yaml:"clip_norm"`
	// Minibatches are optimizer steps in one pass over a batch, of whole groups each; Epochs are the passes.
	Minibatches int `yaml:"minibatches"`
	Epochs      int `yaml:"epochs"`
}

// Evaluate is when and how the policy is measured on tasks that it never learns from.
type Evaluate struct {
	// Every so many steps, and after the last; 0 is never. Before measures the fresh policy as well.
	Every  int  `yaml:"every"`
	Before bool `yaml:"before"`
	// Tasks is how many of the validation tasks, 0 for all; Attempts at each.
	Tasks       int     `yaml:"tasks"`
	Attempts    int     `yaml:"attempts"`
	Temperature float64 `yaml:"temperature"`
	// Workers play the validation tasks beside the training, which goes on. With 0 validation and training take turns.
	Workers int `yaml:"workers"`
}

// Checkpoint is how often the run is saved and how many checkpoints stay.
type Checkpoint struct {
	Every int `yaml:"every"`
	Keep  int `yaml:"keep"`
}

// Duration is a time.Duration that is written like one: 90s, 1h30m.
type Duration time.Duration

// UnmarshalYAML reads 90s and 1h30m, and 0.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil || v < 0 {
		return fmt.Errorf("line %d: invalid duration %q (for example 90s or 1h30m)", n.Line, n.Value)
	}
	*d = Duration(v)
	return nil
}

// MarshalYAML writes what UnmarshalYAML reads.
func (d Duration) MarshalYAML() (any, error) { return time.Duration(d).String(), nil }

// defaults are documented in README.md; a test compares the two.
func defaults() Config {
	return Config{
		Name: "train", Seed: 1, Steps: 100,
		Rollouts: Rollouts{
			Tasks: 8, Group: 8, Workers: 16, Drain: Duration(10 * time.Second), Retries: 2, MaxFailures: 32, KeepLogs: true,
		},
		Algorithm:  Algorithm{Preset: rl.DefaultPreset, Set: map[string]string{}},
		Optimizer:  Optimizer{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, ClipNorm: 1, Minibatches: 1, Epochs: 1},
		Evaluate:   Evaluate{Every: 10, Before: true, Attempts: 1, Temperature: 1},
		Checkpoint: Checkpoint{Every: 10, Keep: 2},
		Guards: Guards{
			MaxSkipped: 10, MismatchKL: 0.1, Collapse: Collapse{Window: 10, Fraction: 0.5, Patience: 20, Action: Warn},
		},
		Curriculum: Curriculum{After: 2, Every: 8, Exhausted: Warn},
	}
}

// validate refuses values that make no sense, and names their keys.
func (c *Config) validate() error {
	r, o, e := c.Rollouts, c.Optimizer, c.Evaluate
	return errors.Join(
		positive("steps", c.Steps),
		positive("rollouts.tasks", r.Tasks), positive("rollouts.group", r.Group), natural("rollouts.refill", r.Refill),
		natural("rollouts.max_staleness", r.MaxStaleness), r.refills(),
		positive("rollouts.workers", r.Workers), natural("rollouts.models", r.Models),
		natural("rollouts.sandboxes", r.Sandboxes), natural("rollouts.gradings", r.Gradings),
		natural("rollouts.retries", r.Retries), natural("rollouts.max_failures", r.MaxFailures),
		o.validate(r.Tasks),
		natural("evaluate.every", e.Every), natural("evaluate.tasks", e.Tasks), positive("evaluate.attempts", e.Attempts),
		fraction("evaluate.temperature", e.Temperature, 100), natural("evaluate.workers", e.Workers),
		c.Curriculum.validate(), c.checkStages(),
		positive("checkpoint.every", c.Checkpoint.Every), positive("checkpoint.keep", c.Checkpoint.Keep),
		c.Guards.validate(), c.simulates(),
	)
}

// rate is the learning rate of a step in a stage.
func (o Optimizer) rate(step int, s Stage) float64 {
	rate := cmp.Or(s.LearningRate, o.LearningRate)
	if step < o.Warmup {
		return rate * float64(step) / float64(o.Warmup)
	}
	return rate
}

// rl is what the trainer is told at a step in a stage.
func (o Optimizer) rl(step int, s Stage) rl.Optimizer {
	return rl.Optimizer{
		LearningRate: o.rate(step, s), Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon, WeightDecay: o.WeightDecay,
		ClipNorm: o.ClipNorm,
	}
}

// refills refuses further rounds where there are no rounds.
func (r Rollouts) refills() error {
	if r.Refill > 0 && r.MaxStaleness > 0 {
		return errors.New("rollouts.refill fills up the rounds of rollouts.max_staleness 0; to fix: leave out one of the two")
	}
	return nil
}

func (c *Config) simulates() error {
	if c.Simulate == nil {
		return nil
	}
	return c.Simulate.validate()
}

func (o Optimizer) validate(tasks int) error {
	var rate, batches error
	if !(o.LearningRate > 0) || o.LearningRate > 1 {
		rate = fmt.Errorf("optimizer.learning_rate is %g: want a number above 0, at most 1", o.LearningRate)
	}
	if o.Minibatches < 1 || o.Minibatches > tasks {
		batches = fmt.Errorf("optimizer.minibatches is %d: want 1 to rollouts.tasks (%d), a group is never split",
			o.Minibatches, tasks)
	}
	return errors.Join(rate,
		fraction("optimizer.weight_decay", o.WeightDecay, 1), fraction("optimizer.epsilon", o.Epsilon, 1),
		fraction("optimizer.beta1", o.Beta1, 0.999999), fraction("optimizer.beta2", o.Beta2, 0.999999999),
		fraction("optimizer.clip_norm", o.ClipNorm, 1e12),
		batches, positive("optimizer.epochs", o.Epochs), natural("optimizer.warmup", o.Warmup),
	)
}

func positive(key string, v int) error {
	if v < 1 {
		return fmt.Errorf("%s is %d: want at least 1", key, v)
	}
	return nil
}

func natural(key string, v int) error {
	if v < 0 {
		return fmt.Errorf("%s is %d: want 0 or more", key, v)
	}
	return nil
}

// fraction refuses numbers outside [0, most], NaN included.
func fraction(key string, v, most float64) error {
	if !(v >= 0 && v <= most) {
		return fmt.Errorf("%s is %g: want 0 to %g", key, v, most)
	}
	return nil
}

// resolve turns preset and changes into the algorithm in force.
func (a *Algorithm) resolve() error {
	r, err := rl.Preset(a.Preset)
	if err != nil {
		return fmt.Errorf("algorithm.preset: %w", err)
	}
	r.MaxLength = a.MaxLength
	for key, value := range a.Set {
		if key == "max_length" {
			return errors.New("algorithm.set: max_length has a key of its own: algorithm.max_length")
		}
		if err := r.Set(key, value); err != nil {
			return fmt.Errorf("algorithm.set: %w", err)
		}
	}
	if err := r.Check(); err != nil {
		return fmt.Errorf("algorithm: %w", err)
	}
	a.resolved = r
	return nil
}

// comparable refuses groups of one under a baseline that needs siblings.
func (c *Config) comparable() error {
	b := c.Algorithm.resolved.Baseline
	if c.Rollouts.Group > 1 || b == rl.NoBaseline {
		return nil
	}
	return fmt.Errorf("rollouts.group is 1, and the baseline %s compares a rollout with its siblings; "+
		"to fix: set rollouts.group to 2 or more, or algorithm.set baseline to none", cmp.Or(b, rl.LeaveOneOut))
}

// RL returns the algorithm in force.
func (c *Config) RL() rl.Algorithm { return c.Algorithm.resolved }
