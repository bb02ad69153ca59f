package rl

import (
	"math"
	"math/rand/v2"
	"testing"
)

// published are the token masks, taken literally from their papers: the loss of a token, its derivative in the token's
// logprob, and whether the token is masked. now, then and sampled are its logprobs under the current policy, the policy
// before the first update, and the sampler; c is the coefficient, with the sign of the advantage.
var published = []struct {
	name   string
	o      Objective
	loss   func(now, then, sampled, c float64) (loss, slope float64, masked bool)
	masked func(Stats) int
}{
	{
		// arXiv 2510.18855: the PPO objective with old = then, times M(k) with k = pi_train(old) / pi_infer.
		"icepop",
		Objective{
			ClipLow: 0.2, ClipHigh: 0.28, Decoupled: true,
			Corrections: Corrections{TokenMin: 0.5, TokenMax: 5, TruncateToken: 5},
		},
		func(now, then, sampled, c float64) (float64, float64, bool) {
			k := math.Exp(then - sampled)
			if k < 0.5 || k > 5 {
				return 0, 0, true
			}
			r := math.Exp(now - then)
			whole, clipped := r*c, math.Min(math.Max(r, 0.8), 1.28)*c
			if clipped < whole {
				return -k * clipped, 0, false
			}
			return -k * whole, -k * whole, false
		},
		func(s Stats) int { return s.RatioTokens },
	},
	{
		// arXiv 2602.04879, binary total variation: M r A, where M is zero if the token is outside the bound and moves
		// further out.
		"dppo, total variation",
		Objective{Surrogate: importanceSampling, Corrections: Corrections{DivergenceTV: 0.2}},
		func(now, _, sampled, c float64) (float64, float64, bool) {
			p, mu := math.Exp(now), math.Exp(sampled)
			return dppo(c, p/mu, math.Abs(mu-p), 0.2)
		},
		func(s Stats) int { return s.DivergentTokens },
	},
	{
		"dppo, KL",
		Objective{Surrogate: importanceSampling, Corrections: Corrections{DivergenceKL: 0.05}},
		func(now, _, sampled, c float64) (float64, float64, bool) {
			p, mu := math.Exp(now), math.Exp(sampled)
			return dppo(c, p/mu, mu*math.Log(mu/p)+(1-mu)*math.Log((1-mu)/(1-p)), 0.05)
		},
		func(s Stats) int { return s.DivergentTokens },
	},
}

func dppo(c, r, divergence, bound float64) (loss, slope float64, masked bool) {
	if divergence > bound && (c > 0 && r > 1 || c < 0 && r < 1) {
		return 0, 0, true
	}
	return -r * c, -r * c, false
}

func TestTokenMasksAreThoseOfTheirPapers(t *testing.T) {
	t.Parallel()
	for _, p := range published {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(9, 10))
			masked, kept := 0, 0
			for range 300 {
				rows, current, old := randomRows(rng, 1+rng.IntN(6), 20, 0.8)
				for i := range rows {
					for at := range current[i] { // a logprob is negative
						current[i][at], old[i][at] = math.Min(current[i][at], -1e-3), math.Min(old[i][at], -1e-3)
						rows[i].Logprobs[at] = math.Min(rows[i].Logprobs[at], -1e-3)
					}
				}
				grad := like(current)
				s, err := Loss(rows, current, old, p.o, grad)
				if err != nil {
					t.Fatal(err)
				}
				sum, count := 0.0, 0
				for i, r := range rows {
					for at, m := range r.Mask {
						want := 0.0
						if m == 1 {
							loss, slope, out := p.loss(current[i][at], old[i][at], r.Logprobs[at], r.Advantage*r.Scale)
							sum, want = sum+loss, slope
							if out {
								count++
							} else {
								kept++
							}
						}
						if !near(grad[i][at], want) {
							t.Fatalf("gradient %v, want %v", grad[i][at], want)
						}
					}
				}
				if !near(s.Loss, sum) || p.masked(s) != count {
					t.Fatalf("loss %v and %d masked, want %v and %d", s.Loss, p.masked(s), sum, count)
				}
				masked += count
			}
			if masked < 100 || kept < 100 {
				t.Errorf("%d tokens masked, %d kept: the test looks at one case only", masked, kept)
			}
		})
	}
}

// A probability of 1 under the sampler or the policy does not make the divergence NaN.
func TestDivergenceAtTheEdges(t *testing.T) {
	t.Parallel()
	o := Objective{Surrogate: importanceSampling, Corrections: Corrections{DivergenceKL: 0.05}}
	for _, c := range []struct {
		now, sampled, advantage float64
		masked                  int
	}{
		{0, -1, 1, 1}, {0, -1, -1, 0}, {-1, 0, -1, 1}, {-1, 0, 1, 0}, {0, 0, 1, 0}, {-800, -1, -1, 1},
	} {
		row := Row{IDs: []int32{1}, Mask: []uint8{1}, Logprobs: []float64{c.sampled}, Advantage: c.advantage, Scale: 1}
		s, err := Loss([]Row{row}, [][]float64{{c.now}}, nil, o, nil)
		if err != nil || s.DivergentTokens != c.masked || math.IsNaN(s.Loss) {
			t.Errorf("now %v, sampled %v, advantage %v: %d masked, loss %v, %v", c.now, c.sampled, c.advantage,
				s.DivergentTokens, s.Loss, err)
		}
	}
}
