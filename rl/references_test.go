package rl

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"deepswe/agent/trajectory"
)

// recorded is what the loss functions of verl b178a3c, SkyRL a956457, slime 624b824 and TRL f2cd577 returned for random
// batches: testdata/references.py shows how.
type recorded struct {
	Batches []struct {
		Mask                                    [][]uint8
		Sampler, Old, Current, Advantages, Rows [][]float64
	}
	// Losses has the results on each batch, by the name of the reference.
	Losses []map[string]struct {
		Loss     float64
		Gradient [][]float64
	}
	Groups []struct {
		Rewards    []float64
		Advantages map[string][]float64
	}
}

func readRecorded(t *testing.T) recorded {
	t.Helper()
	data, err := os.ReadFile("testdata/references.json")
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// references are our settings for what was run there. Each uses token advantages unless rows is set. The loss is a mean
// over tokens, or with overRows a mean over rows of their mean over tokens.
var references = map[string]struct {
	o              Objective
	overRows, rows bool
}{
	"verl vanilla":         {o: Objective{Decoupled: true, DualClip: 1.5}},
	"verl vanilla, rows":   {o: Objective{Decoupled: true}, overRows: true},
	"verl gspo":            {o: Objective{Surrogate: GSPO, Decoupled: true}, overRows: true},
	"verl sapo":            {o: Objective{Surrogate: SAPO, Decoupled: true}, overRows: true},
	"verl cispo":           {o: Objective{Surrogate: CISPO, Decoupled: true, RatioMin: 0.8, RatioMax: 1.28}},
	"SkyRL regular":        {o: Objective{Decoupled: true}},
	"SkyRL gspo":           {o: Objective{Surrogate: GSPO, Decoupled: true}, overRows: true},
	"SkyRL sapo":           {o: Objective{Surrogate: SAPO, Decoupled: true}, overRows: true},
	"SkyRL cispo":          {o: Objective{Surrogate: CISPO, Decoupled: true, RatioMin: 0.7, RatioMax: 1.5}},
	"SkyRL cispo, sampler": {o: Objective{Surrogate: CISPO, RatioMin: 0.7, RatioMax: 1.5}},
	"SkyRL dppo tv": {o: Objective{Surrogate: importanceSampling,
		Corrections: Corrections{DivergenceTV: 0.15, DivergenceLow: 0.1}}},
	"SkyRL dppo kl": {o: Objective{Surrogate: importanceSampling,
		Corrections: Corrections{DivergenceKL: 0.03, DivergenceLow: 0.02}}},
	"SkyRL importance sampling": {o: Objective{Surrogate: importanceSampling}},
	// SkyRL's loss has the logprob in the place of the ratio, which gives the same gradient.
	"SkyRL rollout_is": {o: Objective{Surrogate: importanceSampling,
		Corrections: Corrections{TokenMin: 0.8, TokenMax: 1.28}}},
	"SkyRL tis, tokens": {o: Objective{Decoupled: true, Corrections: Corrections{TruncateToken: 2}}},
	"SkyRL tis, rows":   {o: Objective{Decoupled: true, Corrections: Corrections{TruncateSequence: 5}}},
	"SkyRL geometric":   {o: Objective{Decoupled: true, Corrections: Corrections{GeometricMin: 0.95, GeometricMax: 1.05}}},
	"SkyRL product":     {o: Objective{Decoupled: true, Corrections: Corrections{ProductMin: 0.5, ProductMax: 2}}},
	"SkyRL outliers":    {o: Objective{Decoupled: true, Corrections: Corrections{VetoBelow: 0.6, VetoAbove: 1.8}}},
	"SkyRL icepop": {o: Objective{Decoupled: true,
		Corrections: Corrections{TokenMin: 0.7, TokenMax: 2, TruncateToken: 2}}},
	"slime ppo":        {o: Objective{Decoupled: true, DualClip: 3}},
	"slime cispo":      {o: Objective{Surrogate: CISPO, Decoupled: true, RatioMax: 1.5}},
	"slime gspo, rows": {o: Objective{Surrogate: GSPO, Decoupled: true}, rows: true},
	"TRL grpo":         {o: Objective{Decoupled: true}, overRows: true},
	"TRL dapo":         {o: Objective{Decoupled: true}},
	"TRL two-sided":    {o: Objective{Decoupled: true, DualClip: 1.5}},
	"TRL tis, tokens":  {o: Objective{Decoupled: true, Corrections: Corrections{TruncateToken: 2}}},
	"TRL gspo, rows":   {o: Objective{Surrogate: GSPO, Decoupled: true}, overRows: true, rows: true},
	"TRL sapo":         {o: Objective{Surrogate: SAPO, Decoupled: true}, overRows: true},
	"TRL cispo":        {o: Objective{Surrogate: CISPO, Decoupled: true, RatioMax: 1.28}},
}

// apart is the tolerance: SkyRL computes exponentials in float32.
const apart = 1e-7

func TestLossesAreThoseOfTheReferences(t *testing.T) {
	t.Parallel()
	r := readRecorded(t)
	for name, c := range references {
		moved := 0
		for i, b := range r.Batches {
			want, ok := r.Losses[i][name]
			if !ok {
				t.Fatalf("%s was not recorded", name)
			}
			total := 0.0
			own := make([]float64, len(b.Mask))
			for k, mask := range b.Mask {
				for _, m := range mask {
					own[k] += float64(m)
				}
				total += own[k]
			}
			var rows []Row
			for k := range b.Mask {
				row := Row{IDs: make([]int32, len(b.Mask[k])), Mask: b.Mask[k], Logprobs: b.Sampler[k],
					Advantages: b.Advantages[k], Scale: 1 / total}
				if c.overRows {
					row.Scale = 1 / (float64(len(b.Mask)) * own[k])
				}
				if c.rows {
					row.Advantage, row.Advantages = b.Rows[k][0], nil
				}
				rows = append(rows, row)
			}
			grad := like(b.Current)
			s, err := Loss(rows, b.Current, b.Old, c.o, grad)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if math.Abs(s.Loss-want.Loss) > apart && name != "SkyRL rollout_is" {
				t.Errorf("%s, batch %d: loss %.12f, want %.12f", name, i, s.Loss, want.Loss)
			}
			for k := range grad {
				for n, got := range grad[k] {
					if math.Abs(got-want.Gradient[k][n]) > apart {
						t.Errorf("%s, batch %d: the gradient of token %d of row %d is %.12f, want %.12f", name, i, n, k, got,
							want.Gradient[k][n])
					}
					if got != 0 {
						moved++
					}
				}
			}
		}
		if moved == 0 {
			t.Errorf("%s: no token has a gradient", name)
		}
	}
	if len(references) != len(r.Losses[0]) {
		t.Errorf("%d references are compared, and %d recorded", len(references), len(r.Losses[0]))
	}
}

func TestAdvantagesAreThoseOfTheReferences(t *testing.T) {
	t.Parallel()
	for _, g := range readRecorded(t).Groups {
		for name, a := range map[string]Algorithm{
			"verl grpo": {Baseline: Mean, Normalise: ByStd}, "verl dr-grpo": {Baseline: Mean},
			"verl rloo": {Baseline: LeaveOneOut}, "SkyRL grpo": {Baseline: Mean, Normalise: ByStd},
			"SkyRL maxrl": {Baseline: Mean, Normalise: ByMean},
		} {
			var members []Member
			for i := range g.Rewards {
				members = append(members, Member{Attempt: i, Reward: &g.Rewards[i], StopReason: trajectory.Submitted})
			}
			a.MaxLength = 1
			placements, _, err := a.Plan(members)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for i, p := range placements {
				// SkyRL adds 1e-6 to the mean.
				if want := g.Advantages[name][i]; math.Abs(p.Advantage-want) > 1e-9+1e-5*math.Abs(want) {
					t.Errorf("%s: rewards %v: the advantage of %d is %.12f, want %.12f", name, g.Rewards, i, p.Advantage, want)
				}
			}
		}
	}
}
