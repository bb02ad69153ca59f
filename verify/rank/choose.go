package rank

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Rule says how to choose.
type Rule struct {
	Verifier Verifier
	// Top is how many distinct patches [Hybrid] keeps by score; 0 means half as many as there are candidates, at least
	// three.
	Top int
}

// Stage is the step of the rule that dropped or chose a candidate.
type Stage string

// The stages, in the order in which the rule applies them.
const (
	StageEmpty        Stage = "empty"        // the patch is empty, and another one is not
	StageRejected     Stage = "rejected"     // it does not apply, or was caught forging results
	StageBroken       Stage = "broken"       // it breaks a test that passed before, and another one breaks none
	StageTop          Stage = "top"          // not among the best by score
	StageRegression   Stage = "regression"   // fewer regression tests pass than with another
	StageReproduction Stage = "reproduction" // fewer reproduction tests pass
	StageScore        Stage = "score"        // a lower score
	StageAgreement    Stage = "agreement"    // fewer candidates propose the same patch
	StageFirst        Stage = "first"        // equal in all of these, and a later attempt
	StageChosen       Stage = "chosen"
)

// Choice is the outcome of a rule.
type Choice struct {
	// Winner is the index of the chosen candidate, -1 if there is none.
	Winner int
	// Stages holds the step that dropped each candidate; StageChosen for the winner.
	Stages []Stage
	// Decisive is the last stage that dropped a candidate with another patch, or any candidate if all patches are the
	// same; StageChosen if there was only one candidate.
	Decisive Stage
	// Agree is how many candidates have the winner's patch, including the winner.
	Agree int
	// Top is how many distinct patches the cut by score had to keep, 0 if there was no cut.
	Top int
}

// Choose applies the rule: of the candidates with a patch that was not rejected, those that break no test that passed
// before, then the Top patches with the best scores (Hybrid only; equal patches count once, with the best of their
// scores, and those level with the last stay), then those with the most regression tests, then those with the most
// reproduction tests, then those with the best score (Free and Hybrid), then those whose patch most candidates propose,
// then the one with the lowest ID.
//
// A step that has nothing to compare drops no candidate: the score where none has one, tests where none was tested.
// Otherwise a missing score is below every score, and missing results are below all results. An empty patch wins only
// where all are empty, a rejected one only where none is left. The outcome does not depend on the order of the
// candidates.
func (r Rule) Choose(cs []Candidate) Choice {
	if r.Verifier == Hybrid {
		cs = bestScores(cs)
	}
	c := Choice{Winner: -1, Stages: make([]Stage, len(cs)), Decisive: StageChosen}
	alive := make([]int, len(cs))
	for i := range cs {
		alive[i] = i
	}
	drop := func(s Stage, keep func(i int) bool) {
		kept := slices.DeleteFunc(slices.Clone(alive), func(i int) bool { return !keep(i) })
		if len(kept) == 0 || len(kept) == len(alive) {
			return
		}
		for _, i := range alive {
			if !slices.Contains(kept, i) {
				c.Stages[i] = s
			}
		}
		alive, c.Decisive = kept, s
	}
	best := func(s Stage, compare func(a, b Candidate) int) {
		if len(alive) < 2 {
			return
		}
		top := slices.MaxFunc(alive, func(i, j int) int { return compare(cs[i], cs[j]) })
		drop(s, func(i int) bool { return compare(cs[i], cs[top]) == 0 })
	}
	drop(StageEmpty, func(i int) bool { return !cs[i].empty() })
	if r.Verifier.Tests() {
		drop(StageRejected, func(i int) bool { return !cs[i].rejected() })
		drop(StageBroken, func(i int) bool { return cs[i].sound() })
	}
	if r.Verifier == Hybrid {
		c.Top = r.top(len(cs))
		if last, cut := r.cut(cs, alive); cut {
			drop(StageTop, func(i int) bool { return compareScores(cs[i].Score, last) >= 0 })
		}
	}
	if r.Verifier.Tests() {
		best(StageRegression, func(a, b Candidate) int {
			return compareTests(a.regressionOnly(), b.regressionOnly())
		})
		best(StageReproduction, func(a, b Candidate) int { return compareTests(a.Tests, b.Tests) })
	}
	if r.Verifier.Judges() {
		best(StageScore, func(a, b Candidate) int { return compareScores(a.Score, b.Score) })
	}
	agree := agreement(cs)
	best(StageAgreement, func(a, b Candidate) int { return cmp.Compare(agree[a.Patch], agree[b.Patch]) })
	best(StageFirst, func(a, b Candidate) int { return cmp.Compare(b.ID, a.ID) })
	if len(alive) > 0 {
		c.Winner = alive[0]
		c.Stages[c.Winner] = StageChosen
		c.Agree = agree[cs[c.Winner].Patch]
		if last := c.decisive(cs); last != "" {
			c.Decisive = last
		}
	}
	return c
}

// decisive returns the last stage that dropped a candidate with another patch than the winner's, "" if there is none.
func (c Choice) decisive(cs []Candidate) (last Stage) {
	order := []Stage{
		"", StageEmpty, StageRejected, StageBroken, StageTop, StageRegression, StageReproduction, StageScore,
		StageAgreement, StageFirst,
	}
	for i, s := range c.Stages {
		if cs[i].Patch != cs[c.Winner].Patch && slices.Index(order, s) > slices.Index(order, last) {
			last = s
		}
	}
	return last
}

