package rank

import (
	"cmp"
	"math"
	"slices"
)

// pool holds the candidates with one patch, which share tier, tests and score.
type pool struct {
	first Scored
	tier  int
	share float64
	drawn []float64 // weights of drawing 0, 1, … of them
}

func (p pool) size() int { return len(p.drawn) - 1 }

// level reports whether the cut keeps both patches or none.
func (p pool) level(o pool) bool {
	return p.tier == o.tier && compareScores(p.first.Score, o.first.Score) == 0
}

// alike reports whether the rule can tell two patches apart by agreement only.
func (p pool) alike(o pool) bool {
	return p.level(o) && compareTests(p.first.Tests, o.first.Tests) == 0
}

// draws weighs numbers of drawn candidates. If each were drawn with probability p, all subsets of a size would be
// equally probable, so that these weights relate like numbers of subsets, and stay within a float.
type draws struct {
	choices
	p float64
}

func (d draws) weight(n, k int) float64 {
	if d.p == 1 { // everything is drawn
		return float64(countIf(n == k))
	}
	return math.Exp(d.log(n, k) + float64(k)*math.Log(d.p) + float64(n-k)*math.Log1p(-d.p))
}

func countIf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// pools returns the patches, the best tier first, and the best scores first in each.
func (r Rule) pools(cs []Scored, d draws) []pool {
	groups := map[string][]Scored{}
	for _, c := range cs {
		groups[c.Patch] = append(groups[c.Patch], c)
	}
	pools := make([]pool, 0, len(groups))
	for _, g := range groups {
		p := pool{first: g[0], tier: r.tier(g[0]), share: share(g), drawn: make([]float64, len(g)+1)}
		for n := range p.drawn {
			p.drawn[n] = d.weight(len(g), n)
		}
		pools = append(pools, p)
	}
	slices.SortFunc(pools, func(a, b pool) int {
		return cmp.Or(cmp.Compare(b.tier, a.tier), compareScores(b.first.Score, a.first.Score),
			compareTests(a.first.Tests, b.first.Tests), cmp.Compare(a.first.Patch, b.first.Patch))
	})
	return pools
}

// cutAtK is BestAtK for the rule with a cut: of a subset of k, the top patches by score stay, those level with the last
// of them included; of these the best by tests wins, and of equals the best by score.
//
// For each kind of patches that are alike, the subsets in which it wins are counted, patch by patch from the best score
// down: until top patches are drawn, none may have better results, nor equal ones at a better score; at least one must
// be of the kind; what is drawn after top is free.
func (r Rule) cutAtK(cs []Scored, k int) float64 {
	d := draws{newChoices(len(cs)), float64(k) / float64(len(cs))}
	pools := r.pools(cs, d)
	top, sum := r.top(k), 0.0
	t := newTable(top, k, len(cs)-len(pools))
	for begin := 0; begin < len(pools); {
		end := begin + 1
		for end < len(pools) && pools[begin].alike(pools[end]) {
			end++
		}
		sum += t.winning(pools, begin, end, d)
		begin = end
	}
	return min(1, sum/d.weight(len(cs), k))
}

// table holds the weights of what is drawn, by the number of patches (the last row stands for more, too) and by how
// many candidates were drawn beyond one for each of them. Only copies go beyond it, so that rows are short.
type table struct {
	rows [][]float64
	k    int
}

func newTable(top, k, copies int) table {
	t := table{make([][]float64, top+1), k}
	for j := range top {
		t.rows[j] = make([]float64, min(copies, k-j)+1)
	}
	t.rows[top] = make([]float64, k-top+1)
	return t
}

// empty clears the table and returns it, as it is before anything is drawn.
func (t table) empty() table {
	for _, row := range t.rows {
		clear(row)
	}
	t.rows[0][0] = 1
	return t
}

// like returns a table of the same size in which all weights are 0.
func (t table) like() table {
	next := table{make([][]float64, len(t.rows)), t.k}
	for j, row := range t.rows {
		next.rows[j] = make([]float64, len(row))
	}
	return next
}

// add adds the weight of some drawn patches and candidates.
func (t table) add(patches, candidates int, w float64) {
	if candidates <= t.k {
		patches = min(patches, len(t.rows)-1)
		t.rows[patches][candidates-patches] += w
	}
}

// draw draws any number of a patch's candidates. It goes from many to few, so that what is added is not drawn again.
func (t table) draw(p pool) {
	next, beyond := t.rows[len(t.rows)-1], 1
	for _, row := range slices.Backward(t.rows) {
		for e := len(row) - 1; e >= 0; e-- {
			w := row[e]
			if w == 0 {
				continue
			}
			row[e] = w * p.drawn[0]
			for n, by := range p.drawn[1:min(len(p.drawn), max(1, len(next)-e-beyond+1))] {
				next[e+beyond+n] += w * by
			}
		}
		next, beyond = row, 0
	}
}

// winning weighs the subsets of k in which one of pools[begin:end] wins, by the share of the kind's candidates that
// solved the task.
func (t table) winning(pools []pool, begin, end int, d draws) (won float64) {
	own := pools[begin]
	rest := len(d.choices) - 1 // candidates after the ones looked at
	t, none := t.empty(), 1.0  // none is the weight of drawing nothing that would win instead
	for i, p := range pools {
		if p.tier < own.tier {
			break
		}
		rest -= p.size()
		better := compareTests(p.first.Tests, own.first.Tests)
		switch {
		case i >= begin && i < end:
			if i == begin {
				t = t.drawKind(pools[begin:end])
			}
		case p.tier > own.tier, better > 0, better == 0 && i < begin:
			none *= p.drawn[0]
		default:
			t.draw(p)
		}
		if i+1 == len(pools) || !p.level(pools[i+1]) { // all patches that the cut keeps are drawn
			last := t.rows[len(t.rows)-1]
			for e, w := range last {
				if w > 0 && i >= begin {
					won += none * w * d.weight(rest, t.k-(len(t.rows)-1)-e)
				}
			}
			clear(last)
		}
	}
	for j, row := range t.rows { // fewer patches than the cut keeps
		for e, w := range row {
			if w > 0 {
				won += none * w * d.weight(rest, t.k-j-e)
			}
		}
	}
	return won
}

// drawKind draws at least one candidate of the kind that wins, and weighs by the share of the drawn ones that solved
// the task.
func (t table) drawKind(kind []pool) table {
	hits, drawn := t.like(), t.like().empty()
	for _, p := range kind {
		hits.draw(p)
		drawn.each(func(patches, candidates int, w float64) {
			for n := 1; n <= p.size(); n++ {
				hits.add(patches+1, candidates+n, w*p.drawn[n]*float64(n)*p.share)
			}
		})
		drawn.draw(p)
	}
	next := t.like()
	hits.each(func(patches, candidates int, hit float64) {
		t.each(func(p, c int, w float64) {
			next.add(p+patches, c+candidates, w*hit/float64(candidates))
		})
	})
	return next
}

func (t table) each(do func(patches, candidates int, w float64)) {
	for j, row := range t.rows {
		for e, w := range row {
			if w != 0 {
				do(j, j+e, w)
			}
		}
	}
}
