package tinker

import (
	"context"
	"fmt"
	"math"
	"slices"

	"deepswe/agent"
	"deepswe/rl"
)

// Check configures the comparison of sampler and trainer after each publication.
type Check struct {
	// Tokens is how many tokens to sample for it [256].
	Tokens int
	// Tolerance is the largest permitted mean of |sampler's logprob - trainer's logprob| over these tokens. 0 stands
	// for ten times the mean at the first publication, when only arithmetic can differ, but at least 1e-4 and at most
	// 0.1.
	Tolerance float64
}

// Limits of a measured tolerance.
const (
	leastTolerance = 1e-4
	mostTolerance  = 0.1
)

// checkTask is the task of the rows of a check.
const checkTask = "check"

// rowOf returns a sample as a row, in which all that was sampled is trained.
func rowOf(task string, i int, s *agent.Sample) rl.Row {
	prompt := len(s.PromptIDs)
	return rl.Row{
		Task: task, Attempt: i, IDs: slices.Concat(s.PromptIDs, s.CompletionIDs),
		Mask:     slices.Concat(make([]uint8, prompt), slices.Repeat([]uint8{1}, len(s.CompletionIDs))),
		Logprobs: slices.Concat(make([]float64, prompt), s.Logprobs),
	}
}

// checkSequences is the most sequences to sample for a check.
const checkSequences = 8

// tolerance returns the tolerance in force. floor is the mean at the first publication, 0 before that.
func (c Check) tolerance(floor float64) float64 {
	switch {
	case c.Tolerance > 0:
		return c.Tolerance
	case floor == 0:
		return mostTolerance
	}
	return min(mostTolerance, max(leastTolerance, 10*floor))
}

// compare samples from the policy that was just published, and asks the trainer for the log-probabilities of the same
// tokens. If they differ, the sampler has other weights than the trainer.
func (t *Trainer) compare(ctx context.Context) (rl.Gap, error) {
	rows, err := t.sampler.check(ctx, t.number, t.options.Check.Tokens)
	if err != nil {
		return rl.Gap{}, fmt.Errorf("check the sampler: %w", err)
	}
	for i := range rows {
		rows[i] = t.limits.head(rows[i])
	}
	if err := t.limits.checkAll(rows); err != nil {
		return rl.Gap{}, fmt.Errorf("check the sampler: %w", err)
	}
	logprobs, err := t.model.forward(ctx, rows)
	if err != nil {
		return rl.Gap{}, fmt.Errorf("check the sampler: %w", err)
	}
	gap := gapOf(rows, logprobs)
	limit := t.options.Check.tolerance(t.floor)
	if t.floor == 0 {
		t.floor = max(gap.Mean, math.SmallestNonzeroFloat64)
	}
	// One of many samplers with old weights might not show in the mean of all. Each has rows of its own Group.
	for from := 0; from < len(rows); {
		name, to := rows[from].Group, from
		for to < len(rows) && rows[to].Group == name {
			to++
		}
		if name != "" {
			name = " of " + name
		}
		g := gapOf(rows[from:to], logprobs[from:to])
		if from = to; g.Mean > limit {
			return gap, fmt.Errorf("%w: over %d tokens%s their logprobs differ by %.3g on average and %.3g at most; at most "+
				"%.3g on average was expected. To fix: check that the publication reached every sampler, that both have the "+
				"same model, and that nothing filters the sampling", rl.ErrApart, g.Tokens, name, g.Mean, g.Max, limit)
		}
	}
	return gap, nil
}

// head cuts a row to the length that the trainer takes. What is cut off changes none of the log-probabilities before
// it. The row stays whole if no trained token would be left.
func (l limits) head(r rl.Row) rl.Row {
	if l.length == 0 || len(r.IDs) <= l.length {
		return r
	}
	short := r
	short.IDs, short.Mask, short.Logprobs = r.IDs[:l.length], r.Mask[:l.length], r.Logprobs[:l.length]
	if short.TrainedTokens() == 0 {
		return r
	}
	return short
}

// gapOf compares the sampler's logprobs, which are in the rows, with the trainer's.
func gapOf(rows []rl.Row, logprobs [][]float64) rl.Gap {
	var g rl.Gap
	sum := 0.0
	for i := range rows {
		for k, m := range rows[i].Mask {
			if m == 0 {
				continue
			}
			d := math.Abs(rows[i].Logprobs[k] - logprobs[i][k])
			g.Tokens++
			g.Max = max(g.Max, d)
			sum += d
		}
	}
	if g.Tokens > 0 {
		g.Mean = sum / float64(g.Tokens)
	}
	return g
}
