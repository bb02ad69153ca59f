package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepswe/rl/train/part"
)

// Stage changes some settings from a certain step on. Settings that it leaves out keep the values of the previous
// stage.
type Stage struct {
	// From is the first step of the stage. Otherwise, it begins when a metric has stopped rising.
	From  int    `yaml:"from,omitempty"`
	After *Stall `yaml:"after,omitempty"`

	// MaxSteps and Context are the limits of training rollouts that begin from then on. Rollouts under way keep theirs.
	MaxSteps int `yaml:"max_steps,omitempty"`
	Context  int `yaml:"context,omitempty"`
	// Set changes other settings. Its keys are those of --set. Once loaded, it holds every key that changes, the
	// learning rate included.
	Set          map[string]string `yaml:"set,omitempty"`
	LearningRate float64           `yaml:"learning_rate,omitempty"`

	whole *Config // the configuration in force from then on
}

// stageable returns the keys that a stage may change. All others are about what is opened once in a run.
func stageable() []string {
	return []string{
		"algorithm.preset", "algorithm.set", "optimizer", "rollouts.tasks", "rollouts.group", "rollouts.refill", "curriculum",
		"prefix",
	}
}

// Stall is the condition that a metric has stopped rising: its mean over the last Window steps exceeds that of the
// Window steps before by at most By.
type Stall struct {
	Metric string  `yaml:"metric"`
	Window int     `yaml:"window"`
	By     float64 `yaml:"by"`
}

// Stalls reports whether the values of a stage, one a step, have stopped rising.
func (s Stall) Stalls(values []float64) bool {
	n := len(values)
	if n < 2*s.Window {
		return false
	}
	rise := 0.0
	for i := range s.Window {
		rise += (values[n-1-i] - values[n-1-s.Window-i]) / float64(s.Window)
	}
	return rise <= s.By
}

// checkStages refuses stages that are out of order, or that change nothing.
func (c *Config) checkStages() error {
	var errs []error
	var last Stage
	for i := range c.Stages {
		s := &c.Stages[i]
		at := fmt.Sprintf("stages[%d]", i)
		fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(at+format, args...)) }
		switch {
		case s.From > 0 && s.After != nil:
			fail(" has both from and after: want one of them")
		case s.From == 0 && s.After == nil:
			fail(" does not say when it begins: want from, the first step, or after, a metric that stops rising")
		case s.From > 0 && last.After != nil:
			fail(".from: the stage before begins when a metric stops rising, and nobody knows whether that is before step %d; "+
				"want after", s.From)
		case s.After == nil && s.From <= max(1, last.From):
			fail(".from is %d: want more than %d; stages are in the order in which they begin", s.From, max(1, last.From))
		case s.After == nil && s.From > c.Steps:
			fail(".from is %d, and the run has %d steps", s.From, c.Steps)
		}
		if a := s.After; a != nil && (a.Metric == "" || a.Window < 1) {
			fail(".after: want a metric, as reward/mean, and a window of at least 1 step")
		}
		if s.MaxSteps < 0 || s.Context < 0 || !(s.LearningRate >= 0 && s.LearningRate <= 1) {
			fail(": want max_steps and context from 1 up, and a learning_rate above 0 and at most 1")
		}
		last = *s
	}
	return errors.Join(errs...)
}

// loadStages makes the configuration of each stage, and checks it like any other. root is what the configuration was
// loaded from.
func (c *Config) loadStages(root *yaml.Node) error {
	before := *c
	before.Stages = nil
	for i := range c.Stages {
		s := &c.Stages[i]
		given := map[string]string{}
		maps.Copy(given, s.Set)
		if s.LearningRate > 0 {
			given["optimizer.learning_rate"], s.LearningRate = fmt.Sprint(s.LearningRate), 0
		}
		fail := func(err error) error { return fmt.Errorf("stages[%d].set: %w", i, err) }
		for _, key := range slices.Sorted(maps.Keys(given)) {
			var err error
			if root, err = override(root, key+"="+given[key]); err != nil {
				return fail(err)
			}
		}
		whole, err := loadWithoutStages(root, c.parts)
		if err != nil {
			return fail(err)
		}
		whole.Stages = nil
		changes, err := before.Differs(whole)
		if err != nil {
			return fail(err)
		}
		s.Set = map[string]string{}
		for _, d := range changes {
			below := func(key string) bool { return d.Key == key || strings.HasPrefix(d.Key, key+".") }
			if !slices.ContainsFunc(stageable(), below) {
				return fail(fmt.Errorf("%s cannot change in the course of a run; what can: %s, and the stage's own max_steps and "+
					"context", d.Key, strings.Join(stageable(), ", ")))
			}
			s.Set[d.Key] = d.To
		}
		if s.MaxSteps == 0 && s.Context == 0 && len(s.Set) == 0 {
			return fmt.Errorf("stages[%d] changes nothing: want max_steps, context or set", i)
		}
		whole.Limits = part.Limits{
			Steps: cmp.Or(s.MaxSteps, before.Limits.Steps), Context: cmp.Or(s.Context, before.Limits.Context),
		}
		s.whole, before = &whole, whole
	}
	return nil
}

// Stage returns the configuration in force once the given number of stages has begun.
func (c *Config) Stage(begun int) *Config {
	if begun == 0 {
		return c
	}
	return c.Stages[begun-1].whole
}

// Longest returns the largest value of a limit in any stage.
func (c *Config) Longest(of func(Stage) int) int {
	most := 0
	for _, s := range c.Stages {
		most = max(most, of(s))
	}
	return most
}