// leastTop is how many patches the cut by score keeps at least: with fewer, tests would decide nothing.
const leastTop = 3

// top returns how many distinct patches of n candidates the cut by score keeps.
func (r Rule) top(n int) int {
	if r.Top > 0 {
		return r.Top
	}
	return max(leastTop, n/2)
}

// cut returns the score of the last patch that the cut keeps. cut is false if it drops none.
func (r Rule) cut(cs []Candidate, alive []int) (last *float64, cut bool) {
	scores := map[string]*float64{}
	for _, i := range alive {
		scores[cs[i].Patch] = cs[i].Score
	}
	n := r.top(len(cs))
	if n >= len(scores) {
		return nil, false
	}
	order := slices.SortedFunc(maps.Values(scores), func(a, b *float64) int { return compareScores(b, a) })
	return order[n-1], true
}

// bestScores returns the candidates, each with the best score of those with its patch.
func bestScores(cs []Candidate) []Candidate {
	best := map[string]*float64{}
	for _, c := range cs {
		if compareScores(c.Score, best[c.Patch]) > 0 {
			best[c.Patch] = c.Score
		}
	}
	cs = slices.Clone(cs)
	for i := range cs {
		cs[i].Score = best[cs[i].Patch]
	}
	return cs
}

func (c Candidate) regressionOnly() *Tests {
	if c.Tests == nil {
		return nil
	}
	return &Tests{Regression: c.Tests.Regression}
}

// agreement counts the candidates by patch, without empty patches.
func agreement(cs []Candidate) map[string]int {
	n := map[string]int{}
	for _, c := range cs {
		if !c.empty() {
			n[c.Patch]++
		}
	}
	return n
}

// Groups returns the indexes of the candidates with the same patch, ordered by the lowest ID. Empty patches are in no
// group.
func Groups(cs []Candidate) [][]int {
	at := map[string]int{}
	var groups [][]int
	order := make([]int, len(cs))
	for i := range cs {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(cs[i].ID, cs[j].ID) })
	for _, i := range order {
		if cs[i].empty() {
			continue
		}
		g, ok := at[cs[i].Patch]
		if !ok {
			g = len(groups)
			at[cs[i].Patch] = g
			groups = append(groups, nil)
		}
		groups[g] = append(groups[g], i)
	}
	return groups
}

// Reason returns why candidate i was dropped or chosen, in words.
func (c Choice) Reason(cs []Candidate, i int) string {
	if i == c.Winner {
		return c.why(cs)
	}
	winner, own := cs[c.Winner], cs[i]
	switch c.Stages[i] {
	case StageEmpty:
		return "no change"
	case StageRejected:
		return "the patch does not apply, or forges results"
	case StageBroken:
		if own.Tests == nil {
			return "not tested"
		}
		return fmt.Sprintf("breaks %d tests that passed before", own.Tests.Broken)
	case StageTop:
		return fmt.Sprintf("%s, not among the best %d", scoreWords(own.Score), c.Top)
	case StageRegression:
		if own.Tests == nil {
			return "not tested"
		}
		return fmt.Sprintf("%d regression tests pass, and %d with the chosen one", own.Tests.Regression,
			winner.Tests.Regression)
	case StageReproduction:
		return fmt.Sprintf("%d reproduction tests pass, and %d with the chosen one", own.Tests.Reproduction,
			winner.Tests.Reproduction)
	case StageScore:
		return fmt.Sprintf("%s, and the chosen one %s", scoreWords(own.Score), scoreWords(winner.Score))
	case StageAgreement:
		return "fewer candidates propose this patch"
	case StageFirst, StageChosen:
	}
	if own.Patch == winner.Patch && !own.empty() {
		return fmt.Sprintf("the same patch as #%d", winner.ID)
	}
	return fmt.Sprintf("level with #%d, which came first", winner.ID)
}

// why returns why the winner was chosen, in words.
func (c Choice) why(cs []Candidate) string {
	w := cs[c.Winner]
	if w.empty() && len(cs) > 1 {
		return "no candidate has a change"
	}
	switch c.Decisive {
	case StageChosen:
		return "the only candidate"
	case StageEmpty:
		return "the only one with a change"
	case StageRejected:
		return "the only one that applies"
	case StageBroken:
		return "it breaks no test that passed before"
	case StageTop, StageScore:
		return "best by the judge, " + scoreWords(w.Score)
	case StageRegression:
		return "most regression tests pass"
	case StageReproduction:
		return "most reproduction tests pass"
	case StageAgreement:
		return fmt.Sprintf("%d candidates propose this patch", c.Agree)
	case StageFirst:
	}
	if c.Agree == len(cs) {
		return fmt.Sprintf("the first of %d, which all have this patch", c.Agree)
	}
	return "level with others, and the first"
}

func scoreWords(s *float64) string {
	if s == nil {
		return "no score"
	}
	return fmt.Sprintf("score %.3f", *s)
}
