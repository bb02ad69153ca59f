package rank

import (
	"cmp"
	"math"
	"slices"
)

// Scored is a candidate with a known outcome.
type Scored struct {
	Candidate
	Solved bool
}

// BestAtK is the probability that the rule chooses a candidate that solved the task, when it may choose from k of them,
// drawn without replacement: the exact mean over all subsets of k candidates, given the test results as they count
// among all candidates and, with [Hybrid], the best score of each patch among all of them. Candidates that the rule
// cannot tell apart by tests and score are chosen from at random, so that the value does not depend on their order or
// on agreement. It requires 1 <= k <= len(cs).
func (r Rule) BestAtK(cs []Scored, k int) float64 {
	if r.Verifier == Hybrid {
		if cs = shareScores(cs); r.top(k) < min(k, distinct(cs)) {
			return r.cutAtK(cs, k)
		}
	}
	return orderedAtK(cs, k, func(a, b Scored) int {
		order := cmp.Compare(r.tier(a), r.tier(b))
		if r.Verifier.Tests() {
			order = cmp.Or(order, compareTests(a.Tests, b.Tests))
		}
		if r.Verifier.Judges() {
			order = cmp.Or(order, compareScores(a.Score, b.Score))
		}
		return order
	})
}

// tier is greater for candidates that win against all of a lower one.
func (r Rule) tier(c Scored) int {
	tests := r.Verifier.Tests()
	switch {
	case c.empty() && tests && c.rejected():
		return 0
	case c.empty() && tests && !c.sound():
		return 1
	case c.empty():
		return 2
	case tests && c.rejected():
		return 3
	case tests && !c.sound():
		return 4
	}
	return 5
}

// share returns the share of candidates that solved the task.
func share(cs []Scored) float64 {
	if len(cs) == 0 {
		return 0
	}
	n := 0
	for _, c := range cs {
		if c.Solved {
			n++
		}
	}
	return float64(n) / float64(len(cs))
}

// orderedAtK is BestAtK for one order of all candidates.
func orderedAtK(cs []Scored, k int, compare func(a, b Scored) int) float64 {
	order := slices.SortedFunc(slices.Values(cs), compare)
	c := newChoices(len(cs))
	sum, below := 0.0, 0.0
	for begin := 0; begin < len(order); {
		end := begin + 1
		for end < len(order) && compare(order[begin], order[end]) == 0 {
			end++
		}
		// Subsets of the first end candidates without those of the first begin ones.
		within := math.Exp(c.log(end, k) - c.log(len(cs), k))
		sum += (within - below) * share(order[begin:end])
		begin, below = end, within
	}
	return min(1, sum)
}

// shareScores gives candidates with the same patch the best of their scores.
func shareScores(cs []Scored) []Scored {
	plain := make([]Candidate, len(cs))
	for i, c := range cs {
		plain[i] = c.Candidate
	}
	shared := make([]Scored, len(cs))
	for i, c := range bestScores(plain) {
		shared[i] = Scored{c, cs[i].Solved}
	}
	return shared
}

// distinct counts the patches.
func distinct(cs []Scored) int {
	seen := map[string]bool{}
	for _, c := range cs {
		seen[c.Patch] = true
	}
	return len(seen)
}

// choices holds the logarithms of the factorials up to some number.
type choices []float64

func newChoices(n int) choices {
	c := make(choices, n+1)
	for i := range c {
		c[i], _ = math.Lgamma(float64(i) + 1)
	}
	return c
}

// log returns the logarithm of the number of ways to choose k of n, which may be beyond a float.
func (c choices) log(n, k int) float64 {
	if k < 0 || k > n {
		return math.Inf(-1)
	}
	return c[n] - c[k] - c[n-k]
}
