package rl

import "math"

// sampledSurrogates are those that compare with a sampler, the default first.
func sampledSurrogates() []Surrogate {
	return []Surrogate{PPO, importanceSampling, Reinforce, CISPO, GSPO, SAPO}
}

// surrogate returns what one token adds to the objective and its slope in the token's logprob. d is the clamped
// log-ratio and coef Advantage * Scale.
func (r *rowLoss) surrogate(s *Stats, logprob, d, ratio, coef float64) (value, slope float64) {
	level := d <= -MaxLogRatio || d >= MaxLogRatio
	switch r.o.Surrogate {
	case Reinforce:
		return coef * logprob, coef
	case CISPO:
		w := max(r.o.RatioMin, min(r.o.RatioMax, ratio))
		if w != ratio {
			s.TruncatedTokens++
		}
		return coef * w * logprob, coef * w
	case SAPO:
		return r.gated(ratio, coef, level)
	case GSPO:
		ratio, level = r.whole.ratio, r.whole.level
	case importanceSampling:
		if level {
			return coef * ratio, 0
		}
		return coef * ratio, coef * ratio
	}
	return r.clipped(s, ratio, coef, level)
}

// clipped is PPO's surrogate. level is set if the ratio was clamped, so that it has no slope.
func (r *rowLoss) clipped(s *Stats, ratio, coef float64, level bool) (value, slope float64) {
	switch {
	case r.advantage > 0 && ratio > 1+r.o.ClipHigh:
		s.ClippedHigh++
		return coef * (1 + r.o.ClipHigh), 0
	case r.advantage < 0 && ratio < 1-r.o.ClipLow:
		s.ClippedLow++
		return coef * (1 - r.o.ClipLow), 0
	case r.advantage < 0 && r.o.DualClip > 0 && ratio > r.o.DualClip:
		s.DualClipped++
		return coef * r.o.DualClip, 0
	case level:
		return coef * ratio, 0
	}
	return coef * ratio, coef * ratio
}

// gated is SAPO's: f(r) = 4/t sigmoid(t (r-1)), so f'(1) = 1.
func (r *rowLoss) gated(ratio, coef float64, level bool) (value, slope float64) {
	steep := r.o.GateNegative
	if r.advantage > 0 {
		steep = r.o.GatePositive
	}
	gate := 1 / (1 + math.Exp(-steep*(ratio-1)))
	value = coef * 4 / steep * gate
	if level {
		return value, 0
	}
	return value, coef * 4 * gate * (1 - gate) * ratio
}

// rowRatio is the ratio of a whole row. level is set if it was clamped.
type rowRatio struct {
	ratio float64
	level bool
}

// longestLog bounds the log-ratio of a row from above, as in verl.
const longestLog = 10

// rowRatio is the geometric mean of the ratios of the row's trained tokens.
func (r *rowLoss) rowRatio() rowRatio {
	sum, n := 0.0, 0
	for t, m := range r.row.Mask {
		if m != 0 {
			sum += r.current[t] - r.old[t]
			n++
		}
	}
	if n == 0 {
		return rowRatio{1, true}
	}
	mean := sum / float64(n)
	bounded := max(-MaxLogRatio, min(longestLog, mean))
	return rowRatio{math.Exp(bounded), mean != bounded}
}
