package rl

import "math"

// Distance is how far two policies are apart at tokens that were sampled.
type Distance struct {
	Tokens int
	// KL1 and KL3 sum two estimates of KL(from || to) at tokens that from sampled: with d = to - from they are -d and
	// exp(d) - 1 - d (Schulman 2020). d is held within ±20.
	KL1, KL3 float64
	// RatioMin and RatioMax are the extremes of exp(d); both 0 where Tokens is 0.
	RatioMin, RatioMax float64
}

// Between measures the distance at the tokens whose mask is 1. All arguments have the same shape.
func Between(from, to [][]float64, masks [][]uint8) Distance {
	var d Distance
	for i, mask := range masks {
		for t, m := range mask {
			if m == 1 {
				log := clampLog(to[i][t] - from[i][t])
				d.add(log, math.Exp(log))
			}
		}
	}
	return d
}

// add adds one token by its clamped log-ratio, and its ratio.
func (d *Distance) add(log, ratio float64) {
	d.KL1 -= log
	d.KL3 += ratio - 1 - log
	d.RatioMin, d.RatioMax = widen(d.Tokens, d.RatioMin, d.RatioMax, 1, ratio, ratio)
	d.Tokens++
}

// Metrics names the numbers of a distance under a prefix; there are none without a token.
func (d Distance) Metrics(prefix string) map[string]float64 {
	if d.Tokens == 0 {
		return nil
	}
	n := float64(d.Tokens)
	return map[string]float64{
		prefix + "/kl_k1": d.KL1 / n, prefix + "/kl_k3": d.KL3 / n, prefix + "/tokens": n,
		prefix + "/ratio_min": d.RatioMin, prefix + "/ratio_max": d.RatioMax,
	}
}

// SampledBy returns a row's mask without the tokens that other versions of the policy sampled. The row must be one of
// the rollout's. A turn without a version has the rollout's.
func SampledBy(r *Rollout, row *Row, version int64) []uint8 {
	spans, _ := layout(r.Turns)
	mask := make([]uint8, len(row.Mask))
	whole, known := r.PolicyVersion.Number()
	for _, t := range r.Turns[spans[row.Row].first : spans[row.Row].last+1] {
		own := t.PolicyVersion != nil && *t.PolicyVersion == version
		if !own && (t.PolicyVersion != nil || !known || whole != version) {
			continue
		}
		from := min(len(t.PromptIDs), len(mask))
		to := min(from+len(t.CompletionIDs), len(mask))
		copy(mask[from:to], row.Mask[from:to])
	}
	return mask
}
