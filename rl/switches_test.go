package rl

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"deepswe/agent/trajectory"
)

// The example for the formulas of the references: four rollouts of three tokens each, of which the first solved the
// task. The expected numbers were computed with numpy from the code of SkyRL a956457 and prime-rl 559b447.
var (
	exampleSampler = [][]float64{{.50, .40, .30}, {.60, .20, .70}, {.90, .05, .50}, {.30, .80, .10}}
	exampleOld     = [][]float64{{.48, .42, .33}, {.61, .15, .69}, {.90, .20, .52}, {.31, .79, .10}}
	exampleCurrent = [][]float64{{.60, .50, .25}, {.55, .30, .72}, {.88, .15, .30}, {.40, .78, .02}}
)

func logs(probabilities [][]float64) [][]float64 {
	out := like(probabilities)
	for i := range out {
		for t, p := range probabilities[i] {
			out[i][t] = math.Log(p)
		}
	}
	return out
}

// exampleRows have the advantages of the mean baseline, and scales that make the loss a mean over tokens.
func exampleRows() []Row {
	var rows []Row
	for i, lp := range logs(exampleSampler) {
		advantage := -0.25
		if i == 0 {
			advantage = 0.75
		}
		rows = append(rows, Row{IDs: []int32{1, 2, 3}, Mask: []uint8{1, 1, 1}, Logprobs: lp, Advantage: advantage,
			Scale: 1. / 12, Trained: true})
	}
	return rows
}

