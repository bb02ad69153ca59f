package config

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"gopkg.in/yaml.v3"

	"deepswe/rl"
	"deepswe/rl/train/part"
)

// Config describes a training run: what is learned, by which policy, and how. README.md documents every key. [Load]
// fills in the defaults, and [Config.YAML] writes a configuration that loads to an equal one.
type Config struct {
	// Name is the run's name in reports and in the default directory.
	Name string `yaml:"name"`
	// Seed determines everything random: weights, the order of tasks, sampling.
	Seed  uint64 `yaml:"seed"`
	Steps int    `yaml:"steps" least:"1"`

	Environment EnvironmentSettings `yaml:"-"`
	Trainer     TrainerSettings     `yaml:"-"`

	// Limits are the limits of training rollouts where a stage overrides the environment's settings.
	Limits part.Limits `yaml:"-"`

	// Contexts are the limits of the rollouts' contexts in tokens, by their keys in the section of the environment, which
	// fills them in.
	Contexts map[string]int `yaml:"-"`

	// Replays is set by an environment whose rollouts can go on from the beginning of another one, as Prefix requires.
	Replays bool `yaml:"-"`

	Rollouts   Rollouts   `yaml:"rollouts"`
	Algorithm  Algorithm  `yaml:"algorithm"`
	Optimizer  Optimizer  `yaml:"optimizer"`
	Evaluate   Evaluate   `yaml:"evaluate"`
	Checkpoint Checkpoint `yaml:"checkpoint"`
	Guards     Guards     `yaml:"guards"`
	Curriculum Curriculum `yaml:"curriculum"`
	Prefix     Prefix     `yaml:"prefix"`
	Teacher    Teacher    `yaml:"teacher"`
	// Stages change settings during the run.
	Stages []Stage `yaml:"stages"`

	// Objective is the objective; empty means rl.
	Objective Objective `yaml:"objective,omitempty"`
	// SFT is nil unless the objective is SFT. With it, only the settings of trainer, optimizer and checkpoints apply.
	SFT *SFT `yaml:"-"`

	// Simulate is used by --simulate only.
	Simulate *Latencies `yaml:"simulate,omitempty"`

	// Ablation makes many runs of one configuration; nil means a single run.
	Ablation *Ablation `yaml:"-"`

	environmentName, trainerName string
	parts                        Parts
}

// Rollouts says how many rollouts a step has, and how they are run.
type Rollouts struct {
	// Tasks is the number of groups in a step, Group the number of rollouts in each.
	Tasks int `yaml:"tasks" least:"1"`
	Group int `yaml:"group" least:"1"`
	// Refill is the maximum number of further rounds that are played until Tasks groups have rewards that differ
	// (DAPO's dynamic sampling).
	Refill int `yaml:"refill" least:"0"`
	// MaxStaleness is the maximum number of updates between the beginning of a rollout and the update that learns from
	// it. With 0, rollouts and updates alternate.
	MaxStaleness int `yaml:"max_staleness" least:"0"`
	// Workers is the number of rollouts at once. Sandboxes and Gradings limit sandbox starts and gradings at once, and
	// Models the replies that each server samples at once; 0 means no limit.
	Workers   int `yaml:"workers" least:"1"`
	Models    int `yaml:"models" least:"0"`
	Sandboxes int `yaml:"sandboxes" least:"0"`
	Gradings  int `yaml:"gradings" least:"0"`
	// Deadline ends a rollout that takes longer; 0 means never. Drain is the time that rollouts, an update and its
	// publication get when the run is interrupted, and after that a checkpoint.
	Deadline Duration `yaml:"deadline"`
	Drain    Duration `yaml:"drain"`
	// Retries is the number of retries after an infrastructure failure. MaxFailures failed rollouts in a row end the
	// run; 0 means never.
	Retries     int `yaml:"retries" least:"0"`
	MaxFailures int `yaml:"max_failures" least:"0"`
	// KeepLogs keeps the rollouts of every step on disk, compressed. Otherwise, they are removed once a checkpoint
	// includes their effect.
	KeepLogs bool `yaml:"keep_logs"`
}

// Algorithm is a preset of package rl, with changes.
type Algorithm struct {
	Preset string `yaml:"preset"`
	// MaxLength is the maximum length of a row in tokens, and the divisor W of constant length normalisation.
	MaxLength int `yaml:"max_length"`
	// Set changes single switches, like --set of deepswe export.
	Set map[string]string `yaml:"set"`

	resolved rl.Algorithm
}

// Optimizer is rl.Optimizer with the number of its steps.
type Optimizer struct {
	LearningRate float64 `yaml:"learning_rate"`
	// Warmup is the number of steps over which the learning rate rises linearly.
	Warmup      int     `yaml:"warmup" least:"0"`
	Beta1       float64 `yaml:"beta1" most:"0.999999"`
	Beta2       float64 `yaml:"beta2" most:"0.999999999"`
	Epsilon     float64 `yaml:"epsilon" most:"1"`
	WeightDecay float64 `yaml:"weight_decay" most:"1"`
	ClipNorm    float64 `yaml:"clip_norm" most:"1e12"`
	// Minibatches is the number of optimizer steps in one pass over a batch; each takes whole groups. Epochs is the
	// number of passes.
	Minibatches int `yaml:"minibatches"`
	Epochs      int `yaml:"epochs" least:"1"`
}

