package config

import (
	"errors"
	"fmt"
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
	// LearningRate is the learning rate of the updates.
	LearningRate float64 `yaml:"learning_rate,omitempty"`
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
		if s.MaxSteps == 0 && s.Context == 0 && s.LearningRate == 0 {
			fail(" changes nothing: want max_steps, context or learning_rate")
		}
		last = *s
	}
	return errors.Join(errs...)
}

// Longest returns the largest value of a limit in any stage.
func (c *Config) Longest(of func(Stage) int) int {
	most := 0
	for _, s := range c.Stages {
		most = max(most, of(s))
	}
	return most
}
