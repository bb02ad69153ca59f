package config

import (
	"errors"
	"fmt"

	"gopkg.in/yaml.v3"
)

// Curriculum says how often each task is visited.
type Curriculum struct {
	// On lets the tasks' solve rates decide which tasks come next. Without it, each task comes once in a round, and
	// each round is shuffled.
	On bool `yaml:"on"`
	// A task that either all rollouts or none solved in After visits in a row is demoted: it comes only every Every
	// rounds, until its rollouts differ again. With an Every of 0 it never comes again.
	After int `yaml:"after" least:"1"`
	Every int `yaml:"every" least:"0"`
	// MaxRate also demotes a task if more than this share of its rollouts solve it.
	MaxRate float64 `yaml:"max_rate" most:"1"`
	// Exhausted is what happens when every task is demoted.
	Exhausted Action `yaml:"exhausted"`
}

// Prefix lets groups begin with a part of an earlier rollout at the same task, which is not learned from: of one that
// solved it where most rollouts fail, and of one that failed where most solve it, so that half of them solve it.
type Prefix struct {
	On bool `yaml:"on"`
	// Step is how much longer or shorter the part becomes, as a share of the earlier rollout's replies, after a group
	// whose share of successes is further than Slack from a half. Most is the longest part.
	Step  float64 `yaml:"step" most:"1"`
	Slack float64 `yaml:"slack" most:"0.499"`
	Most  float64 `yaml:"most" most:"1"`
}

func (p Prefix) validate(replays bool) error {
	if !p.On {
		return nil
	}
	var where, step error
	if !replays {
		where = errors.New("prefix.on: rollouts of this environment cannot be played again; want the environment swe with " +
			"deepswe's own agent")
	}
	if p.Step == 0 || p.Most < p.Step {
		step = fmt.Errorf("prefix.step is %g, and prefix.most is %g: want a step above 0, and most not below it",
			p.Step, p.Most)
	}
	return errors.Join(where, step)
}

// Teacher is a model with the policy's tokenizer, behind an endpoint that scores prompts, from which the policy is
// distilled on its own rollouts: a token's advantage is how much likelier it is to the teacher.
type Teacher struct {
	// URL is the endpoint; empty means that there is no teacher. Model is served there.
	URL   string `yaml:"url"`
	Model string `yaml:"model"`
	// Scale is the factor of the difference of the log-probabilities. Clip bounds a token's difference on both sides
	// before it is scaled; 0 means not at all.
	Scale float64 `yaml:"scale" most:"1e6"`
	Clip  float64 `yaml:"clip" most:"1e6"`
	// Reward adds the advantage that the rollout's reward gives. Otherwise, rewards are only measured.
	Reward bool `yaml:"reward"`
}

func (t Teacher) validate() error {
	switch {
	case t.URL == "" && t.Model != "":
		return errors.New("teacher.model is given without teacher.url: want the address of an endpoint that scores prompts")
	case t.URL != "" && t.Scale == 0:
		return errors.New("teacher.scale is 0, and nothing would be learned from the teacher; want a number above 0")
	}
	return nil
}

// Guards watch a run for known failures: gradients that are not finite, a trainer that disagrees with its sampler, a
// sustained collapse of the reward.
type Guards struct {
	// MaxSkipped optimizer steps in a row without a finite gradient stop the run; 0 means never.
	MaxSkipped int `yaml:"max_skipped" least:"0"`
	// MismatchKL is the k3 estimate of KL(sampler, trainer) above which there is a warning; 0 means never.
	MismatchKL float64  `yaml:"mismatch_kl" most:"1e6"`
	Collapse   Collapse `yaml:"collapse"`
	Entropy    Entropy  `yaml:"entropy"`
}

// Entropy is what the entropy of a pretrained policy's sampled tokens, in nats, must be when training begins, if the
// objective has no entropy term: DeepSWE leaves the term out on this condition.
type Entropy struct {
	Min    float64 `yaml:"min" most:"100"`
	Max    float64 `yaml:"max" most:"100"`
	Action Action  `yaml:"action"`
}

// Collapse is the condition that the mean reward over a window stays below a fraction of its maximum so far.
type Collapse struct {
	Window   int     `yaml:"window" least:"1"`
	Fraction float64 `yaml:"fraction" most:"1"`
	// Patience is the number of steps that it must stay there.
	Patience int    `yaml:"patience" least:"1"`
	Action   Action `yaml:"action"`
}

// Action is what a guard does.
type Action string

// A guard does nothing, warns, or stops the run.
const (
	Off  Action = "off"
	Warn Action = "warn"
	Stop Action = "stop"
)

// UnmarshalYAML accepts an action. YAML reads a bare off as a boolean.
func (a *Action) UnmarshalYAML(n *yaml.Node) error {
	switch v := Action(n.Value); v {
	case Off, Warn, Stop:
		*a = v
		return nil
	}
	return fmt.Errorf("line %d: action is %q: want one of off, warn, stop", n.Line, n.Value)
}

func (g Guards) validate() error {
	if g.Entropy.Min > g.Entropy.Max {
		return fmt.Errorf("guards.entropy.max is %g: want at least guards.entropy.min, %g", g.Entropy.Max, g.Entropy.Min)
	}
	return nil
}
