package train

import (
	"errors"
	"fmt"

	"gopkg.in/yaml.v3"

	"deepswe/rl/metrics"
)

// Guards watch a run for known failures: gradients that are not finite, a trainer that disagrees with its sampler, a
// sustained collapse of the reward, a policy that always does the same.
type Guards struct {
	// MaxSkipped optimizer steps in a row without a finite gradient stop the run; 0 means never.
	MaxSkipped int `yaml:"max_skipped"`
	// MismatchKL is the k3 estimate of KL(sampler, trainer) above which there is a warning; 0 means never.
	MismatchKL float64  `yaml:"mismatch_kl"`
	Collapse   Collapse `yaml:"collapse"`
	Stuck      Stuck    `yaml:"stuck"`
}

// Stuck is a policy that has collapsed to one reply: the rollouts of a group are the same and do not solve their task.
// Their advantages are all 0, so the run can no longer get out of it.
type Stuck struct {
	// Fraction is the share of groups of which that is true, in each of Patience steps in a row.
	Fraction float64 `yaml:"fraction"`
	Patience int     `yaml:"patience"`
	Action   Action  `yaml:"action"`
}

// Collapse is the condition that the mean reward over a window stays below a fraction of its maximum so far.
type Collapse struct {
	Window   int     `yaml:"window"`
	Fraction float64 `yaml:"fraction"`
	// Patience is the number of steps that it must stay there.
	Patience int    `yaml:"patience"`
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
	c, s := g.Collapse, g.Stuck
	var always error
	if s.Fraction == 0 {
		always = errors.New("guards.stuck.fraction is 0, which every step reaches; to switch it off: " +
			"set guards.stuck.action to off")
	}
	return errors.Join(
		natural("guards.max_skipped", g.MaxSkipped), fraction("guards.mismatch_kl", g.MismatchKL, 1e6),
		positive("guards.collapse.window", c.Window), positive("guards.collapse.patience", c.Patience),
		fraction("guards.collapse.fraction", c.Fraction, 1), fraction("guards.stuck.fraction", s.Fraction, 1), always,
		positive("guards.stuck.patience", s.Patience),
	)
}

// ErrGuard reports that a guard stopped the run. Its last checkpoint is kept.
var ErrGuard = errors.New("stopped by a guard")

// guard observes a run step by step. Its state depends on the metrics only, so a resumed run replays the old ones.
type guard struct {
	settings Guards
	rewards  []float64
	best     float64
	below    int
	stuck    int
	skipped  int
}

// observe takes a step's metrics and returns warnings, and an error that stops the run.
func (g *guard) observe(p metrics.Point) (warnings []string, err error) {
	if p.Step <= 0 {
		return nil, nil
	}
	if n := p.Values["optim/skipped"]; n > 0 {
		g.skipped += int(n)
		warnings = append(warnings, fmt.Sprintf("%d optimizer steps skipped: the gradient was not finite", int(n)))
	}
	if p.Values["optim/updates"] > 0 {
		g.skipped = 0
	}
	if g.settings.MaxSkipped > 0 && g.skipped >= g.settings.MaxSkipped {
		err = fmt.Errorf("%w: %d optimizer steps in a row had no finite gradient; "+
			"to fix: lower optimizer.learning_rate, or look at the corrections for mismatch", ErrGuard, g.skipped)
	}
	if kl := p.Values["mismatch/kl_k3"]; g.settings.MismatchKL > 0 && kl > g.settings.MismatchKL {
		warnings = append(warnings,
			fmt.Sprintf("sampler and trainer disagree: mismatch/kl_k3 is %.3g; check that both compute "+
				"in the same precision and that the sampler uses no filters, or set algorithm.set corrections", kl))
	}
	act := func(action Action, steps, patience int, text string) {
		switch {
		case steps < patience:
		case action == Stop && err == nil:
			err = fmt.Errorf("%w: %s", ErrGuard, text)
		case action == Warn && steps == patience:
			warnings = append(warnings, text)
		}
	}
	if g.collapsed(p) {
		act(g.settings.Collapse.Action, g.below, g.settings.Collapse.Patience, g.collapse())
	}
	g.repeats(p)
	s := g.settings.Stuck
	act(s.Action, g.stuck, s.Patience, fmt.Sprintf("for %d steps the rollouts of %g%% of the groups or more have been "+
		"the same, token for token, without solving their task: the policy no longer explores, and nothing can be learned "+
		"from it; to fix: begin again from an earlier checkpoint with a lower optimizer.learning_rate",
		g.stuck, 100*s.Fraction))
	return warnings, err
}

// repeats counts the steps in a row in which the policy was stuck.
func (g *guard) repeats(p metrics.Point) {
	share, ok := p.Values[stuckMetric]
	switch {
	case !ok:
	case share >= g.settings.Stuck.Fraction:
		g.stuck++
	default:
		g.stuck = 0
	}
}

// collapsed reports whether the mean of the window has been below its threshold for Patience steps.
func (g *guard) collapsed(p metrics.Point) bool {
	c := g.settings.Collapse
	reward, ok := p.Values["reward/mean"]
	if !ok {
		return false
	}
	g.rewards = append(g.rewards, reward)
	if len(g.rewards) > c.Window {
		g.rewards = g.rewards[1:]
	}
	if len(g.rewards) < c.Window {
		return false
	}
	sum := 0.0
	for _, r := range g.rewards {
		sum += r
	}
	mean := sum / float64(c.Window)
	g.best = max(g.best, mean)
	if mean >= c.Fraction*g.best {
		g.below = 0
		return false
	}
	g.below++
	return g.below >= c.Patience
}

func (g *guard) collapse() string {
	c := g.settings.Collapse
	return fmt.Sprintf("the mean reward over %d steps has been below %g of its best (%.3f) for %d steps", c.Window,
		c.Fraction, g.best, g.below)
}
