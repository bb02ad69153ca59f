package games

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
)

// The mean reward of the last five steps has to be higher than that of the first step. Points of a validation, and of
// the policy before the first step, do not count.
func TestVerdict(t *testing.T) {
	t.Parallel()
	rising := append(slices.Repeat([]float64{0.03}, 20), 0.9, 0.92, 0.93, 0.95, 0.95)
	equal := slices.Repeat([]float64{0.02}, 25)
	forgotten := append(slices.Clone(rising), 0, 0, 0, 0, 0)
	for name, c := range map[string]struct {
		environment config.EnvironmentSettings
		rewards     []float64
		want        string
		trains      bool
	}{
		"it learns":          {&Residue{}, rising, "the trainer trains: 0.03 to 0.93 in 25 steps", true},
		"it does not":        {&Residue{}, equal, "the mean reward went from 0.02 to 0.02 in 25 steps", false},
		"too little":         {&Residue{}, []float64{0.2, 0.3, 0.4, 0.5}, "0.20 to 0.35 in 4 steps, want a rise", false},
		"no step":            {&Residue{}, nil, "no step has a reward", false},
		"it ends in nothing": {&Residue{}, forgotten, "from 0.03 to 0.00 in 30 steps", false},
		"not a number":       {&Residue{}, []float64{math.NaN(), math.NaN()}, "does not train", false},
		"another question":   {&FrozenLake{}, rising, "", true},
	} {
		points := []metrics.Point{{Step: 0, Values: map[string]float64{"reward/mean": 1}}}
		for i, r := range c.rewards {
			points = append(points, metrics.Point{Step: i + 1, Values: map[string]float64{"reward/mean": r}},
				metrics.Point{Step: i + 1, Values: map[string]float64{"val/pass@1": 1}})
		}
		said, err := Verdict(config.Config{Environment: c.environment}, points)
		if err != nil {
			said = err.Error()
		}
		if (err == nil) != c.trains || !strings.Contains(said, c.want) || err != nil && !errors.Is(err, errNotTrained) {
			t.Errorf("%s: %v, %q, want %q", name, err, said, c.want)
		}
	}
}
