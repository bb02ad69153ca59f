package rl

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"deepswe/agent/trajectory"
)

// ErrNoSetting reports a key that no setting of an algorithm has.
var ErrNoSetting = errors.New("is not a setting of an algorithm")

// setting is one switch of an algorithm under the name that --set and the configuration use. A get of a zero value
// returns the name of the default, and set of what get returned changes nothing.
type setting struct {
	key string
	get func() string
	set func(value string) error
}

// Set changes one switch by name, as in --set filter.max_steps=mask. Names and values may be written with - for _.
func (a *Algorithm) Set(key, value string) error {
	key, value = strings.ReplaceAll(key, "-", "_"), strings.TrimSpace(value)
	a.ownMaps()
	all := a.settings()
	if reason, ok := strings.CutPrefix(key, "filter."); ok && reason != "" {
		all = []setting{a.filter(trajectory.StopReason(reason))}
	}
	if reason, ok := strings.CutPrefix(key, factorPrefix); ok && reason != "" {
		all = []setting{a.factor(trajectory.StopReason(reason))}
	}
	if key == "std" { // what normalise was called when there were two choices
		key = "normalise"
		if now, ok := map[string]Normalise{"true": ByStd, "false": NotNormalised}[value]; ok {
			value = string(now)
		}
	}
	var keys []string
	for _, s := range all {
		if s.key == key {
			if err := s.set(value); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			return nil
		}
		if !strings.HasPrefix(s.key, "filter.") && !strings.HasPrefix(s.key, factorPrefix) {
			keys = append(keys, s.key)
		}
	}
	return fmt.Errorf("%q %w; there are %s, and filter.REASON and reward_factor.REASON with a REASON of %s",
		key, ErrNoSetting, strings.Join(keys, ", "), list(trajectory.StopReasons()))
}

// ownMaps replaces the maps by copies, which no other copy of the algorithm shares.
func (a *Algorithm) ownMaps() {
	if a.Filter = maps.Clone(a.Filter); a.Filter == nil {
		a.Filter = map[trajectory.StopReason]Mode{}
	}
	if a.RewardFactor = maps.Clone(a.RewardFactor); a.RewardFactor == nil {
		a.RewardFactor = map[trajectory.StopReason]float64{}
	}
}

// Setting is one switch with its value.
type Setting struct{ Key, Value string }

// Settings returns every switch with its current value, in a fixed order. A dry run prints them, and [Algorithm.Set]
// accepts them.
func (a Algorithm) Settings() []Setting {
	var out []Setting
	for _, s := range a.settings() {
		out = append(out, Setting{s.key, s.get()})
	}
	return out
}

// String lists the settings, one a line.
func (a Algorithm) String() string {
	var b strings.Builder
	for _, s := range a.settings() {
		fmt.Fprintf(&b, "%s=%s\n", s.key, s.get())
	}
	return b.String()
}

func (a *Algorithm) settings() []setting {
	o, c := &a.Objective, &a.Objective.Corrections
	all := []setting{
		oneOf("baseline", &a.Baseline, LeaveOneOut, Mean, NoBaseline),
		oneOf("normalise", &a.Normalise, NotNormalised, ByStd, ByMean),
		a.aggregation(),
		oneOf("singleton", &a.Singleton, singletonZero, singletonSelf, singletonDrop),
		toggle("uniform", &a.DropUniform, "keep", "drop"),
		count("min_group", &a.MinGroup),
		oneOf("masked_reward", &a.MaskedReward, zeroReward, recordedReward),
		count("max_length", &a.MaxLength),
		oneOf("overflow", &a.Overflow, truncate, refuse),
		count("overlong.max", &a.Overlong.Max),
		count("overlong.cache", &a.Overlong.Cache),
		count("steps.free", &a.Steps.Free),
		count("steps.max", &a.Steps.Max),
		toggle("steps.only_solved", &a.Steps.OnlySolved, "false", "true"),
	}
	reasons := trajectory.StopReasons()
	for _, r := range slices.Sorted(maps.Keys(a.Filter)) {
		if !slices.Contains(reasons, r) {
			reasons = append(reasons, r)
		}
	}
	for _, r := range reasons {
		all = append(all, a.filter(r))
	}
	for _, r := range slices.Sorted(maps.Keys(a.RewardFactor)) {
		all = append(all, a.factor(r))
	}
	return append(all,
		oneOf("surrogate", &o.Surrogate, sampledSurrogates()...),
		number("clip.low", &o.ClipLow, 0.2),
		number("clip.high", &o.ClipHigh, 0.28),
		number("clip.dual", &o.DualClip, 0),
		number("ratio.min", &o.RatioMin, 0),
		number("ratio.max", &o.RatioMax, 5),
		number("gate.positive", &o.GatePositive, 1),
		number("gate.negative", &o.GateNegative, 1.05),
		number("mismatch_penalty", &o.MismatchPenalty, 0),
		number("entropy", &o.Entropy, 0),
		toggle("decoupled", &o.Decoupled, "false", "true"),
		number("corrections.truncate_token", &c.TruncateToken, 0),
		number("corrections.truncate_sequence", &c.TruncateSequence, 0),
		number("corrections.geometric_min", &c.GeometricMin, 0),
		number("corrections.geometric_max", &c.GeometricMax, 0),
		number("corrections.product_min", &c.ProductMin, 0),
		number("corrections.product_max", &c.ProductMax, 0),
		number("corrections.veto_below", &c.VetoBelow, 0),
		number("corrections.veto_above", &c.VetoAbove, 0),
		number("corrections.token_min", &c.TokenMin, 0),
		number("corrections.token_max", &c.TokenMax, 0),
		number("corrections.divergence_tv", &c.DivergenceTV, 0),
		number("corrections.divergence_kl", &c.DivergenceKL, 0),
		number("corrections.divergence_low", &c.DivergenceLow, 0),
	)
}

