package tinker

import (
	"fmt"
	"math"
	"strings"

	"deepswe/rl"
)

// Loss is the loss function that the server is sent.
type Loss string

const (
	// Custom evaluates the objective in this process. The server computes the log-probabilities in a forward pass. It
	// is then sent importance_sampling with these as the old ones, so that every ratio is 1, and with the gradient of
	// the objective as advantages, so that the gradient of the loss is that of the objective. This works for every
	// objective on every server.
	Custom Loss = "custom"
	// ImportanceSampling is the server's r A, without clipping.
	ImportanceSampling Loss = "importance_sampling"
	// PPO is the server's clipped surrogate. Both bounds are always sent.
	PPO Loss = "ppo"
)

// Supports returns an error if the server's loss is not the objective. offPolicy is set if ratios can differ from 1,
// because rollouts may be older than the policy or a batch is used for several updates.
func (l Loss) Supports(o rl.Objective, offPolicy bool) error {
	var has []string
	if o.Entropy != 0 {
		return fmt.Errorf("the entropy bonus needs the whole distribution, which no Tinker server provides; " +
			"to fix: set entropy to 0")
	}
	switch l {
	case Custom:
		return nil
	case ImportanceSampling, PPO:
	default:
		return fmt.Errorf("loss is %q: want custom, importance_sampling or ppo", l)
	}
	if o.DualClip != 0 {
		has = append(has, "clip.dual")
	}
	if o.Decoupled {
		has = append(has, "decoupled")
	}
	if o.Corrections != (rl.Corrections{}) {
		has = append(has, "corrections")
	}
	surrogate := o.Surrogate
	if surrogate == "" {
		surrogate = rl.PPO
	}
	switch {
	case len(has) > 0:
		return fmt.Errorf("the server's loss %s has no %s; to fix: set loss to custom", l, strings.Join(has, ", "))
	case surrogate == rl.CrossEntropy:
		return fmt.Errorf("the server's loss %s is not %s; to fix: set loss to custom", l, surrogate)
	case l == PPO && surrogate != rl.PPO:
		return fmt.Errorf("the server's loss ppo is not the surrogate %s; to fix: set loss to custom", surrogate)
	case l == ImportanceSampling && surrogate == rl.Reinforce:
		return fmt.Errorf("the server's loss importance_sampling is not the surrogate reinforce; to fix: set loss to custom")
	case l == ImportanceSampling && surrogate == rl.PPO && offPolicy:
		return fmt.Errorf("loss importance_sampling does not clip, and ratios leave 1 with rollouts.max_staleness, " +
			"optimizer.minibatches or optimizer.epochs; to fix: set loss to custom, or the surrogate to importance_sampling")
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

// share is a row whose gradient is sent with the next step.
type share struct {
	row *rl.Row
	// logprobs are the trainer's, slope is dLoss/dlogprob, both in the shape of the row's ids.
	logprobs, slope []float64
}

// hasGradient reports whether any trained token has a gradient.
func (s *share) hasGradient() bool {
	for _, d := range s.slope {
		if d != 0 {
			return true
		}
	}
	return false
}

// request returns the pass whose gradient is the shares' gradient times scale. Every share must have a gradient.
func (l Loss) request(shares []share, o rl.Objective, n Normalisation, scale float64) passInput {
	in := passInput{Loss: string(ImportanceSampling)}
	if l == PPO {
		low, high := o.ClipLow, o.ClipHigh
		if low == 0 {
			low = 0.2
		}
		if high == 0 {
			high = 0.28
		}
		in.Loss = string(PPO)
		in.Config = map[string]float64{clipLow: 1 - low, clipHigh: 1 + high}
	}
	for i := range shares {
		s := &shares[i]
		d := datumOf(s.row)
		factor := scale * n.divisor(trained(s.row), len(shares))
		logprobs, advantages := make([]float64, len(s.row.IDs)-1), make([]float64, len(s.row.IDs)-1)
		for t := range logprobs {
			if s.row.Mask[t+1] == 0 {
				continue
			}
			if l == Custom {
				logprobs[t], advantages[t] = s.logprobs[t+1], -s.slope[t+1]*factor
			} else {
				logprobs[t], advantages[t] = s.row.Logprobs[t+1], s.row.Advantage*s.row.Scale*factor
			}
		}
		d.Inputs.Logprobs, d.Inputs.Advantages = floatTensor(logprobs), floatTensor(advantages)
		in.Data = append(in.Data, d)
	}
	return in
}

// finite reports whether all slopes are finite.
func finite(slopes [][]float64) bool {
	for _, s := range slopes {
		for _, v := range s {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return false
			}
		}
	}
	return true
}
