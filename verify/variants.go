package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Overfit means that the patch passes the tests, but not with other values in them, although the solution does.
const Overfit SuspicionKind = "overfit"

// Variants are the result of running the tests with other values in them. It decides nothing: the solution may do more
// than is asked for.
type Variants struct {
	// Tests is the number of tests that had other values, and Failed are those of them that did not pass.
	Tests  int      `json:"tests"`
	Failed []string `json:"failed,omitempty"`
}

// SampledWinners is the usual value of Evaluator.Variants.
const SampledWinners = 32

// mostVariants is the maximum number of runs with the solution: a test has up to three variants.
const mostVariants = 4

// sampled reports whether a patch with a reward is one of the sample whose tests run with other values.
func (e *Evaluator) sampled(l *ladder) bool {
	gold := l.task.Tests.GoldPatch
	if e.Variants == 0 || l.v.Reward < 1 || l.v.Void || l.mode == CanaryNever || gold == "" || gold == string(l.patch) ||
		l.task.Tests.RewardFile != "" {
		return false
	}
	n, _ := strconv.ParseUint(hashOf(l.patch)[:8], 16, 32)
	return n%uint64(e.Variants) == 0
}

// vary runs the tests with other values in them, without those variants that the solution does not pass.
func (l *ladder) vary(ctx context.Context) error {
	l.ref.mu.Lock()
	defer l.ref.mu.Unlock()
	m := mixing{seed: l.ref.seed, excluded: l.ref.unsuited, variants: true}
	for range mostVariants { // until those are left that suit the solution
		if l.ref.suited {
			break
		}
		t, err := l.withOtherValues(ctx, []byte(l.task.Tests.GoldPatch), m)
		if err != nil {
			return err
		}
		for mutation := range t.found.other {
			l.ref.unsuited[mutation] = true
		}
		l.ref.suited, l.ref.variants = len(t.found.other) == 0, len(t.mixed.wrong)
	}
	if !l.ref.suited || l.ref.variants == 0 {
		return nil
	}
	t, err := l.withOtherValues(ctx, l.patch, m)
	if err != nil {
		return err
	}
	l.c.Variants = &Variants{Tests: len(t.mixed.wrong), Failed: slices.Sorted(maps.Values(t.found.other))}
	if n := len(t.found.other); n > 0 {
		l.v.suspect(Suspicion{Overfit, fmt.Sprintf("%d of %d tests do not pass with other values in them: %s", n,
			len(t.mixed.wrong), l.c.Variants.Failed[0])})
	}
	return nil
}

// withOtherValues runs the tests of m once with a patch.
func (l *ladder) withOtherValues(ctx context.Context, patch []byte, m mixing) (*trial, error) {
	m.excluded = maps.Clone(m.excluded)
	t := &trial{task: l.task, patch: patch, limit: 2 * l.limit, strict: true, mixing: &m}
	l.c.Runs++
	if err := l.run(ctx, t); err != nil {
		return nil, fmt.Errorf("try other values in the tests: %w", err)
	}
	return t, nil
}
