package rl

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// objectives has a loss of each kind.
var objectives = map[string]Objective{
	"grpo++":              {},
	"symmetric clip":      {ClipLow: 0.2, ClipHigh: 0.2},
	"dual clip":           {DualClip: 1.5},
	"importance sampling": {Surrogate: importanceSampling},
	"reinforce":           {Surrogate: Reinforce},
	"decoupled":           {Decoupled: true},
	"token truncation":    {Decoupled: true, Corrections: Corrections{TruncateToken: 1.2}},
	"sequence truncation": {Decoupled: true, Corrections: Corrections{TruncateSequence: 1.5}},
	"geometric mask":      {Corrections: Corrections{GeometricMin: 0.95, GeometricMax: 1.05}},
	"veto":                {Corrections: Corrections{VetoBelow: 0.4, VetoAbove: 2.5}},
	"icepop":              {Decoupled: true, Corrections: Corrections{TokenMin: 0.5, TokenMax: 2, TruncateToken: 2}},
	"dppo tv":             {Surrogate: importanceSampling, Corrections: Corrections{DivergenceTV: 0.1}},
	"dppo kl":             {Surrogate: importanceSampling, Corrections: Corrections{DivergenceKL: 0.05}},
	"gspo":                {Surrogate: GSPO, ClipLow: 0.1, ClipHigh: 0.1},
	"sapo":                {Surrogate: SAPO},
	"mismatch penalty":    {MismatchPenalty: 0.1},
	"product mask":        {Decoupled: true, Corrections: Corrections{ProductMin: 0.5, ProductMax: 2}},
	"all corrections": {Decoupled: true, DualClip: 2, Corrections: Corrections{
		TruncateToken: 2, GeometricMin: 0.9, GeometricMax: 1.1, VetoBelow: 0.1, VetoAbove: 10}},
}

// randomRows returns rows, and logprobs of a current and an old policy that differ from the sampler's by noise.
func randomRows(rng *rand.Rand, n, maxLen int, noise float64) (rows []Row, current, old [][]float64) {
	for i := range n {
		length := 1 + rng.IntN(maxLen)
		r := Row{Task: "t", Group: fmt.Sprint(i / 3), Attempt: i, Advantage: rng.NormFloat64(), Scale: rng.Float64(),
			Trained: true}
		cur, prev := make([]float64, length), make([]float64, length)
		for t := range length {
			r.IDs = append(r.IDs, int32(rng.IntN(1000)))
			mask, lp := uint8(rng.IntN(2)), -3*rng.Float64()
			if mask == 0 {
				lp = 0
			}
			r.Mask, r.Logprobs = append(r.Mask, mask), append(r.Logprobs, lp)
			prev[t] = lp + noise*rng.NormFloat64()
			cur[t] = prev[t] + noise*rng.NormFloat64()
		}
		rows, current, old = append(rows, r), append(current, cur), append(old, prev)
	}
	return rows, current, old
}

func like(x [][]float64) [][]float64 {
	out := make([][]float64, len(x))
	for i := range x {
		out[i] = make([]float64, len(x[i]))
	}
	return out
}

// The gradient is the slope of the loss. The weight of a correction counts as a constant, so the objectives here are
// ones in which it does not depend on the current policy.
func TestGradientIsTheSlopeOfTheLoss(t *testing.T) {
	t.Parallel()
	const h = 1e-6
	for name, o := range objectives {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			rows, current, old := randomRows(rng, 12, 9, 0.4)
			if o.Surrogate != GSPO { // its ratio depends on all tokens of the row
				for i := range rows[:6] {
					rows[i].Advantages = make([]float64, len(rows[i].IDs))
					for k := range rows[i].Advantages {
						rows[i].Advantages[k] = rng.NormFloat64()
					}
				}
			}
			grad := like(current)
			if _, err := Loss(rows, current, old, o, grad); err != nil {
				t.Fatal(err)
			}
			checked := 0
			for i := range rows {
				for p := range current[i] {
					at := func(x float64) float64 {
						keep := current[i][p]
						defer func() { current[i][p] = keep }()
						current[i][p] = keep + x
						s, err := Loss(rows, current, old, o, nil)
						if err != nil {
							t.Fatal(err)
						}
						return s.Loss
					}
					if slope := (at(h) - at(-h)) / (2 * h); math.Abs(slope-grad[i][p]) > 1e-6 {
						t.Errorf("row %d token %d: gradient %g, finite difference %g", i, p, grad[i][p], slope)
					}
					if grad[i][p] != 0 {
						checked++
					}
				}
			}
			if checked == 0 {
				t.Fatal("every gradient is zero: nothing was checked")
			}
		})
	}
}

