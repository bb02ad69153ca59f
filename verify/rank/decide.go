package rank

import "slices"

// Contender is a candidate of a race that is under way: parts of it may still be unknown.
type Contender struct {
	Candidate
	// Running attempts have no patch yet, and may come to any.
	Running bool
	// Unscored candidates wait for their score, Untested ones for the results of their tests.
	Unscored bool
	Untested bool
}

// Decided returns the candidate that wins whatever the unknown parts come to, or false where that is open. full is the
// most that tests can give. A win is that of a patch: an attempt under way that comes to the same patch wins with it.
//
// The reasoning is conservative. Where anything that matters is unknown, a winner must pass every test: then no filter
// over the tests, which depends on all results, can lower it. Every other candidate is taken at its best.
func (r Rule) Decided(cs []Contender, full Tests) (winner int, ok bool) {
	var known []Candidate
	var place []int
	running, open := 0, false
	for i, c := range cs {
		if c.Running {
			running++
			open = true
			continue
		}
		if c.empty() {
			c.Unscored, c.Untested = false, false
		}
		open = open || r.Verifier != None && c.Unscored || r.Verifier.Tests() && c.Untested
		if c.Untested {
			c.Tests = nil
		}
		known = append(known, c.Candidate)
		place = append(place, i)
	}
	choice := r.Choose(known)
	if choice.Winner < 0 {
		return -1, false
	}
	winner = place[choice.Winner]
	if !open || running == 0 && !slices.ContainsFunc(cs, waitsForScore) && len(r.ToTest(cs)) == 0 {
		return winner, true // what is still untested is outside the cut
	}
	// The candidate that cannot be beaten need not be today's first: another may wait for nothing.
	for i, c := range cs {
		if !c.Running && !c.empty() && r.unbeatable(cs, i, running, full) {
			return i, true
		}
	}
	return winner, false
}

func waitsForScore(c Contender) bool { return c.Unscored && !c.empty() }

// unbeatable reports whether the candidate at place w wins in every case.
func (r Rule) unbeatable(cs []Contender, w, running int, full Tests) bool {
	own := cs[w]
	if r.Verifier.Tests() && (own.Untested || own.Tests == nil || own.Tests.Rejected ||
		own.Tests.Regression < full.Regression || own.Tests.Reproduction < full.Reproduction) {
		return false
	}
	if r.Verifier != None && own.Unscored {
		return false
	}
	if r.Verifier == Hybrid && !r.surelyIn(cs, w) {
		return false
	}
	agree := map[string]int{}
	for _, c := range cs {
		if !c.Running && !c.empty() {
			agree[c.Patch]++
		}
	}
	rivals := 0 // candidates that may be level with the winner but for agreement
	if running > 0 {
		if r.Verifier != None && !r.beats(own, Contender{Running: true}, full, &rivals, running) {
			return false
		}
		rivals = max(rivals, running)
	}
	for _, c := range cs {
		if c.Running || c.empty() || c.Patch == own.Patch {
			continue
		}
		if !r.beats(own, c, full, &rivals, agree[c.Patch]+running) {
			return false
		}
	}
	return rivals == 0 || agree[own.Patch] > rivals
}

// beats reports whether own is at least level with the best that c can come to; where level, c's patch may have agree
// candidates, which is noted in rivals.
func (r Rule) beats(own, c Contender, full Tests, rivals *int, agree int) bool {
	order := 0
	if r.Verifier.Tests() {
		best := c.Tests
		if c.Running || c.Untested {
			best = &full
		}
		if best != nil && best.Rejected {
			return true
		}
		order = compareTests(own.Tests, best)
	}
	if order == 0 && r.Verifier != None {
		score := c.Score
		if c.Running || c.Unscored {
			one := 1.0
			if score = &one; r.Verifier == Exec && own.Score == nil {
				score = nil // nobody is judged
			}
		}
		order = compareScores(own.Score, score)
	}
	if order == 0 {
		*rivals = max(*rivals, agree)
	}
	return order >= 0
}

// surelyIn reports whether the cut by score keeps the candidate in every case.
func (r Rule) surelyIn(cs []Contender, w int) bool {
	better, patched, scores := 0, 0, false
	for i, c := range cs {
		if !c.Running && c.empty() {
			continue
		}
		if !c.Running && !c.rejected() {
			patched++ // a rejection that is still to come only helps, but makes the cut smaller
		}
		scores = scores || c.Running || c.Unscored || c.Score != nil
		if i != w && (c.Running || c.Unscored || compareScores(c.Score, cs[w].Score) > 0) {
			better++
		}
	}
	if !scores {
		return true
	}
	sure := 0 // candidates that count for the size of the cut whatever happens
	for _, c := range cs {
		if !c.Running && !c.empty() && !c.Untested && !c.rejected() {
			sure++
		}
	}
	return better < r.top(min(sure, patched))
}

// ToTest returns the untested candidates whose results the rule can still look at, one for each patch, best scores
// first. It assumes that every score is known; candidates outside the cut are not looked at.
func (r Rule) ToTest(cs []Contender) []int {
	var alive []Candidate
	var place []int
	for i, c := range cs {
		if c.Running || c.empty() || c.rejected() {
			continue
		}
		alive, place = append(alive, c.Candidate), append(place, i)
	}
	all := make([]int, len(alive))
	for i := range alive {
		all[i] = i
	}
	last, cut := r.cut(alive, all)
	var next []int
	seen := map[string]bool{}
	for _, i := range byScore(alive) {
		c := cs[place[i]]
		if r.Verifier == Hybrid && cut && compareScores(c.Score, last) < 0 || !c.Untested || seen[c.Patch] {
			continue
		}
		seen[c.Patch] = true
		next = append(next, place[i])
	}
	return next
}
