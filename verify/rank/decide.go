package rank

import (
	"cmp"
	"slices"
)

// Left returns the indexes of the candidates that are left after the cut by score, which the steps that follow compare.
// They do not depend on which tests count.
func (r Rule) Left(cs []Candidate) []int { return r.Choose(cs).left() }

func (c Choice) left() (left []int) {
	gone := []Stage{StageEmpty, StageRejected, StageBroken, StageTop}
	for i, s := range c.Stages {
		if !slices.Contains(gone, s) {
			left = append(left, i)
		}
	}
	return left
}

// ToTest returns the candidates whose test results can still change the choice, one for each patch, best scores first;
// none if the choice is made. best says what an untested one can still reach; all is the result of a patch that passes
// every test, nil while more tests are to come.
//
// If a patch passes every test, no test that it passes is dropped because of others. So if it wins even when all
// untested patches are assumed to pass every test, it wins whatever their results are. Patches that are below the cut
// under that assumption stay below it: those above them have to be tested first.
func (r Rule) ToTest(cs []Candidate, untested func(patch string) bool, best func(Candidate) Tests, all *Tests) []int {
	cs = slices.Clone(cs)
	for i, c := range cs {
		if !c.empty() && untested(c.Patch) {
			cs[i].Tests = new(best(c))
		}
	}
	choice := r.Choose(cs)
	if w := choice.Winner; all != nil && w >= 0 && !untested(cs[w].Patch) && cs[w].Tests != nil && *cs[w].Tests == *all {
		return nil
	}
	var next []int
	seen := map[string]bool{}
	for _, i := range choice.left() {
		if p := cs[i].Patch; p != "" && !seen[p] && untested(p) {
			next, seen[p] = append(next, i), true
		}
	}
	cs = bestScores(cs)
	slices.SortStableFunc(next, func(i, j int) int {
		return cmp.Or(compareScores(cs[j].Score, cs[i].Score), cmp.Compare(cs[i].ID, cs[j].ID))
	})
	return next
}
