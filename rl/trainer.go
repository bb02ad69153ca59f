package rl

import (
	"context"
	"errors"
	"fmt"
	"math"

	"deepswe/agent"
)

// Trainer holds a policy's weights and changes them. The embedded one is a small network on the CPU; others speak to a
// GPU engine over HTTP. Calls are made one at a time.
type Trainer interface {
	// Forward returns the logprobs that the current weights give to the rows' tokens, in the shape of their IDs; where
	// Mask is 0 they mean nothing. It changes neither the weights nor what is accumulated. A trainer without weights
	// returns nil.
	Forward(ctx context.Context, rows []Row) ([][]float64, error)
	// ForwardBackward adds the gradient of the objective over the rows to what is accumulated, and changes no weight.
	// Losses are sums: every divisor is already in Row.Scale.
	ForwardBackward(ctx context.Context, rows []Row, o Objective) (Pass, error)
	// Step applies the accumulated gradient and clears it.
	Step(ctx context.Context, o Optimizer) (StepStats, error)
	// Publish makes the current weights available for sampling. Where no weight has changed since the last call, the
	// version is the same. Policies that were published before go on answering until nothing in flight needs them.
	Publish(ctx context.Context) (Policy, error)
	// Save writes weights and optimizer state under the name, Load restores them exactly, and Remove deletes them;
	// removing a name that does not exist is not an error.
	Save(ctx context.Context, name string) error
	Load(ctx context.Context, name string) error
	Remove(ctx context.Context, name string) error
	// Close ends everything that the trainer has started: sessions, connections, goroutines. It must be the last call.
	Close() error
}

// Pass is what a ForwardBackward computes besides the gradient: its statistics, and the logprobs that Forward would
// return, which it needs anyway.
type Pass struct {
	Stats
	Logprobs [][]float64
}

// Policy is a published policy: the model that samples from its weights, and their version.
type Policy struct {
	Model   agent.Model
	Version int64
	// Gap is the difference between the sampler's and the trainer's log-probabilities, if it was measured.
	Gap Gap
}

// Held is a model whose version can be kept beyond the next publication. Until release is called, the model samples
// from its own version. Hold must be called before another policy is published.
type Held interface {
	Hold() (release func())
}

// Gap compares the log-probabilities that a sampler and a trainer give to the same tokens: the mean and the largest of
// their absolute differences. It was not measured where Tokens is 0.
type Gap struct {
	Mean, Max float64
	Tokens    int
}

// Errors of a trainer after which a run cannot simply go on.
var (
	// ErrTrainerLost means that the weights are lost, or that their state is not known. The caller can resume from the
	// last checkpoint.
	ErrTrainerLost = errors.New("the trainer's weights are lost or uncertain")
	// ErrApart: the sampler has other weights than the trainer.
	ErrApart = errors.New("sampler and trainer disagree")
	// ErrUnsampled: no server has sampled for as long as the trainer waits for one. All rollouts end.
	ErrUnsampled = errors.New("no sampler answers")
)

// ErrTooLong reports a row that is longer than a trainer takes.
var ErrTooLong = errors.New("the row is too long")

// Optimizer is Adam with decoupled weight decay (Loshchilov and Hutter 2019) and a clip on the gradient's global norm.
// A zero Beta1, Beta2 or Epsilon means 0.9, 0.999 and 1e-8; a zero ClipNorm does not clip.
type Optimizer struct {
	LearningRate float64
	Beta1, Beta2 float64
	Epsilon      float64
	WeightDecay  float64
	ClipNorm     float64
	// Scale multiplies the accumulated gradient before it is clipped; 0 means 1. It corrects the shares of a batch whose
	// parts were accumulated before all of it was known.
	Scale float64
}

// StepStats describes an optimizer step. Skipped is set when the gradient was not finite and nothing was changed.
type StepStats struct {
	GradientNorm float64 // before clipping; NaN if it is not known
	Skipped      bool
}

// Surrogate names what is maximised for one token: A is its advantage, r = exp(logprob - old logprob).
type Surrogate string

