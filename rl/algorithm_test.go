package rl

import (
	"strings"
	"testing"

	"deepswe/agent/trajectory"
)

func TestPresetsAreTheirTable(t *testing.T) {
	t.Parallel()
	filtered := func(a Algorithm) string {
		var on []string
		for _, r := range trajectory.StopReasons() {
			if m := a.Filter[r]; m != "" && m != Keep {
				on = append(on, string(r)+" "+string(m))
			}
		}
		return strings.Join(on, ", ")
	}
	for name, want := range map[string]struct {
		baseline    Baseline
		normalise   Normalise
		aggregation Aggregation
		filter      string
		uniform     bool
		high        float64
	}{
		"grpo++":  {LeaveOneOut, "", constantLength, "max_steps mask, max_context mask, timeout mask", false, 0.28},
		"grpo":    {Mean, ByStd, sequenceMeanTokenMean, "", false, 0.2},
		"dr-grpo": {Mean, "", constantLength, "", false, 0.2},
		"rloo":    {LeaveOneOut, "", sequenceMeanTokenSum, "", false, 0.2},
		"dapo":    {Mean, ByStd, tokenMean, "max_context mask", true, 0.28},
		"maxrl":   {Mean, ByMean, tokenMean, "", false, 0.2},
		"cispo":   {Mean, ByStd, tokenMean, "", false, 0.2},
		"gspo":    {Mean, ByStd, sequenceMeanTokenMean, "", false, 4e-4},
		"sapo":    {Mean, ByStd, sequenceMeanTokenMean, "", false, 0.2},
		"dppo":    {Mean, "", tokenMean, "", false, 0.2},
	} {
		a, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		if a.Baseline != want.baseline || a.Normalise != want.normalise || a.Aggregation != want.aggregation ||
			filtered(a) != want.filter || a.DropUniform != want.uniform || a.Objective.ClipHigh != want.high || a.Singleton != singletonZero {
			t.Errorf("%s is %+v", name, a)
		}
	}
	if _, err := Preset("ppo"); err == nil || !strings.Contains(err.Error(), "dr-grpo") {
		t.Errorf("error %v does not name the presets", err)
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	a := preset(t, "grpo++")
	for _, s := range []string{"baseline=mean", "std=true", "aggregation=token-mean", "singleton=drop", "uniform=drop",
		"min-group=2",
		"masked_reward=zero", "max_length=4096", "overflow=refuse", "overlong.max=20480", "overlong.cache=4096",
		"filter.max-steps=drop",
		"filter.length=mask", "surrogate=importance-sampling", "clip.low=0.1", "clip.high=0.3", "clip.dual=3",
		"entropy=0.001",
		"decoupled=true", "corrections.truncate_token=2", "corrections.geometric_min=0.99", "corrections.geometric_max=1.01",
		"corrections.veto_below=1e-4", "corrections.veto_above=100"} {
		key, value, _ := strings.Cut(s, "=")
		if err := a.Set(key, value); err != nil {
			t.Error(err)
		}
	}
	want := Algorithm{Baseline: Mean, Normalise: ByStd, Aggregation: tokenMean, Singleton: singletonDrop,
		DropUniform:  true,
		MinGroup:     2,
		MaskedReward: zeroReward, MaxLength: 4096, Overflow: refuse, Overlong: Overlong{20480, 4096},
		Filter: map[trajectory.StopReason]Mode{"max_steps": Drop, "max_context": Mask, "timeout": Mask, "length": Mask},
		Objective: Objective{Surrogate: importanceSampling, ClipLow: 0.1, ClipHigh: 0.3, DualClip: 3, Entropy: 0.001,
			Decoupled:   true,
			Corrections: Corrections{TruncateToken: 2, GeometricMin: 0.99, GeometricMax: 1.01, VetoBelow: 1e-4, VetoAbove: 100}}}
	if a.String() != want.String() {
		t.Errorf("set\n%swant\n%s", a, want)
	}
	if a.Filter["max_steps"] != Drop || a.Objective != want.Objective || a.Overlong != want.Overlong ||
		a.MaxLength != want.MaxLength {
		t.Errorf("set %+v", a)
	}
}

// The settings that a dry run prints can be set again, and give the same algorithm.
func TestSettingsRoundTrip(t *testing.T) {
	t.Parallel()
	for _, name := range Presets() {
		a := preset(t, name, "filter.length=mask")
		var b Algorithm
		for _, s := range a.Settings() {
			if err := b.Set(s.Key, s.Value); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if a.String() != b.String() {
			t.Errorf("%s:\n%s, set again:\n%s", name, a, b)
		}
	}
}

func TestSetDoesNotReachIntoACopy(t *testing.T) {
	t.Parallel()
	a := preset(t, "grpo++")
	b := a
	if err := b.Set("filter.max_steps", "drop"); err != nil {
		t.Fatal(err)
	}
	if a.Filter[trajectory.MaxSteps] != Mask {
		t.Error("the filter of the original has changed")
	}
}

func TestSetRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, value, want string }{
		{"filters.max_steps", "mask", "there are baseline, normalise, aggregation"},
		{"filter.max_steps", "skip", "keep, mask, drop"},
		{"filter.", "mask", "not a setting"},
		{"baseline", "median", "leave_one_out, mean, none"},
		{"std", "yes", "\"yes\" is not one of none, std, mean"},
		{"reward_factor.timeout", "1.5", "from 0 to 1"},
		{"aggregation", "seq-mean-token-sum", "1/R in verl and 1/(R W)"},
		{"min_group", "-1", "whole number"},
		{"max_length", "32k", "whole number"},
		{"clip.high", "NaN", "number from 0"},
		{"clip.low", "0", "surrogate importance_sampling"},
	} {
		a := preset(t, "grpo++")
		err := a.Set(c.key, c.value)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: error %v, want one with %q", c.key, c.value, err, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]Algorithm{
		"--max-length":                 {},
		"max_length: \"-1\"":           {MaxLength: -1},
		"overlong.cache":               {MaxLength: 9, Overlong: Overlong{Max: 4, Cache: 5}},
		"baseline":                     {MaxLength: 9, Baseline: "median"},
		"count the ratio of ppo twice": {MaxLength: 9, Objective: Objective{Corrections: Corrections{TruncateToken: 2}}},
		"filter.stuck":                 {MaxLength: 9, Filter: map[trajectory.StopReason]Mode{trajectory.Stuck: "forget"}},
	} {
		if err := a.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one with %q", a, err, want)
		}
	}
	if err := (Algorithm{MaxLength: 1}).Check(); err != nil {
		t.Errorf("the zero algorithm with a length: %v", err)
	}
}

// DAPO's length penalty with the numbers of its paper.
func TestOverlong(t *testing.T) {
	t.Parallel()
	o := Overlong{Max: 20480, Cache: 4096}
	for y, want := range map[int]float64{0: 0, 16384: 0, 17408: -0.25, 20480: -1, 20481: -1, 90000: -1} {
		if got := o.penalty(y); !near(got, want) {
			t.Errorf("%d tokens: %g, want %g", y, got, want)
		}
	}
	shorter := Overlong{Max: 16384, Cache: 4096}
	for y, want := range map[int]float64{12000: 0, 13312: -0.25, 16384: -1, 17000: -1} {
		if got := shorter.penalty(y); !near(got, want) {
			t.Errorf("%d tokens of at most 16384: %g, want %g", y, got, want)
		}
	}
	if got := (Overlong{}).penalty(1 << 20); got != 0 {
		t.Errorf("off: %g", got)
	}
	if got := (Overlong{Max: 10}).penalty(11); got != -1 {
		t.Errorf("without a cache: %g", got)
	}
}
