package train

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
)

// errGuard reports that a guard stopped the run. Its last checkpoint is kept.
var errGuard = errors.New("stopped by a guard")

// leastTrained is the smallest share of the sampled tokens that may be in rows. With less, too much of a run's time
// goes into tokens that nothing is learned from.
const leastTrained = 0.8

// guard observes a run step by step. Its state depends on the metrics only, so a resumed run replays the old ones.
type guard struct {
	settings config.Guards
	// pretrained is set if the policy began as a language model and the objective has no entropy term.
	pretrained bool
	rewards    []float64
	best       float64
	below      int
	skipped    int
	// unlearned counts the steps in a row whose rollouts were all masked or dropped.
	unlearned int
}

// observeStep takes a step's metrics and returns warnings, and an error that stops the run.
func (g *guard) observeStep(p metrics.Point) (warnings []string, err error) {
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
			"to fix: lower optimizer.learning_rate, or look at the corrections for mismatch", errGuard, g.skipped)
	}
	if text := g.filtered(p); text != "" {
		warnings = append(warnings, text)
	}
	if share, ok := p.Values[part.TrainedShare]; ok && p.Step == 1 && share < leastTrained {
		err = fmt.Errorf("%w: rows have only %.0f%% of the sampled tokens of the first step; the agent asked the model for "+
			"something else than its work (%.3g auxiliary conversations a rollout), or its answers did not reach it "+
			"(conversations and counts are in the last event of a rollout's steps.jsonl); to fix: turn titles, summaries "+
			"and telemetry of the agent off, or go on all the same with --resume", errGuard, 100*share,
			p.Values["conversations/"+string(trajectory.Auxiliary)])
	}
	if h, ok := p.Values[entropyMetric]; ok && p.Step == 1 && g.pretrained && (h < g.settings.Entropy.Min ||
		h > g.settings.Entropy.Max) {
		text := fmt.Sprintf("the policy that training begins with has an entropy of %.2f nats a token, outside of %g to %g, "+
			"in which no entropy term is needed; below, it explores too little to learn; above, it is noise that rewards may "+
			"make more of; check that it is sampled at temperature 1 with its own chat template; to fix: begin with another "+
			"model or with fine-tuning, or set the bounds in guards.entropy", h, g.settings.Entropy.Min, g.settings.Entropy.Max)
		switch {
		case g.settings.Entropy.Action == config.Stop && err == nil:
			err = fmt.Errorf("%w: %s", errGuard, text)
		case g.settings.Entropy.Action == config.Warn:
			warnings = append(warnings, text)
		}
	}
	if kl := p.Values["mismatch/kl_k3"]; g.settings.MismatchKL > 0 && kl > g.settings.MismatchKL {
		warnings = append(warnings,
			fmt.Sprintf("sampler and trainer disagree: mismatch/kl_k3 is %.3g; check that both compute "+
				"in the same precision and that the sampler uses no filters, or set algorithm.set corrections", kl))
	}
	if c := g.settings.Collapse; g.collapsed(p) {
		switch {
		case c.Action == config.Stop && err == nil:
			err = fmt.Errorf("%w: %s", errGuard, g.collapse())
		case c.Action == config.Warn && g.below == c.Patience:
			warnings = append(warnings, g.collapse())
		}
	}
	return warnings, err
}

// sayAgain is the number of steps in a row after which a warning that still holds is repeated.
const sayAgain = 10

// filtered returns a warning if the algorithm's filter left no rollout of the step to learn from.
func (g *guard) filtered(p metrics.Point) string {
	total := p.Values["rollouts/total"]
	if total == 0 || p.Values["rollouts/masked"]+p.Values["rollouts/filtered"] < total {
		g.unlearned = 0
		return ""
	}
	var reasons []string
	for name, share := range p.Values {
		reason, masked := strings.CutPrefix(name, "masked/")
		if !masked {
			reason, masked = strings.CutPrefix(name, "dropped/")
		}
		if masked && share > 0 {
			reasons = append(reasons, reason)
		}
	}
	g.unlearned++
	if g.unlearned%sayAgain != 1 || len(reasons) == 0 {
		return ""
	}
	slices.Sort(reasons)
	return fmt.Sprintf("nothing was learned: all %.0f rollouts ended by %s, and the algorithm masks or drops those; "+
		"to fix: raise that limit, or set filter.%s=keep in algorithm.set", total, strings.Join(reasons, " or "), reasons[0])
}

// replay observes the steps that a resumed run has behind it. After a step at which a guard stopped it, the guard
// starts afresh.
func (g *guard) replay(history []metrics.Point, log *slog.Logger) {
	for _, p := range history {
		if _, err := g.observeStep(p); err != nil {
			log.Warn("a guard had stopped this run", "step", p.Step, "error", err)
			*g = guard{settings: g.settings, pretrained: g.pretrained}
		}
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