const (
	// PPO is min(r A, clip(r, 1-ClipLow, 1+ClipHigh) A) (Schulman et al. 2017; two bounds as in DAPO 2025). The zero
	// Surrogate means it.
	PPO Surrogate = "ppo"
	// importanceSampling is r A without a clip.
	importanceSampling Surrogate = "importance_sampling"
	// Reinforce is A logprob: the ratio matters only to Corrections.
	Reinforce Surrogate = "reinforce"
	// CISPO is A logprob times the ratio held within [RatioMin, RatioMax], a constant for the gradient: a token outside
	// keeps a gradient (MiniMax 2025, arXiv 2506.13585, equations 4 and 5).
	CISPO Surrogate = "cispo"
	// GSPO is PPO with one ratio for a row, exp of the mean log-ratio of its trained tokens (Zheng et al. 2025, arXiv
	// 2507.18071, in the token form, which has the same value and gradient where all tokens have one advantage).
	GSPO Surrogate = "gspo"
	// SAPO replaces the clip by a gate that falls smoothly on both sides of r = 1: A sigmoid(t (r-1)) 4/t, with t of
	// GatePositive or GateNegative by the sign of A (arXiv 2511.20347).
	SAPO Surrogate = "sapo"
	// CrossEntropy is the logprob alone: what is imitated has neither advantage nor sampler (supervised fine-tuning).
	// Row.Advantage and Row.Logprobs mean nothing, and no correction applies.
	CrossEntropy Surrogate = "cross_entropy"
)

// Objective says what a forward/backward pass maximises. The zero value is the loss of GRPO++: PPO clipped at 0.8 and
// 1.28, no dual clip, no entropy term, no corrections. The divisor of the aggregation is in Row.Scale, never here.
type Objective struct {
	Surrogate Surrogate
	// ClipLow and ClipHigh bound the ratio to [1-ClipLow, 1+ClipHigh]; zero means 0.2 and 0.28.
	ClipLow, ClipHigh float64
	// DualClip, if above 1, bounds the loss of a token with a negative advantage to -DualClip A (Ye et al. 2020). Zero
	// turns it off.
	DualClip float64
	// RatioMin and RatioMax bound the ratio of CISPO; zero means 0 and 5.
	RatioMin, RatioMax float64
	// GatePositive and GateNegative are how steep SAPO's gate is; zero means 1 and 1.05.
	GatePositive, GateNegative float64
	// MismatchPenalty is the coefficient of (logprob - sampler logprob)^2, which is added to the loss of every trained
	// token, masked by corrections or not.
	MismatchPenalty float64
	// Entropy is the coefficient of an entropy bonus: a trainer that knows the whole distribution subtracts
	// Entropy * Scale * (sum of the entropies at trained tokens) from the loss. One that does not refuses a value other
	// than zero.
	Entropy float64
	// Decoupled takes the old policy of the ratio from the trainer, as it was before the batch's first update, and not
	// from the sampler: their difference is then left to Corrections (Hilton et al. 2021).
	Decoupled bool
	// Estimated is set if the scales of the rows assume a total that is not known yet, so that Optimizer.Scale will not
	// be 1. A trainer that cannot correct a gradient later may then compute it in Step.
	Estimated bool
	// Corrections weigh or mask tokens and rows about which the sampler and the trainer disagree.
	Corrections Corrections
}

// Plain reports whether the loss of a token is -r A, with r the ratio to the sampler, held within exp(MaxLogRatio), and
// the trainer's logprobs matter nowhere else. A server that has this loss needs them for no gradient.
func (o Objective) Plain() bool {
	return o.Surrogate == importanceSampling && !o.Decoupled && o.Corrections == (Corrections{}) &&
		o.MismatchPenalty == 0 && o.Entropy == 0
}

// Corrections act on m = exp(trainer logprob - sampler logprob) of the trained tokens; the trainer's policy is the old
// one where Objective.Decoupled, else the current one. Weights and masks are constants: no gradient flows through them.
// Every zero field is off.
type Corrections struct {
	// TruncateToken is C of the token weight min(m, C); 2 is usual. At most one of the two truncations is on. With PPO
	// and importanceSampling they need Decoupled: without it the ratio already is m, and the weight would count twice.
	TruncateToken float64
	// TruncateSequence is C of the row weight min(product of m, C); 2 to 10 is usual.
	TruncateSequence float64
	// GeometricMin and GeometricMax keep a row whose exp(mean log m) is within them, and mask it otherwise; 0.99 and
	// 1.01 are usual. A zero bound is open.
	GeometricMin, GeometricMax float64
	// ProductMin and ProductMax keep a row whose product of m is within them, and mask it otherwise; 0.5 and 2 are usual.
	// A zero bound is open.
	ProductMin, ProductMax float64
	// VetoBelow and VetoAbove mask a row with any m below or above them; 1e-4 and 100 are usual.
	VetoBelow, VetoAbove float64
	// TokenMin and TokenMax mask the tokens whose m is outside them; a zero bound is open. With Decoupled and a
	// TruncateToken of TokenMax the weight of a token is IcePop's M(m; TokenMin, TokenMax): m within the bounds, else 0
	// (Ling Team 2025, arXiv 2510.18855; 0.5 and 5 are its values).
	TokenMin, TokenMax float64
	// DivergenceTV and DivergenceKL mask a token for which the current policy has moved too far from the sampler's in the
	// direction of the token's advantage, measured on the two-way split into this token and all others. With p the current
	// probability of the token and q the sampler's, the divergence D is |p - q|, or
	// q log(q/p) + (1-q) log((1-q)/(1-p)); it masks where D is above the bound and A > 0 and p > q, or A < 0 and p < q.
	// With the surrogate importanceSampling either of them is DPPO (Qi et al. 2026, arXiv 2602.04879: binary TV, binary
	// KL); 0.2 is usual for TV and 0.05 for KL.
	DivergenceTV, DivergenceKL float64
	// DivergenceLow is the bound where A < 0; zero means the same bound as for A > 0.
	DivergenceLow float64
}