func TestLossByHand(t *testing.T) {
	t.Parallel()
	row := func(advantage float64) Row {
		return Row{IDs: []int32{1, 2, 3}, Mask: []uint8{0, 1, 1}, Logprobs: []float64{0, -1, -1}, Advantage: advantage,
			Scale: 0.5}
	}
	// The ratios of the two sampled tokens are 1.5 and 0.5.
	current := [][]float64{{-7, -1 + math.Log(1.5), -1 + math.Log(0.5)}}
	for _, c := range []struct {
		name      string
		advantage float64
		o         Objective
		loss      float64
		grad      []float64
		low, high int
		dual      int
	}{
		{"a good token gains no more above 1.28", 2, Objective{}, -0.5 * 2 * (1.28 + 0.5), []float64{0, 0, -0.5}, 0, 1, 0},
		{"a bad token loses no more below 0.8", -2, Objective{}, 0.5 * 2 * (1.5 + 0.8), []float64{0, 1.5, 0}, 1, 0, 0},
		{"symmetric bounds", 2, Objective{ClipHigh: 0.2}, -0.5 * 2 * (1.2 + 0.5), []float64{0, 0, -0.5}, 0, 1, 0},
		{"the dual clip bounds a bad token's loss", -2, Objective{DualClip: 1.4}, 0.5 * 2 * (1.4 + 0.8), []float64{0, 0, 0},
			1, 0, 1},
		{"importance sampling", 2, Objective{Surrogate: importanceSampling}, -2, []float64{0, -1.5, -0.5}, 0, 0, 0},
		{"reinforce", 2, Objective{Surrogate: Reinforce}, 2 - math.Log(0.75), []float64{0, -1, -1}, 0, 0, 0},
		{"reinforce, weighted", 2, Objective{Surrogate: Reinforce, Corrections: Corrections{TruncateToken: 1.2}},
			-(1.2*(-1+math.Log(1.5)) + 0.5*(-1+math.Log(0.5))), []float64{0, -1.2, -0.5}, 0, 0, 0},
		{"vetoed", 2, Objective{Corrections: Corrections{VetoAbove: 1.4}}, 0, []float64{0, 0, 0}, 0, 0, 0},
		{"geometric mean 0.866 is too low", 2, Objective{Corrections: Corrections{GeometricMin: 0.9}}, 0, []float64{0, 0, 0},
			0, 0, 0},
		{"geometric mean 0.866 will do", 2,
			Objective{Surrogate: importanceSampling, Corrections: Corrections{GeometricMin: 0.86}}, -2,
			[]float64{0, -1.5, -0.5}, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			grad := like(current)
			s, err := Loss([]Row{row(c.advantage)}, current, nil, c.o, grad)
			if err != nil {
				t.Fatal(err)
			}
			if !near(s.Loss, c.loss) {
				t.Errorf("loss %g, want %g", s.Loss, c.loss)
			}
			for i := range c.grad {
				if !near(grad[0][i], c.grad[i]) {
					t.Errorf("gradient %v, want %v", grad[0], c.grad)
					break
				}
			}
			if s.ClippedLow != c.low || s.ClippedHigh != c.high || s.DualClipped != c.dual {
				t.Errorf("clipped %d low, %d high, %d dual", s.ClippedLow, s.ClippedHigh, s.DualClipped)
			}
			if s.Tokens != 2 || !near(s.RatioMin, 0.5) || !near(s.RatioMax, 1.5) || !near(s.KL1, -math.Log(0.75)) ||
				!near(s.KL3, -math.Log(0.75)) {
				t.Errorf("statistics %+v", s)
			}
		})
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12*max(1, math.Abs(a), math.Abs(b)) }

