package config

import (
	"cmp"
	"fmt"
	"time"
)

// Latencies describes a simulated cluster. A zero field means the default in brackets, which was measured with the
// coding agent on a benchmark of this project.
type Latencies struct {
	// A rollout has MinTurns to MaxTurns turns [5, 50]; the number depends on how hard the group's task is. Skew
	// is how rare hard tasks are: with 1, all numbers of turns are equally likely [1.8].
	MinTurns int     `yaml:"min_turns"`
	MaxTurns int     `yaml:"max_turns"`
	Skew     float64 `yaml:"skew" most:"100"`
	// Model and Tool are the mean times of a reply and of its calls [20 s, 3 s], lognormal with these sigmas [0.8, 1.3].
	Model      Duration `yaml:"model"`
	Tool       Duration `yaml:"tool"`
	ModelSigma float64  `yaml:"model_sigma" most:"5"`
	ToolSigma  float64  `yaml:"tool_sigma" most:"5"`
	// Timeout is the time after which a rollout ends and is masked [none].
	Timeout Duration `yaml:"timeout"`
	// Start is the time to start a sandbox [none], Grading the time to grade a patch [45 s].
	Start   Duration `yaml:"start"`
	Grading Duration `yaml:"grading"`
	// Update is the trainer's time for all rollouts of a step [480 s], Forward the part of it that is the forward pass
	// [0.25]. Publish is the time until the new weights sample [45 s], Checkpoint the time to save them [60 s].
	Update     Duration `yaml:"update"`
	Forward    float64  `yaml:"forward" most:"1"`
	Publish    Duration `yaml:"publish"`
	Checkpoint Duration `yaml:"checkpoint"`
	// Colocated says that the trainer's GPUs sample, in lockstep: they gather the requests that wait, sample until the
	// longest reply is there, and only then look for more or work for the trainer.
	Colocated bool `yaml:"colocated"`
	// Tasks is the number of training tasks, whose soundness is checked before the first step [4578, as in R2E-Gym's
	// subset], Validation that of validation tasks, unless evaluate.tasks limits them [500, as in SWE-bench Verified].
	Tasks      int `yaml:"tasks" least:"0"`
	Validation int `yaml:"validation" least:"0"`
}

// WithDefaults replaces zero fields.
func (l Latencies) WithDefaults() Latencies {
	l.MinTurns, l.MaxTurns, l.Skew = cmp.Or(l.MinTurns, 5), cmp.Or(l.MaxTurns, 50), cmp.Or(l.Skew, 1.8)
	l.Model, l.Tool = cmp.Or(l.Model, Duration(20*time.Second)), cmp.Or(l.Tool, Duration(3*time.Second))
	l.ModelSigma, l.ToolSigma = cmp.Or(l.ModelSigma, 0.8), cmp.Or(l.ToolSigma, 1.3)
	l.Grading, l.Publish = cmp.Or(l.Grading, Duration(45*time.Second)), cmp.Or(l.Publish, Duration(45*time.Second))
	l.Update, l.Forward = cmp.Or(l.Update, Duration(480*time.Second)), cmp.Or(l.Forward, 0.25)
	l.Checkpoint = cmp.Or(l.Checkpoint, Duration(60*time.Second))
	l.Tasks, l.Validation = cmp.Or(l.Tasks, 4578), cmp.Or(l.Validation, 500)
	return l
}

// MaxLatency is the longest time that anything takes in a simulated cluster, and maxTurns the most turns of a rollout,
// so that neither times nor memory overflow.
const (
	MaxLatency = Duration(10_000 * time.Hour)
	maxTurns   = 10_000
)

func (l *Latencies) validate() error {
	if l == nil {
		return nil
	}
	d := l.WithDefaults()
	for key, v := range map[string]Duration{
		"model": d.Model, "tool": d.Tool, "timeout": d.Timeout, "start": d.Start, "grading": d.Grading, "update": d.Update,
		"publish": d.Publish, "checkpoint": d.Checkpoint,
	} {
		if v > MaxLatency {
			return fmt.Errorf("simulate.%s is %s: want at most %s", key, time.Duration(v), time.Duration(MaxLatency))
		}
	}
	if d.MaxTurns > maxTurns {
		return fmt.Errorf("simulate.max_turns is %d: want at most %d", d.MaxTurns, maxTurns)
	}
	if d.MinTurns < 1 || d.MaxTurns < d.MinTurns {
		return fmt.Errorf("simulate.min_turns is %d and simulate.max_turns %d: want 1 <= min_turns <= max_turns", d.MinTurns,
			d.MaxTurns)
	}
	return nil
}