// Evaluate says when and how the policy is measured on tasks that it does not learn from.
type Evaluate struct {
	// Every is the number of steps between validations. With 0 there are none, otherwise the last step has one as well.
	// Before validates the initial policy, too.
	Every  int  `yaml:"every" least:"0"`
	Before bool `yaml:"before"`
	// Tasks is how many validation tasks are used, 0 for all; Attempts is the number of rollouts of each.
	Tasks       int     `yaml:"tasks" least:"0"`
	Attempts    int     `yaml:"attempts" least:"1"`
	Temperature float64 `yaml:"temperature" most:"100"`
	// Workers is the number of validation rollouts at once, beside training. With 0, validation and training alternate.
	Workers int `yaml:"workers" least:"0"`
}

// Checkpoint says how often the run is saved, and how many checkpoints are kept.
type Checkpoint struct {
	Every int `yaml:"every" least:"1"`
	Keep  int `yaml:"keep" least:"1"`
}

// Duration is a time.Duration that is written as text in YAML: 90s, 1h30m.
type Duration time.Duration

// UnmarshalYAML accepts what time.ParseDuration does, and 0.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil || v < 0 {
		return fmt.Errorf("line %d: invalid duration %q (for example 90s or 1h30m)", n.Line, n.Value)
	}
	*d = Duration(v)
	return nil
}

// MarshalYAML is the inverse of UnmarshalYAML.
func (d Duration) MarshalYAML() (any, error) { return time.Duration(d).String(), nil }

// defaults returns the defaults. README.md documents them, and a test compares the two.
func defaults() Config {
	return Config{
		Name: "train", Seed: 1, Steps: 100,
		Rollouts: Rollouts{
			Tasks: 8, Group: 8, Workers: 16, Drain: Duration(4 * time.Second), Retries: 2, MaxFailures: 32, KeepLogs: true,
		},
		Algorithm:  Algorithm{Preset: rl.DefaultPreset, Set: map[string]string{}},
		Optimizer:  Optimizer{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, ClipNorm: 1, Minibatches: 1, Epochs: 1},
		Evaluate:   Evaluate{Every: 10, Before: true, Attempts: 1, Temperature: 1},
		Checkpoint: Checkpoint{Every: 10, Keep: 2},
		Guards: Guards{
			MaxSkipped: 10, MismatchKL: 0.1, Collapse: Collapse{Window: 10, Fraction: 0.5, Patience: 20, Action: Warn},
			Entropy: Entropy{Min: 0.3, Max: 1, Action: Warn},
		},
		Curriculum: Curriculum{After: 2, Every: 8, MaxRate: 1, Exhausted: Warn},
		Prefix:     Prefix{Step: 0.25, Slack: 0.25, Most: 0.75},
		Teacher:    Teacher{Scale: 1},
	}
}

// validate refuses invalid values, and names their keys.
func (c *Config) validate() error {
	return errors.Join(
		Bounds("", c), c.Rollouts.refills(), c.Optimizer.validate(c.Rollouts.Tasks), c.checkStages(), c.Guards.validate(),
		c.Simulate.validate(), c.Prefix.validate(c.Replays), c.Teacher.validate(),
	)
}

// Rate returns the learning rate of a step.
func (o Optimizer) Rate(step int) float64 {
	if step < o.Warmup {
		return o.LearningRate * float64(step) / float64(o.Warmup)
	}
	return o.LearningRate
}

// Settings returns the trainer's settings for a step.
func (o Optimizer) Settings(step int) rl.Optimizer {
	return rl.Optimizer{
		LearningRate: o.Rate(step), Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon, WeightDecay: o.WeightDecay,
		ClipNorm: o.ClipNorm,
	}
}

// refills refuses further rounds in the asynchronous loop, which has no rounds.
func (r Rollouts) refills() error {
	if r.Refill > 0 && r.MaxStaleness > 0 {
		return errors.New("rollouts.refill needs rollouts.max_staleness 0; to fix: leave out one of the two")
	}
	return nil
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
	return errors.Join(rate, batches)
}

// Resolve applies the changes to the preset.
func (a Algorithm) Resolve() (rl.Algorithm, error) {
	r, err := rl.Preset(a.Preset)
	if err != nil {
		return r, fmt.Errorf("algorithm.preset: %w", err)
	}
	r.MaxLength = a.MaxLength
	for key, value := range a.Set {
		if key == "max_length" {
			return r, errors.New("algorithm.set: max_length has a key of its own: algorithm.max_length")
		}
		if err := r.Set(key, value); err != nil {
			return r, fmt.Errorf("algorithm.set: %w", err)
		}
	}
	if err := r.Check(); err != nil {
		return r, fmt.Errorf("algorithm: %w", err)
	}
	return r, nil
}

// comparable refuses groups of one with a baseline that needs siblings.
func (c *Config) comparable() error {
	b := c.Algorithm.resolved.Baseline
	if c.Rollouts.Group != 1 || b == rl.NoBaseline {
		return nil
	}
	return fmt.Errorf("rollouts.group is 1, and the baseline %s compares a rollout with its siblings; "+
		"to fix: set rollouts.group to 2 or more, or algorithm.set baseline to none", cmp.Or(b, rl.LeaveOneOut))
}

// RL returns the algorithm in force.
func (c *Config) RL() rl.Algorithm { return c.Algorithm.resolved }
