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
		return r.hybridAtK(cs, k)
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
	sum, below := 0.0, 0.0
	for begin := 0; begin < len(order); {
		end := begin + 1
		for end < len(order) && compare(order[begin], order[end]) == 0 {
			end++
		}
		// Subsets of the first end candidates without those of the first begin ones.
		within := math.Exp(logChoose(end, k) - logChoose(len(cs), k))
		sum += (within - below) * share(order[begin:end])
		begin, below = end, within
	}
	return min(1, sum)
}

// logChoose returns the logarithm of the number of ways to choose k of n, which may be beyond a float.
func logChoose(n, k int) float64 {
	if k < 0 || k > n {
		return math.Inf(-1)
	}
	log := func(n int) float64 { l, _ := math.Lgamma(float64(n) + 1); return l }
	return log(n) - log(k) - log(n-k)
}

// draw weighs numbers of drawn candidates. If each were drawn with probability p, all subsets of a size would be
// equally probable, so that these weights relate like numbers of subsets, and stay within a float.
type draw struct{ p float64 }

func (d draw) weight(n, k int) float64 {
	switch {
	case k < 0 || k > n:
		return 0
	case d.p == 1 && k == n:
		return 1
	case d.p == 1:
		return 0
	}
	return math.Exp(logChoose(n, k) + float64(k)*math.Log(d.p) + float64(n-k)*math.Log1p(-d.p))
}

// pool holds the candidates with one patch, which share tier, tests and score.
type pool struct {
	first Scored
	tier  int
	size  int
	share float64
	drawn []float64 // by number
}

// pools returns the patches, the best tier first, and the best scores first in each.
func (r Rule) pools(cs []Scored, d draw) []pool {
	plain := make([]Candidate, len(cs))
	for i, c := range cs {
		plain[i] = c.Candidate
	}
	groups := map[string][]Scored{}
	for i, c := range bestScores(plain) {
		groups[c.Patch] = append(groups[c.Patch], Scored{c, cs[i].Solved})
	}
	var pools []pool
	for _, g := range groups {
		p := pool{first: g[0], tier: r.tier(g[0]), size: len(g), share: share(g)}
		for n := range len(g) + 1 {
			p.drawn = append(p.drawn, d.weight(len(g), n))
		}
		pools = append(pools, p)
	}
	slices.SortFunc(pools, func(a, b pool) int {
		return cmp.Or(cmp.Compare(b.tier, a.tier), compareScores(b.first.Score, a.first.Score),
			compareTests(a.first.Tests, b.first.Tests), cmp.Compare(a.first.Patch, b.first.Patch))
	})
	return pools
}

// alike reports whether the rule cannot tell two patches apart but by agreement.
func (p pool) alike(o pool) bool {
	return p.level(o) && compareTests(p.first.Tests, o.first.Tests) == 0
}

func (p pool) level(o pool) bool {
	return p.tier == o.tier && compareScores(p.first.Score, o.first.Score) == 0
}

// hybridAtK is BestAtK for the rule with a cut: of a subset of k, the top patches by score stay, those level with the
// last of them included; of these the best by tests wins, and of equals the best by score.
//
// For each kind of patches that are alike, the subsets in which it wins are counted, patch by patch from the best score
// down: until top patches are drawn, none may have better results, nor equal ones at a better score; at least one must
// be of the kind; what is drawn after top is free.
func (r Rule) hybridAtK(cs []Scored, k int) float64 {
	d := draw{float64(k) / float64(len(cs))}
	pools := r.pools(cs, d)
	top := min(k, r.top(k))
	sum := 0.0
	for begin := 0; begin < len(pools); {
		end := begin + 1
		for end < len(pools) && pools[begin].alike(pools[end]) {
			end++
		}
		sum += winning(pools, begin, end, k, top, d)
		begin = end
	}
	return min(1, sum/d.weight(len(cs), k))
}

// table holds weights by the number of patches drawn so far, where top stands for more, too, and by the number of
// candidates.
type table [][]float64

func newTable(top, k int) table {
	t := make(table, top+1)
	for i := range t {
		t[i] = make([]float64, k+1)
	}
	return t
}

// shift adds to t the weights of old after patches and candidates more were drawn, with the weight by.
func (t table) shift(old table, patches, candidates int, by float64) {
	if by == 0 {
		return
	}
	for p, row := range old {
		for c, w := range row[:max(0, len(row)-candidates)] {
			t[min(len(t)-1, p+patches)][c+candidates] += w * by
		}
	}
}

// with returns the weights after up to most draws of a patch.
func (t table) with(p pool, most int) table {
	next := newTable(len(t)-1, len(t[0])-1)
	for n := range min(p.size, most) + 1 {
		next.shift(t, min(1, n), n, p.drawn[n])
	}
	return next
}

// winning weighs the subsets of k in which one of pools[begin:end] wins, by the share of the kind's candidates that
// solved the task.
func winning(pools []pool, begin, end, k, top int, d draw) float64 {
	own := pools[begin]
	rest := 0 // candidates after the ones looked at
	for _, p := range pools {
		rest += p.size
	}
	t, done := newTable(top, k), 0.0
	t[0][0] = 1
	for i := 0; i < len(pools); {
		last := i + 1
		for last < len(pools) && pools[i].level(pools[last]) {
			last++
		}
		for at, p := range pools[i:last] {
			rest -= p.size
			order := compareTests(p.first.Tests, own.first.Tests)
			switch {
			case i+at >= begin && i+at < end: // below, all at once
			case p.tier > own.tier || p.tier == own.tier && (order > 0 || order == 0 && i+at < begin):
				t = t.with(p, 0)
			default:
				t = t.with(p, p.size)
			}
		}
		if begin >= i && begin < last {
			t = t.solved(pools[begin:end])
		}
		for candidates, w := range t[top] { // with all patches that the cut keeps
			if last > begin && w > 0 {
				done += w * d.weight(rest, k-candidates)
			}
			t[top][candidates] = 0
		}
		i = last
	}
	for _, row := range t {
		done += row[k]
	}
	return done
}

// solved returns the weights after the draws of the kind that wins, at least one, by the share of its drawn candidates
// that solved the task.
func (t table) solved(kind []pool) table {
	top, k := len(t)-1, len(t[0])-1
	draws, hits := newTable(top, k), newTable(top, k)
	draws[0][0] = 1
	for _, p := range kind {
		hits = hits.with(p, p.size)
		for n := 1; n <= p.size; n++ {
			hits.shift(draws, 1, n, p.drawn[n]*float64(n)*p.share)
		}
		draws = draws.with(p, p.size)
	}
	next := newTable(top, k)
	for patches, row := range hits {
		for candidates, hit := range row {
			next.shift(t, patches, candidates, hit/float64(max(1, candidates)))
		}
	}
	return next
}