// Stats describes a forward/backward pass. All but the extremes are sums, so passes over parts of a batch add up with
// [Stats.Add]; divide by Tokens for means.
type Stats struct {
	// Loss is the sum over tokens of -(Scale * Mask * weight * surrogate), whose gradient is computed.
	Loss float64
	// Distance is from the old policy to the current one, at all trained tokens: those that corrections mask still count.
	Distance
	// Rows is the number of rows that were given.
	Rows int
	// ClippedLow counts tokens with a negative advantage whose ratio is under the lower bound, ClippedHigh those with a
	// positive one over the upper bound, DualClipped those that the dual clip stopped: none of them has a gradient.
	ClippedLow, ClippedHigh, DualClipped int
	// VetoedRows, GeometricRows and ProductRows were masked by those corrections, with MaskedTokens trained tokens between
	// them. A row that fails several counts as the first of these. TruncatedTokens had their weight cut.
	VetoedRows, GeometricRows, ProductRows int
	MaskedTokens, TruncatedTokens          int
	// RatioTokens were masked by TokenMin and TokenMax, DivergentTokens by DivergenceTV and DivergenceKL; a token that
	// fails both counts among the former.
	RatioTokens, DivergentTokens int
	// Entropy is the sum of the policy's entropy over EntropyTokens tokens; both are 0 if the trainer does not know it.
	Entropy       float64
	EntropyTokens int
}

// Add adds another part of the same batch.
func (s *Stats) Add(o Stats) {
	s.RatioMin, s.RatioMax = widen(s.Tokens, s.RatioMin, s.RatioMax, o.Tokens, o.RatioMin, o.RatioMax)
	s.Loss += o.Loss
	s.Rows += o.Rows
	s.Tokens += o.Tokens
	s.ClippedLow += o.ClippedLow
	s.ClippedHigh += o.ClippedHigh
	s.DualClipped += o.DualClipped
	s.KL1 += o.KL1
	s.KL3 += o.KL3
	s.VetoedRows += o.VetoedRows
	s.GeometricRows += o.GeometricRows
	s.ProductRows += o.ProductRows
	s.MaskedTokens += o.MaskedTokens
	s.TruncatedTokens += o.TruncatedTokens
	s.RatioTokens += o.RatioTokens
	s.DivergentTokens += o.DivergentTokens
	s.Entropy += o.Entropy
	s.EntropyTokens += o.EntropyTokens
}

// widen joins two ranges; one over no values is ignored.
func widen(n int, lo, hi float64, m int, lo2, hi2 float64) (float64, float64) {
	switch {
	case m == 0:
		return lo, hi
	case n == 0:
		return lo2, hi2
	}
	return min(lo, lo2), max(hi, hi2)
}

// Temperature returns the temperature of a request, or an error for settings with which the log-probabilities of a
// sampler that has no filters would be wrong.
func Temperature(s agent.Sampling) (float64, error) {
	switch {
	case s.TopP != nil && *s.TopP != 1:
		return 0, fmt.Errorf("top_p %g is not supported: want 1", *s.TopP)
	case s.TopK != nil && *s.TopK > 0:
		return 0, fmt.Errorf("top_k %d is not supported: want 0 or -1", *s.TopK)
	case s.MinP != nil && *s.MinP != 0:
		return 0, fmt.Errorf("min_p %g is not supported: want 0", *s.MinP)
	case s.RepetitionPenalty != nil && *s.RepetitionPenalty != 1:
		return 0, fmt.Errorf("repetition_penalty %g is not supported: want 1", *s.RepetitionPenalty)
	case s.Temperature == nil:
		return 1, nil
	case !(*s.Temperature >= 0) || math.IsInf(*s.Temperature, 1):
		return 0, fmt.Errorf("temperature %g: want a number from 0", *s.Temperature)
	}
	return *s.Temperature, nil
}