func TestLossDoesNotDependOnTheProcessors(t *testing.T) {
	rows, current, old := randomRows(rand.New(rand.NewPCG(3, 4)), 300, 50, 0.3)
	for name, o := range objectives {
		var want Stats
		var wantGrad [][]float64
		for _, procs := range []int{1, 2, 7} {
			grad := like(current)
			before := runtime.GOMAXPROCS(procs)
			s, err := Loss(rows, current, old, o, grad)
			runtime.GOMAXPROCS(before)
			if err != nil {
				t.Fatal(err)
			}
			if procs == 1 {
				want, wantGrad = s, grad
				continue
			}
			if s != want {
				t.Errorf("%s with %d processors: %+v, with one %+v", name, procs, s, want)
			}
			for i := range grad {
				if !slices.Equal(grad[i], wantGrad[i]) {
					t.Fatalf("%s with %d processors: another gradient in row %d", name, procs, i)
				}
			}
		}
	}
}

func TestGradientMayOverwriteTheLogprobs(t *testing.T) {
	t.Parallel()
	for name, o := range objectives {
		rows, current, old := randomRows(rand.New(rand.NewPCG(5, 6)), 20, 30, 0.3)
		grad := like(current)
		want, err := Loss(rows, current, old, o, grad)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Loss(rows, current, old, o, current)
		if err != nil {
			t.Fatal(err)
		}
		for i := range grad {
			if got != want || !slices.Equal(current[i], grad[i]) {
				t.Fatalf("%s: in place %+v %v, apart %+v %v", name, got, current[i], want, grad[i])
			}
		}
	}
}

// The objectives that are plain, and no others here, have the gradient -A exp(logprob - sampler's logprob) everywhere.
func TestPlainObjectives(t *testing.T) {
	t.Parallel()
	all := maps.Clone(objectives)
	all["with limits of other losses"] = Objective{Surrogate: importanceSampling, ClipLow: 0.01, ClipHigh: 0.01,
		DualClip: 1.1, RatioMax: 1.1, GatePositive: 9, Estimated: true}
	all["penalised"] = Objective{Surrogate: importanceSampling, MismatchPenalty: 0.1}
	all["anchored at the trainer"] = Objective{Surrogate: importanceSampling, Decoupled: true}
	for name, o := range all {
		rng := rand.New(rand.NewPCG(5, 6))
		rows, current, old := randomRows(rng, 30, 20, 1)
		grad := like(current)
		if _, err := Loss(rows, current, old, o, grad); err != nil {
			t.Fatal(err)
		}
		plain := true
		for i, r := range rows {
			for k, m := range r.Mask {
				want := -r.Advantage * r.Scale * float64(m) * math.Exp(current[i][k]-r.Logprobs[k])
				plain = plain && near(grad[i][k], want)
			}
		}
		if plain != o.Plain() {
			t.Errorf("%s: it says that it is plain: %v, and its gradient is: %v", name, o.Plain(), plain)
		}
	}
	if (Objective{Surrogate: importanceSampling, Entropy: 0.1}).Plain() {
		t.Error("an entropy bonus needs the policy")
	}
}

// The statistics of parts add up to those of the whole, so a trainer may split a batch into several passes.
func TestStatsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		rows, current, old := randomRows(rng, rapid.IntRange(0, 12).Draw(t, "rows"), 6, 0.5)
		cut := rapid.IntRange(0, len(rows)).Draw(t, "cut")
		o := objectives["all corrections"]
		whole, err := Loss(rows, current, old, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := Loss(rows[:cut], current[:cut], old[:cut], o, nil)
		if err != nil {
			t.Fatal(err)
		}
		rest, err := Loss(rows[cut:], current[cut:], old[cut:], o, nil)
		if err != nil {
			t.Fatal(err)
		}
		sum.Add(rest)
		for _, f := range []func(Stats) float64{
			func(s Stats) float64 { return s.Loss }, func(s Stats) float64 { return s.KL1 },
			func(s Stats) float64 { return s.KL3 }, func(s Stats) float64 { return s.RatioMin },
			func(s Stats) float64 { return s.RatioMax }, func(s Stats) float64 { return float64(s.Tokens) },
			func(s Stats) float64 { return float64(s.MaskedTokens) },
			func(s Stats) float64 { return float64(s.TruncatedTokens) },
			func(s Stats) float64 { return float64(s.RatioTokens) },
			func(s Stats) float64 { return float64(s.DivergentTokens) },
		} {
			if !near(f(sum), f(whole)) {
				t.Fatalf("parts %+v, whole %+v", sum, whole)
			}
		}
	})
}

