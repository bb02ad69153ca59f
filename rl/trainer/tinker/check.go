package tinker

import (
	"cmp"
	"context"
	"fmt"
	"math"

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

// checkSequences is the most sequences to sample for a check.
const checkSequences = 8

func (c Check) withDefaults() Check {
	c.Tokens = cmp.Or(c.Tokens, 256)
	return c
}

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
	rows, err := t.outlet.check(ctx, t.number, t.options.Check.Tokens)
	if err != nil {
		return rl.Gap{}, fmt.Errorf("check the sampler: %w", err)
	}
	for i := range rows {
		if err := t.limits.check(&rows[i]); err != nil {
			return rl.Gap{}, fmt.Errorf("check the sampler: %w", err)
		}
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
	for _, g := range bySampler(rows, logprobs) {
		if g.Mean > limit {
			return gap, fmt.Errorf("%w: over %d tokens%s their logprobs differ by %.3g on average and %.3g at most; at most "+
				"%.3g on average was expected. To fix: check that the publication reached every sampler, that both have the "+
				"same model, and that nothing filters the sampling", rl.ErrApart, g.Tokens, g.of, g.Mean, g.Max, limit)
		}
	}
	return gap, nil
}

// samplerGap is the gap of one sampler. of names it if there are several.
type samplerGap struct {
	rl.Gap
	of string
}

// bySampler returns the gap of each sampler, because one of many with old weights might not show in the mean of all.
func bySampler(rows []rl.Row, logprobs [][]float64) []samplerGap {
	var gaps []samplerGap
	for from := 0; from < len(rows); {
		to := from + 1
		for to < len(rows) && rows[to].Group == rows[from].Group {
			to++
		}
		g := samplerGap{Gap: gapOf(rows[from:to], logprobs[from:to])}
		if rows[from].Group != "" {
			g.of = " of " + rows[from].Group
		}
		gaps, from = append(gaps, g), to
	}
	return gaps
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