// aggregation also accepts the names that other systems use, except for the ambiguous one.
func (a *Algorithm) aggregation() setting {
	s := oneOf("aggregation", &a.Aggregation, constantLength, tokenMean, sequenceMeanTokenSum, sequenceMeanTokenMean)
	set := s.set
	s.set = func(value string) error {
		switch strings.ReplaceAll(value, "-", "_") {
		case "seq_mean_token_sum":
			return fmt.Errorf("%q is 1/R in verl and 1/(R W) in DeepSWE's fork of it: say %s or %s",
				value, sequenceMeanTokenSum, constantLength)
		case "seq_mean_token_sum_norm":
			return set(string(constantLength))
		case "seq_mean_token_mean":
			return set(string(sequenceMeanTokenMean))
		}
		return set(value)
	}
	return s
}

func (a *Algorithm) filter(r trajectory.StopReason) setting {
	return setting{
		key: "filter." + string(r),
		get: func() string { return string(cmp.Or(a.Filter[r], Keep)) },
		set: func(value string) error {
			mode, err := choose(Mode(value), Keep, Mask, Drop)
			if err == nil {
				a.Filter[r] = mode
			}
			return err
		},
	}
}

const factorPrefix = "reward_factor."

func (a *Algorithm) factor(r trajectory.StopReason) setting {
	return setting{
		key: factorPrefix + string(r),
		get: func() string {
			if factor, ok := a.RewardFactor[r]; ok {
				return strconv.FormatFloat(factor, 'g', -1, 64)
			}
			return "1"
		},
		set: func(value string) error {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil || !(v >= 0 && v <= 1) {
				return fmt.Errorf("%q is not a number from 0 to 1", value)
			}
			a.RewardFactor[r] = v
			return nil
		},
	}
}

// oneOf is a choice of names. The first is the default.
func oneOf[T ~string](key string, p *T, choices ...T) setting {
	return setting{
		key: key,
		get: func() string { return string(cmp.Or(*p, choices[0])) },
		set: func(value string) error {
			v, err := choose(T(value), choices...)
			if err == nil {
				*p = v
			}
			return err
		},
	}
}

func choose[T ~string](value T, choices ...T) (T, error) {
	v := T(strings.ReplaceAll(string(value), "-", "_"))
	if slices.Contains(choices, v) {
		return v, nil
	}
	return "", fmt.Errorf("%q is not one of %s", value, list(choices))
}

func list[T ~string](words []T) string {
	var text []string
	for _, w := range words {
		text = append(text, string(w))
	}
	return strings.Join(text, ", ")
}

func toggle(key string, p *bool, off, on string) setting {
	return setting{
		key: key,
		get: func() string {
			if *p {
				return on
			}
			return off
		},
		set: func(value string) error {
			v, err := choose(value, off, on)
			if err == nil {
				*p = v == on
			}
			return err
		},
	}
}

func count(key string, p *int) setting {
	return setting{
		key: key,
		get: func() string { return strconv.Itoa(*p) },
		set: func(value string) error {
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return fmt.Errorf("%q is not a whole number from 0 up", value)
			}
			*p = n
			return nil
		},
	}
}

// number is a setting for which 0 means unset.
func number(key string, p *float64, unset float64) setting {
	return setting{
		key: key,
		get: func() string { return strconv.FormatFloat(cmp.Or(*p, unset), 'g', -1, 64) },
		set: func(value string) error {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil || !(v >= 0) || math.IsInf(v, 0) {
				return fmt.Errorf("%q is not a number from 0 up", value)
			}
			if v == 0 && unset != 0 {
				return fmt.Errorf("0 means the default of %v; for no clip use the surrogate %s", unset, importanceSampling)
			}
			*p = v
			return nil
		},
	}
}
