package rank

import (
	"cmp"
	"slices"
)

// Contender is a candidate that may be incomplete.
type Contender struct {
	Candidate
	// Running is set for an attempt under way, whose patch is unknown.
	Running bool
	// Unscored is set if the score is not known yet, Untested if the test results are not.
	Unscored bool
	Untested bool
}

// Decided returns the candidate that wins whatever the unknown parts turn out to be; ok is false if there is none yet.
// full is the number of all tests, which results must count as well. The winner is a patch: a running attempt may still
// produce the same one.
//
// The reasoning is conservative. If anything that matters is unknown, the winner must pass every test, so that no
// filter over the tests, which depends on all results, can make it worse. For every other candidate, the best case is
// assumed.
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
	if !open {
		return winner, true
	}
	// The unbeatable candidate need not be the current winner, because others may be complete already.
	for i, c := range cs {
		if !c.Running && !c.empty() && r.unbeatable(cs, i, running, full) {
			return i, true
		}
	}
	return winner, false
}

// unbeatable reports whether candidate w wins in every case.
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
	rivals := 0 // candidates that may equal the winner in everything but agreement
	if running > 0 {
		most := running + r.joined(cs, own, agree)
		if r.Verifier != None && !r.beats(cs, own, Contender{Running: true}, full, &rivals, most) {
			return false
		}
		rivals = max(rivals, running)
	}
	for _, c := range cs {
		if c.Running || c.empty() || c.Patch == own.Patch {
			continue
		}
		if !r.beats(cs, own, c, full, &rivals, agree[c.Patch]+running) {
			return false
		}
	}
	return rivals == 0 || agree[own.Patch] > rivals
}

// joined returns how many candidates there are of the most frequent patch that a running attempt may produce as well,
// and be as good as own with it. A patch that is known to do worse in the tests always does.
func (r Rule) joined(cs []Contender, own Contender, agree map[string]int) (most int) {
	for _, c := range cs {
		worse := r.Verifier.Tests() && !c.Untested && c.Tests != nil &&
			(c.Tests.Rejected || compareTests(own.Tests, c.Tests) > 0)
		if !c.Running && c.Patch != own.Patch && !worse {
			most = max(most, agree[c.Patch])
		}
	}
	return most
}

// beats reports whether own is at least as good as c can become. If they may be equal, rivals is raised to agree, the
// number of candidates that may have c's patch.
func (r Rule) beats(cs []Contender, own, c Contender, full Tests, rivals *int, agree int) bool {
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
			score = r.bestScore(cs)
		}
		order = compareScores(own.Score, score)
	}
	if order == 0 {
		*rivals = max(*rivals, agree)
	}
	return order >= 0
}

// bestScore returns the best score that an incomplete candidate may get: none where scores are not asked for, and no
// candidate has one.
func (r Rule) bestScore(cs []Contender) *float64 {
	if r.Verifier == Exec && !slices.ContainsFunc(cs, func(c Contender) bool { return c.Score != nil || c.Unscored }) {
		return nil
	}
	one := 1.0
	return &one
}

// surelyIn reports whether the cut by score keeps the candidate in every case.
func (r Rule) surelyIn(cs []Contender, w int) bool {
	better, ended, scores := 0, 0, false
	for i, c := range cs {
		if !c.Running {
			ended++ // a running attempt may still fail, and is then no candidate
		}
		if !c.Running && c.empty() {
			continue
		}
		scores = scores || c.Running || c.Unscored || c.Score != nil
		if i != w && (c.Running || c.Unscored || compareScores(c.Score, cs[w].Score) > 0) {
			better++
		}
	}
	if !scores {
		return true
	}
	return better < r.top(ended)
}

// ToTest returns the untested candidates, one for each patch, best scores first. It includes those outside the cut by
// score of [Hybrid]: which tests count depends on their results, too.
func ToTest(cs []Contender) []int {
	order := make([]int, 0, len(cs))
	for i, c := range cs {
		if c.Untested && !c.Running && !c.empty() {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Or(compareScores(cs[j].Score, cs[i].Score), cmp.Compare(cs[i].ID, cs[j].ID))
	})
	var next []int
	seen := map[string]bool{}
	for _, i := range order {
		if !seen[cs[i].Patch] {
			seen[cs[i].Patch] = true
			next = append(next, i)
		}
	}
	return next
}
