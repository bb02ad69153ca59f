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
// drawn without replacement: the exact mean over all subsets of k candidates. Candidates that the rule cannot tell
// apart by tests and score are chosen from at random, so that the value does not depend on their order or on agreement.
// It requires 1 <= k <= len(cs).
//
// Where candidates are told apart by one order, the best of a subset is in a class with the probability that the subset
// has a member there and none above, and hits as often as the class does. The cut of [Hybrid] depends on the subset:
// see hybridAtK.
func (r Rule) BestAtK(cs []Scored, k int) float64 {
	usable, rest := cs[:0:0], cs[:0:0]
	var last []Scored
	for _, c := range cs {
		switch {
		case c.empty():
			last = append(last, c)
		case r.Verifier.Tests() && c.rejected():
			rest = append(rest, c)
		default:
			usable = append(usable, c)
		}
	}
	// The subset has j usable candidates with a hypergeometric probability; with none, the rule falls back on those
	// that were rejected, and then on empty ones.
	total, worse := choose(len(cs), k), len(cs)-len(usable)
	sum := 0.0
	for j := 1; j <= min(k, len(usable)); j++ {
		if ways := choose(len(usable), j) * choose(worse, k-j); ways > 0 {
			sum += ways / total * r.fromUsable(usable, j, k)
		}
	}
	for j := 1; j <= min(k, len(rest)); j++ {
		if ways := choose(len(rest), j) * choose(len(last), k-j); ways > 0 {
			sum += ways / total * r.fromUsable(rest, j, k)
		}
	}
	if ways := choose(len(last), k); ways > 0 {
		for i := range last {
			last[i].Patch = "empty" // among themselves, they are ranked like any others
		}
		sum += ways / total * r.BestAtK(last, k)
	}
	return min(1, sum)
}

// fromUsable is BestAtK for subsets of size of, in which k candidates are usable and the others are empty or rejected.
func (r Rule) fromUsable(cs []Scored, k, of int) float64 {
	scored := slices.ContainsFunc(cs, func(c Scored) bool { return c.Score != nil })
	switch r.Verifier {
	case Hybrid:
		if scored {
			return hybridAtK(cs, k, min(k, r.top(of)))
		}
		return orderedAtK(cs, k, byTestsThenScore)
	case Exec:
		return orderedAtK(cs, k, byTestsThenScore)
	case Free:
		return orderedAtK(cs, k, func(a, b Scored) int { return compareScores(a.Score, b.Score) })
	case None:
	}
	return share(cs)
}

func byTestsThenScore(a, b Scored) int {
	return cmp.Or(compareTests(a.Tests, b.Tests), compareScores(a.Score, b.Score))
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
	total, sum := choose(len(cs), k), 0.0
	for begin := 0; begin < len(order); {
		end := begin + 1
		for end < len(order) && compare(order[begin], order[end]) == 0 {
			end++
		}
		// Subsets of the first end candidates without those of the first begin ones.
		sum += (choose(end, k) - choose(begin, k)) / total * share(order[begin:end])
		begin = end
	}
	return sum
}

// hybridAtK is BestAtK for the rule with a cut: of a subset of k, the top candidates by score stay, those level with
// the last of them included; of these the best by tests wins, and of equals the best by score.
//
// The winner's kind is a pair of score and test results. For each kind, the subsets are counted in which it wins, class
// by class of equal scores from the best down: until top candidates are drawn, none may have better results, nor equal
// ones at a better score; at the kind's own score at least one must be of the kind; what is drawn after top is free.
func hybridAtK(cs []Scored, k, top int) float64 {
	order := slices.SortedFunc(slices.Values(cs), func(a, b Scored) int { return compareScores(b.Score, a.Score) })
	var classes [][]Scored
	for i, c := range order {
		if i == 0 || compareScores(order[i-1].Score, c.Score) != 0 {
			classes = append(classes, nil)
		}
		classes[len(classes)-1] = append(classes[len(classes)-1], c)
	}
	total, sum := choose(len(cs), k), 0.0
	for i, class := range classes {
		byTests := slices.SortedFunc(slices.Values(class), func(a, b Scored) int { return compareTests(a.Tests, b.Tests) })
		for begin := 0; begin < len(byTests); {
			end := begin + 1
			for end < len(byTests) && compareTests(byTests[begin].Tests, byTests[end].Tests) == 0 {
				end++
			}
			if kind := byTests[begin:end]; share(kind) > 0 {
				sum += winning(classes, i, kind[0].Tests, k, top) / total * share(kind)
			}
			begin = end
		}
	}
	return sum
}

// winning counts the subsets of k in which the best by tests of those that the cut keeps are at the score of class own,
// with the results t.
func winning(classes [][]Scored, own int, t *Tests, k, top int) float64 {
	ways := make([]float64, top) // by how many were drawn so far, as long as the cut goes on
	ways[0] = 1
	done := 0.0 // number of complete subsets
	for i, class := range classes {
		below, equal := 0, 0
		for _, c := range class {
			switch d := compareTests(c.Tests, t); {
			case d < 0:
				below++
			case d == 0:
				equal++
			}
		}
		after := 0
		for _, later := range classes[i+1:] {
			after += len(later)
		}
		next := make([]float64, top)
		for drawn, w := range ways {
			if w == 0 {
				continue
			}
			for s := 0; s <= min(below+equal, k-drawn); s++ {
				var n float64
				switch {
				case i < own:
					n = choose(below, s)
				case i == own:
					n = choose(below+equal, s) - choose(below, s)
				default:
					n = choose(below+equal, s)
				}
				switch {
				case n == 0:
				case drawn+s >= top:
					// The cut is made. Classes before the kind's own must not end it: the kind would not be in.
					if i >= own {
						done += w * n * choose(after, k-drawn-s)
					}
				default:
					next[drawn+s] += w * n
				}
			}
		}
		ways = next
	}
	return done
}

// choose returns the number of ways to choose k of n, 0 if there are none. It is exact up to 2^53, and correct to about
// 15 digits beyond.
func choose(n, k int) float64 {
	if k < 0 || k > n {
		return 0
	}
	k = min(k, n-k)
	c := 1.0
	for i := 1; i <= k; i++ {
		c = c * float64(n-k+i) / float64(i)
	}
	return math.Round(c)
}
