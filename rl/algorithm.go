package rl

import (
	"errors"
	"fmt"
	"strings"

	"deepswe/agent/trajectory"
)

// Baseline is what is subtracted from a reward.
type Baseline string

const (
	// LeaveOneOut is the mean reward of the other members of the group (RLOO, Ahmadian et al. 2024). With n members it
	// is n/(n-1) times what Mean gives.
	LeaveOneOut Baseline = "leave_one_out"
	// Mean is the mean reward of the group, the rollout's own included (GRPO, Shao et al. 2024).
	Mean Baseline = "mean"
	// NoBaseline leaves the reward as it is.
	NoBaseline Baseline = "none"
)

// Normalise is what an advantage is divided by.
type Normalise string

const (
	// NotNormalised leaves the difference from the baseline as it is.
	NotNormalised Normalise = "none"
	// ByStd divides by the sample standard deviation of the group plus 1e-6 (GRPO).
	ByStd Normalise = "std"
	// ByMean divides by the mean reward of the group: MaxRL (arXiv 2602.02710). A group whose mean is not positive has
	// advantages of 0. It is defined for the baseline Mean and rewards from 0 up.
	ByMean Normalise = "mean"
)

// Aggregation is how the losses of tokens become one number. With R rollouts in the batch (masked ones count, dropped
// ones do not), the maximum length W, and n trained tokens of a rollout over all its rows, each token's share is as
// given below. The names in use elsewhere mislead: seq-mean-token-sum is sequenceMeanTokenSum in verl, and was
// constantLength in the fork that trained DeepSWE.
type Aggregation string

const (
	// constantLength is 1/(R W): Dr. GRPO (Liu et al. 2025), GRPO++.
	constantLength Aggregation = "constant_length"
	// tokenMean is 1/(sum of n): DAPO (Yu et al. 2025).
	tokenMean Aggregation = "token_mean"
	// sequenceMeanTokenSum is 1/R.
	sequenceMeanTokenSum Aggregation = "sequence_mean_token_sum"
	// sequenceMeanTokenMean is 1/(R n): GRPO.
	sequenceMeanTokenMean Aggregation = "sequence_mean_token_mean"
)

// Mode is what a filter does with the rollouts of a stop reason.
type Mode string

const (
	// Keep trains on the rollout like on any other.
	Keep Mode = "keep"
	// Mask trains none of the rollout's tokens; its reward stays in its siblings' baseline, it counts in R, and its rows
	// have a mask of zeros. This is what DeepSWE's code did.
	Mask Mode = "mask"
	// Drop takes the rollout out before the baseline, as if it had never been sampled.
	Drop Mode = "drop"
)

// Singleton is what to do with a group of one member, which has nothing to be compared with.
type Singleton string

const (
	// singletonZero takes 0 for the baseline: the reward is the advantage, as in DeepSWE's code and in verl. A standard
	// deviation is 1.
	singletonZero Singleton = "zero"
	// singletonSelf takes its own reward for the baseline: the advantage is 0.
	singletonSelf Singleton = "self"
	// singletonDrop drops the group.
	singletonDrop Singleton = "drop"
)

// MaskedReward is the reward with which a masked rollout stays in the baseline.
type MaskedReward string

const (
	// zeroReward is DeepSWE's: its engine did not grade a masked rollout at all. The zero counts in the baseline of the
	// siblings and nowhere else.
	zeroReward MaskedReward = "zero"
	// recordedReward keeps the rollout's own reward: a patch salvaged at the step limit may have passed.
	recordedReward MaskedReward = "recorded"
)

// Overflow says what to do with a row beyond the maximum length.
type Overflow string

const (
	// truncate cuts the end off, and counts it.
	truncate Overflow = "truncate"
	// refuse makes it an error.
	refuse Overflow = "refuse"
)

// Algorithm is how a batch of rollouts becomes advantages and shares of the loss. Every choice is a switch of its own,
// and a preset is a setting of them all. The zero value of each is GRPO++'s, except that nothing is filtered.
type Algorithm struct {
	Baseline    Baseline
	Normalise   Normalise
	Aggregation Aggregation
	// Filter maps stop reasons to modes; rollouts of any other reason are kept.
	Filter map[trajectory.StopReason]Mode
	// DropUniform drops a group of two or more whose members all have the same reward: it teaches nothing, and without it
	// R and the number of tokens count only what does (DAPO's dynamic sampling, without the sampling).
	DropUniform bool
	Singleton   Singleton
	// MinGroup drops groups with fewer members; 0 and 1 drop none.
	MinGroup     int
	MaskedReward MaskedReward
	Overlong     Overlong
	Steps        Steps
	// RewardFactor multiplies the reward of rollouts that end for a reason, such as those whose patch was graded although
	// they were cut short; rollouts of any other reason keep theirs. The factor of a reason that the filter does not
	// keep must be 1.
	RewardFactor map[trajectory.StopReason]float64
	// MaxLength is W, and the longest row. constantLength needs it; the others may leave it 0 for no limit.
	MaxLength int
	Overflow  Overflow
	Objective Objective
}

// Overlong is DAPO's soft punishment of length: with y tokens that the policy sampled in a rollout, nothing is added to
// the reward up to Max - Cache, then a penalty that grows linearly to -1 at Max, then -1. A Max of 0 is off.
type Overlong struct{ Max, Cache int }

func (o Overlong) penalty(y int) float64 {
	switch start := o.Max - o.Cache; {
	case o.Max == 0 || y <= start:
		return 0
	case y > o.Max:
		return -1
	default:
		return float64(start-y) / float64(o.Cache)
	}
}