func TestPublishedSurrogates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		o    Objective
		loss float64
		// slope is 12 times the gradient, nil if it was not computed.
		slope []float64
		check func(Stats) bool
	}{
		{name: "ppo", o: Objective{Decoupled: true}, loss: 0.000133},
		{name: "cispo, bounds 0 and 5", o: Objective{Surrogate: CISPO, Decoupled: true}, loss: -0.004176,
			check: func(s Stats) bool { return s.TruncatedTokens == 0 }},
		{
			name: "cispo, bounds 0.8 and 1.28", o: Objective{Surrogate: CISPO, Decoupled: true, RatioMin: 0.8, RatioMax: 1.28},
			loss: -0.038715,
			slope: []float64{-0.937500, -0.892857, -0.600000, 0.225410, 0.320000, 0.260870, 0.244444, 0.200000, 0.200000,
				0.320000, 0.246835, 0.200000},
			check: func(s Stats) bool { return s.TruncatedTokens == 6 },
		},
		{
			name: "gspo", o: Objective{Surrogate: GSPO, Decoupled: true, ClipLow: 3e-4, ClipHigh: 4e-4}, loss: 0.014548,
			slope: []float64{0, 0, 0, 0.25 * 1.234569, 0.25 * 1.234569, 0.25 * 1.234569, 0, 0, 0, 0, 0, 0},
			check: func(s Stats) bool { return s.ClippedHigh == 3 && s.ClippedLow == 6 },
		},
		{
			name: "sapo", o: Objective{Surrogate: SAPO, Decoupled: true}, loss: -0.036551,
			slope: []float64{-0.923003, -0.884807, -0.559915, 0.224810, 0.384055, 0.260734, 0.244411, 0.184307, 0.137343,
				0.315201, 0.246825, 0.042122},
		},
		{name: "tis, tokens", o: Objective{Decoupled: true, Corrections: Corrections{TruncateToken: 2}}, loss: 0.002361},
		{name: "tis, rows", o: Objective{Decoupled: true, Corrections: Corrections{TruncateSequence: 5}}, loss: 0.128984},
		{name: "icepop up to 2", loss: -0.030972, o: Objective{Decoupled: true,
			Corrections: Corrections{TokenMin: 0.5, TokenMax: 2, TruncateToken: 2}}},
		{name: "icepop up to 5", loss: 0.035695, o: Objective{Decoupled: true,
			Corrections: Corrections{TokenMin: 0.5, TokenMax: 5, TruncateToken: 5}}},
		{name: "geometric", loss: 0.064118, check: func(s Stats) bool { return s.GeometricRows == 3 },
			o: Objective{Decoupled: true, Corrections: Corrections{GeometricMin: 0.99, GeometricMax: 1.01}}},
		{name: "geometric, with weights of tokens", loss: 0.064757, o: Objective{Decoupled: true,
			Corrections: Corrections{GeometricMin: 0.99, GeometricMax: 1.01, TruncateToken: 1e6}}},
		{name: "dppo, total variation", o: Objective{Surrogate: importanceSampling,
			Corrections: Corrections{DivergenceTV: 0.15}}, loss: 0.001695},
		{name: "dppo, the same bound below alone", o: Objective{Surrogate: importanceSampling,
			Corrections: Corrections{DivergenceTV: 10, DivergenceLow: 0.15}}, loss: 0.001695},
		{name: "dppo, KL", o: Objective{Surrogate: importanceSampling, Corrections: Corrections{DivergenceKL: 0.05}},
			loss: -0.002472},
		{name: "product", o: Objective{Decoupled: true, Corrections: Corrections{ProductMin: 0.5, ProductMax: 2}},
			loss: 0.000133 - 0.25*(0.977778+0.8+0.8)/12, check: func(s Stats) bool { return s.ProductRows == 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			current, old := logs(exampleCurrent), logs(exampleOld)
			grad := like(current)
			s, err := Loss(exampleRows(), current, old, c.o, grad)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(s.Loss-c.loss) > 1e-6 {
				t.Errorf("loss %.6f, want %.6f", s.Loss, c.loss)
			}
			for i, want := range c.slope {
				if got := 12 * grad[i/3][i%3]; math.Abs(got-want) > 1e-6 {
					t.Errorf("12 times the gradient of token %d is %.6f, want %.6f", i, got, want)
				}
			}
			if c.check != nil && !c.check(s) {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// The penalty counts every trained token, including those that a correction masks.
func TestMismatchPenalty(t *testing.T) {
	t.Parallel()
	veto := Corrections{VetoBelow: 1e-9, VetoAbove: 1e-8} // masks every row
	s, err := Loss(exampleRows(), logs(exampleCurrent), nil, Objective{MismatchPenalty: 0.5, Corrections: veto}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := 0.0
	for i, row := range exampleCurrent {
		for j, p := range row {
			want += 0.5 / 12 * math.Pow(math.Log(p/exampleSampler[i][j]), 2)
		}
	}
	if math.Abs(s.Loss-want) > 1e-12 || s.VetoedRows != 4 {
		t.Errorf("loss %g, want %g", s.Loss, want)
	}
}

func TestPublishedAdvantages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, preset string
		settings     []string
		rewards      []float64
		turns        []int
		stops        []trajectory.StopReason
		want         []float64
	}{
		{name: "MaxRL", preset: "maxrl", rewards: []float64{1, 0, 0, 0}, want: []float64{3, -1, -1, -1}},
		{name: "MaxRL, nothing solved", preset: "maxrl", rewards: []float64{0, 0, 0}, want: []float64{0, 0, 0}},
		{name: "GRPO", preset: "grpo", rewards: []float64{1, 0, 0, 0}, want: []float64{1.499997, -.499999, -.499999, -.499999}},
		{
			// arXiv 2508.03501, its first stage; the mean of the penalised rewards is 0.
			name: "number of steps", preset: "dr-grpo", settings: []string{"steps.free=10", "steps.max=40"},
			rewards: []float64{1, 1, 0, 0}, turns: []int{8, 25, 25, 40}, want: []float64{1, .5, -.5, -1},
		},
		{
			name: "number of steps of those that solved", preset: "dr-grpo",
			settings: []string{"steps.free=10", "steps.max=40", "steps.only_solved=true"},
			rewards:  []float64{1, 1, 0, 0}, turns: []int{8, 25, 25, 40}, want: []float64{.625, .125, -.375, -.375},
		},
		{
			// arXiv 2602.03411: a rollout that ran out of steps is graded, and gets half of its reward.
			name: "forced submission", preset: "rloo", settings: []string{"reward_factor.max_steps=0.5"},
			rewards: []float64{1, 1, 0, 0}, stops: []trajectory.StopReason{"", trajectory.MaxSteps},
			want: []float64{.833333, .166667, -.5, -.5},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []Member
			for i, reward := range c.rewards {
				m := attempt{reward, trajectory.Submitted, 4}.member("g", i)
				if c.turns != nil {
					m.Shape.Turns = c.turns[i]
				}
				if i < len(c.stops) && c.stops[i] != "" {
					m.StopReason = c.stops[i]
				}
				all = append(all, m)
			}
			placed, _, err := preset(t, c.preset, c.settings...).Plan(all)
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range placed {
				if math.Abs(p.Advantage-c.want[i]) > 1e-6 {
					t.Errorf("advantage of rollout %d is %.6f, want %.6f", i, p.Advantage, c.want[i])
				}
			}
		})
	}
}

func TestSwitchesThatContradict(t *testing.T) {
	t.Parallel()
	for want, settings := range map[string][]string{
		"normalise mean is for the baseline mean":         {"normalise=mean"},
		"neither overlong nor steps":                      {"baseline=mean", "normalise=mean", "steps.max=40"},
		"reward_factor.max_steps is 0.5":                  {"reward_factor.max_steps=0.5"},
		"steps.max is 5: want more than steps.free, 9":    {"steps.free=9", "steps.max=5"},
		"ratio min 2 is above ratio max 1":                {"ratio.min=2", "ratio.max=1"},
		"set divergence tv or divergence kl":              {"corrections.divergence_low=0.1"},
		"product min 3 is above product max 2":            {"corrections.product_min=3", "corrections.product_max=2"},
		"truncation would count the ratio of cispo twice": {"surrogate=cispo", "corrections.truncate_token=2"},
	} {
		a := preset(t, "grpo++", settings...)
		if err := a.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", fmt.Sprint(settings), err, want)
		}
	}
}
