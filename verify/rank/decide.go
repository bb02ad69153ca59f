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
	o := r.outlook(cs, full, running)
	for i, c := range cs {
		if !c.Running && !c.empty() && o.unbeatable(i) {
			return i, true
		}
	}
	return winner, false
}

// outlook is what incomplete candidates can still become.
type outlook struct {
	Rule
	cs   []Contender
	full Tests
	// running is how many attempts are under way, agree how many others have each patch.
	running int
	agree   map[string]int
	// score is the best score that an incomplete candidate can get: nil if no candidate is judged.
	score *float64
}

func (r Rule) outlook(cs []Contender, full Tests, running int) outlook {
	o := outlook{Rule: r, cs: cs, full: full, running: running, agree: map[string]int{}}
	judged := r.Verifier != Exec // where a score is only a bonus
	for _, c := range cs {
		judged = judged || c.Score != nil || c.Unscored
		if !c.Running && !c.empty() {
			o.agree[c.Patch]++
		}
	}
	if judged {
		one := 1.0
		o.score = &one
	}
	return o
}

// unbeatable reports whether candidate w wins in every case.
func (o outlook) unbeatable(w int) bool {
	own := o.cs[w]
	if o.Verifier.Tests() && (own.Untested || own.Tests == nil || own.Tests.Rejected ||
		own.Tests.Regression < o.full.Regression || own.Tests.Reproduction < o.full.Reproduction) {
		return false
	}
	if o.Verifier != None && own.Unscored {
		return false
	}
	if o.Verifier == Hybrid && !o.surelyIn(w) {
		return false
	}
	rivals := 0 // candidates that may equal the winner in everything but agreement
	for _, c := range o.cs {
		if !c.Running && (c.empty() || c.Patch == own.Patch) {
			continue
		}
		order, most := o.compare(own, c), o.running
		if c.Running {
			most += o.joined(own)
		} else {
			most += o.agree[c.Patch]
		}
		if order < 0 {
			return false
		}
		if order == 0 {
			rivals = max(rivals, most)
		}
	}
	return rivals == 0 || o.agree[own.Patch] > rivals
}

// joined returns how many candidates there are of the most frequent patch that a running attempt may produce as well,
// and be as good as own with it. A patch that is known to do worse in the tests always does.
func (o outlook) joined(own Contender) (most int) {
	for _, c := range o.cs {
		worse := o.Verifier.Tests() && !c.Untested && c.Tests != nil &&
			(c.Tests.Rejected || compareTests(own.Tests, c.Tests) > 0)
		if !c.Running && c.Patch != own.Patch && !worse {
			most = max(most, o.agree[c.Patch])
		}
	}
	return most
}

// compare compares own with the best that c can become, without regard to agreement.
func (o outlook) compare(own, c Contender) int {
	if o.Verifier.Tests() {
		best := c.Tests
		if c.Running || c.Untested {
			best = &o.full
		}
		if best != nil && best.Rejected {
			return 1
		}
		if order := compareTests(own.Tests, best); order != 0 {
			return order
		}
	}
	if o.Verifier == None {
		return 0
	}
	score := c.Score
	if c.Running || c.Unscored {
		score = o.score
	}
	return compareScores(own.Score, score)
}

// surelyIn reports whether the cut by score keeps the candidate in every case.
func (o outlook) surelyIn(w int) bool {
	better, ended, scores := 0, 0, false
	for i, c := range o.cs {
		if !c.Running {
			ended++ // a running attempt may still fail, and is then no candidate
		}
		if !c.Running && c.empty() {
			continue
		}
		scores = scores || c.Running || c.Unscored || c.Score != nil
		if i != w && (c.Running || c.Unscored || compareScores(c.Score, o.cs[w].Score) > 0) {
			better++
		}
	}
	if !scores {
		return true
	}
	return better < o.top(ended)
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
