package tinker

import (
	"errors"
	"math"

	"deepswe/rl"
)

// gradientLoss is the server's loss -r A, of the ratio r and the advantage A. The objective is evaluated in this
// process: with the server's own log-probabilities as the old ones every ratio is 1, and with the gradient of the
// objective as advantages, the gradient of this loss is that of the objective. This works for every objective on
// every server. For one that is this loss, the sampler's log-probabilities are the old ones.
const gradientLoss = "importance_sampling"

// computable reports whether the server's loss can stand for a plain objective on a row: the row has a gradient, and
// none of its ratios can exceed the bound, which servers do not apply. The sampler's logprobs tell that, because the
// trainer's are at most 0.
func computable(r *rl.Row) bool {
	slopes := false
	for t, m := range r.Mask {
		if m == 0 {
			continue
		}
		if r.Logprobs[t] <= -rl.MaxLogRatio {
			return false
		}
		slopes = slopes || r.AdvantageOf(t)*r.Scale != 0
	}
	return slopes
}

// Supports returns an error for an objective that no server can compute.
func Supports(o rl.Objective) error {
	if o.Entropy != 0 {
		return errors.New("the entropy bonus needs the whole distribution, which no Tinker server provides; " +
			"to fix: set entropy to 0")
	}
	return nil
}

// Normalisation describes what a server divides a gradient by before a step.
type Normalisation struct {
	// Tokens: the loss of each sequence is divided by the sum of its weights. Sequences: the sum over sequences is divided
	// by their number since the last step.
	Tokens    bool `json:"tokens"`
	Sequences bool `json:"sequences"`
}

func (n Normalisation) String() string {
	switch {
	case n.Tokens && n.Sequences:
		return "mean over tokens, mean over sequences"
	case n.Tokens:
		return "mean over tokens, sum over sequences"
	case n.Sequences:
		return "sum over tokens, mean over sequences"
	}
	return "sum"
}

// divisor returns the factor for a sequence's advantages that undoes the division.
func (n Normalisation) divisor(tokens, sequences int) float64 {
	d := 1.0
	if n.Tokens {
		d *= float64(tokens)
	}
	if n.Sequences {
		d *= float64(sequences)
	}
	return d
}

// share is a row of an update. sent is set if its gradient is on the server, for a scale of 1.
type share struct {
	row  *rl.Row
	sent bool
	// logprobs are the trainer's, or the sampler's if the server computes the ratio to them. slope is dLoss/dlogprob
	// there. Both have the shape of the row's ids.
	logprobs, slope []float64
}

// gradientOf returns the pass after which the server has the shares' gradient times scale. Every share must have a
// gradient.
func gradientOf(shares []share, n Normalisation, scale float64) passInput {
	in := passInput{Loss: gradientLoss}
	for i := range shares {
		s := &shares[i]
		d := datumOf(s.row)
		factor := scale
		if s.sent {
			factor--
		}
		factor *= n.divisor(s.row.TrainedTokens(), len(shares))
		logprobs, advantages := make([]float64, len(s.row.IDs)-1), make([]float64, len(s.row.IDs)-1)
		for t := range logprobs {
			if s.row.Mask[t+1] != 0 {
				logprobs[t], advantages[t] = s.logprobs[t+1], -s.slope[t+1]*factor
			}
		}
		d.Inputs.Logprobs, d.Inputs.Advantages = floatTensor(logprobs), floatTensor(advantages)
		in.Data = append(in.Data, d)
	}
	return in
}

// infinite reports whether a number is NaN or infinite.
func infinite(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }
