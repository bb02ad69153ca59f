package tinker

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"deepswe/agent"
	"deepswe/rl"
)

// Check compares sampler and trainer after each publication.
type Check struct {
	// Tokens are sampled for it [256].
	Tokens int
	// Tolerance is the largest mean of |sampler's logprob - trainer's logprob| over them. 0 is ten times what it was at
	// the first publication, where only arithmetic can differ, and within 1e-4 and 0.1.
	Tolerance float64
}

// The bounds of a tolerance that is measured.
const (
	leastTolerance = 1e-4
	mostTolerance  = 0.1
)

// checkSequences is how many sequences are sampled for a check, at most.
const checkSequences = 8

func (c Check) withDefaults() Check {
	c.Tokens = cmp.Or(c.Tokens, 256)
	return c
}

// tolerance is the one in force; floor is what was measured first, 0 before that.
func (c Check) tolerance(floor float64) float64 {
	switch {
	case c.Tolerance > 0:
		return c.Tolerance
	case floor == 0:
		return mostTolerance
	}
	return min(mostTolerance, max(leastTolerance, 10*floor))
}

// compare samples from what was just published and asks the trainer for the probabilities of the same tokens. Where
// they part, other weights sample than are trained.
func (t *Trainer) compare(ctx context.Context) (rl.Gap, error) {
	rows, err := t.checkRows(ctx)
	if err != nil {
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
	if gap.Mean > limit {
		return gap, fmt.Errorf("%w: over %d tokens their logprobs differ by %.3g on average and %.3g at most; at most %.3g "+
			"on average was expected. To fix: check that the publication reached every sampler, that both have the same "+
			"model, and that nothing filters the sampling", rl.ErrApart, gap.Tokens, gap.Mean, gap.Max, limit)
	}
	return gap, nil
}

// checkRows samples sequences for a check.
func (t *Trainer) checkRows(ctx context.Context) ([]rl.Row, error) {
	prompt, err := t.options.Renderer.Render(agent.Request{
		Messages: []agent.Message{{Role: agent.RoleUser, Content: "check"}},
	})
	if err != nil {
		return nil, err
	}
	n := min(checkSequences, t.options.Check.Tokens)
	seed := t.number
	length := (t.options.Check.Tokens + n - 1) / n
	if t.limits.length > 0 {
		length = min(length, t.limits.length-len(prompt))
	}
	sequences, err := t.sampler.draw(ctx, t.sampler.source(), 0, sampleRequest{
		Prompt: inputOf(prompt), Samples: n,
		Params: samplingParams{MaxTokens: length, Seed: &seed, Temperature: 1, TopK: -1, TopP: 1},
	})
	if err != nil {
		return nil, err
	}
	rows := make([]rl.Row, len(sequences))
	for i, s := range sequences {
		rows[i] = rl.Row{
			Task: "check", Attempt: i, IDs: slices.Concat(prompt, s.Tokens),
			Mask:     slices.Concat(make([]uint8, len(prompt)), slices.Repeat([]uint8{1}, len(s.Tokens))),
			Logprobs: slices.Concat(make([]float64, len(prompt)), []float64(s.Logprobs)),
		}
		if err := t.limits.check(&rows[i]); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// gapOf compares the sampler's logprobs, which rows have, with the trainer's.
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