func TestExtremeRatiosStayFinite(t *testing.T) {
	t.Parallel()
	row := Row{IDs: []int32{1, 2}, Mask: []uint8{1, 1}, Logprobs: []float64{-1e-9, -900}, Advantage: -1, Scale: 1}
	grad := [][]float64{{9, 9}}
	s, err := Loss([]Row{row}, [][]float64{{-800, -1}}, nil, Objective{Surrogate: importanceSampling}, grad)
	if err != nil {
		t.Fatal(err)
	}
	if !near(s.RatioMax, math.Exp(20)) || !near(s.RatioMin, math.Exp(-20)) || grad[0][0] != 0 || grad[0][1] != 0 {
		t.Errorf("ratios %g..%g, gradient %v: want e^-20..e^20 and no gradient", s.RatioMin, s.RatioMax, grad[0])
	}
}

func TestLossRefuses(t *testing.T) {
	t.Parallel()
	row := Row{Task: "a", IDs: []int32{1, 2}, Mask: []uint8{0, 1}, Logprobs: []float64{0, -1}}
	for _, c := range []struct {
		name    string
		o       Objective
		current [][]float64
		want    string
	}{
		{"short logprobs", Objective{}, [][]float64{{0}}, "2 ids"},
		{"rows missing", Objective{}, nil, "0 rows for 1 rows"},
		{"no old policy", Objective{Decoupled: true}, [][]float64{{0, 0}}, "needs the old policy"},
		{"unknown surrogate", Objective{Surrogate: "kto"}, [][]float64{{0, 0}}, `"kto"`},
		{"weight counted twice", Objective{Corrections: Corrections{TruncateToken: 2}}, [][]float64{{0, 0}}, "set decoupled"},
		{"two truncations", Objective{Decoupled: true, Corrections: Corrections{TruncateToken: 2, TruncateSequence: 2}},
			[][]float64{{0, 0}}, "both on"},
		{"dual clip inside the ratio", Objective{DualClip: 0.5}, [][]float64{{0, 0}}, "above 1"},
		{"NaN bound", Objective{ClipHigh: math.NaN()}, [][]float64{{0, 0}}, "clip high"},
		{"empty band", Objective{Corrections: Corrections{GeometricMin: 1.1, GeometricMax: 1}}, [][]float64{{0, 0}},
			"geometric"},
		{"empty band of tokens", Objective{Corrections: Corrections{TokenMin: 2, TokenMax: 1}}, [][]float64{{0, 0}},
			"token min 2 is above"},
		{"two divergences", Objective{Corrections: Corrections{DivergenceTV: 1, DivergenceKL: 1}}, [][]float64{{0, 0}},
			"both divergences"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Loss([]Row{row}, c.current, nil, c.o, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestTheInnerLoopDoesNotAllocate(t *testing.T) {
	rows, current, old := randomRows(rand.New(rand.NewPCG(7, 8)), 1, 2000, 0.1)
	grad := like(current)
	for name, o := range objectives {
		o, err := o.resolve()
		if err != nil {
			t.Fatal(err)
		}
		r := rowLoss{row: &rows[0], current: current[0], old: old[0], grad: grad[0], o: &o}
		if n := testing.AllocsPerRun(5, func() { r.evaluate() }); n != 0 {
			t.Errorf("%s: %g allocations for a row", name, n)
		}
	}
}