// Steps is a penalty on the number of turns (arXiv 2508.03501): nothing up to Free, then one that grows linearly to -1
// at Max, and goes on. A Max of 0 is off. OnlySolved spares rollouts whose reward is not positive, which would
// otherwise gain by giving up.
type Steps struct {
	Free, Max  int
	OnlySolved bool
}

func (s Steps) penalty(turns int, reward float64) float64 {
	if s.Max == 0 || turns <= s.Free || s.OnlySolved && reward <= 0 {
		return 0
	}
	return float64(s.Free-turns) / float64(s.Max-s.Free)
}

// DefaultPreset is the algorithm of DeepSWE.
const DefaultPreset = "grpo++"

// Presets are the names that [Preset] accepts.
func Presets() []string {
	return []string{"grpo++", "grpo", "dr-grpo", "rloo", "dapo", "maxrl", "cispo", "gspo", "sapo", "dppo"}
}

// Preset returns a named algorithm. GRPO++ and DAPO clip asymmetrically, and GSPO as its paper does; the others have
// the 0.2 of PPO on both sides, where they clip.
func Preset(name string) (Algorithm, error) {
	a := Algorithm{
		Baseline: LeaveOneOut, Aggregation: constantLength, Filter: map[trajectory.StopReason]Mode{},
		Singleton: singletonZero, MaskedReward: recordedReward, Overflow: truncate,
		Objective: Objective{Surrogate: PPO, ClipLow: 0.2, ClipHigh: 0.2},
	}
	o := &a.Objective
	switch name {
	case "grpo++":
		a.Objective.ClipHigh, a.MaskedReward = 0.28, zeroReward
		a.Filter[trajectory.MaxSteps], a.Filter[trajectory.MaxContext], a.Filter[trajectory.Timeout] = Mask, Mask, Mask
	case "grpo":
		a.Baseline, a.Normalise, a.Aggregation = Mean, ByStd, sequenceMeanTokenMean
	case "dr-grpo":
		a.Baseline = Mean
	case "rloo":
		a.Aggregation = sequenceMeanTokenSum
	case "dapo":
		a.Baseline, a.Normalise, a.Aggregation = Mean, ByStd, tokenMean
		a.Objective.ClipHigh = 0.28
		a.Filter[trajectory.MaxContext] = Mask
		a.DropUniform = true
	case "maxrl":
		a.Baseline, a.Normalise, a.Aggregation = Mean, ByMean, tokenMean
	case "cispo":
		a.Baseline, a.Normalise, a.Aggregation = Mean, ByStd, tokenMean
		o.Surrogate = CISPO
	case "gspo":
		a.Baseline, a.Normalise, a.Aggregation = Mean, ByStd, sequenceMeanTokenMean
		o.Surrogate, o.ClipLow, o.ClipHigh = GSPO, 3e-4, 4e-4
	case "sapo":
		a.Baseline, a.Normalise, a.Aggregation = Mean, ByStd, sequenceMeanTokenMean
		o.Surrogate = SAPO
	case "dppo":
		a.Baseline, a.Aggregation = Mean, tokenMean
		o.Surrogate, o.MismatchPenalty, o.Corrections.DivergenceTV = importanceSampling, 1e-3, 0.2
	default:
		return Algorithm{}, fmt.Errorf("algorithm %q is not one of %s", name, strings.Join(Presets(), ", "))
	}
	return a, nil
}

// Grades reports whether the rewards of rollouts that end for the reason count: what is dropped, or masked with a zero,
// need not be graded.
func (a *Algorithm) Grades(r trajectory.StopReason) bool {
	switch a.Filter[r] {
	case Drop:
		return false
	case Mask:
		return a.MaskedReward == recordedReward
	}
	return true
}

// Check refuses unknown names and settings that contradict each other.
func (a Algorithm) Check() error {
	_, err := a.resolve()
	return err
}

// resolve checks the algorithm and returns it with the names of the defaults filled in.
func (a Algorithm) resolve() (Algorithm, error) {
	a.ownMaps()
	for _, s := range a.settings() {
		if err := s.set(s.get()); err != nil {
			return a, fmt.Errorf("%s: %w", s.key, err)
		}
	}
	for reason, factor := range a.RewardFactor {
		if mode := a.Filter[reason]; mode != "" && mode != Keep && factor != 1 {
			return a, fmt.Errorf("reward_factor.%s is %v, and filter.%s is %s; to fix: set it to %s", reason, factor, reason,
				mode, Keep)
		}
	}
	_, err := a.Objective.resolve()
	switch {
	case err != nil:
		return a, err
	case a.Aggregation == constantLength && a.MaxLength == 0:
		return a, errors.New("aggregation constant_length divides by the maximum length; set max_length (--max-length)")
	case a.Normalise == ByMean && (a.Baseline != Mean || a.Overlong.Max > 0 || a.Steps.Max > 0):
		return a, errors.New("normalise mean is for the baseline mean and rewards from 0 up; set baseline=mean, and " +
			"neither overlong nor steps")
	case a.Steps.Free > 0 && a.Steps.Max <= a.Steps.Free:
		return a, fmt.Errorf("steps.max is %d: want more than steps.free, %d", a.Steps.Max, a.Steps.Free)
	case a.Overlong.Cache > a.Overlong.Max:
		return a, fmt.Errorf("overlong.cache is %d, more than overlong.max of %d", a.Overlong.Cache, a.Overlong.Max)
	}
	return a, nil
}
