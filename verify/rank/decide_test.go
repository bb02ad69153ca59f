package rank

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestToTest(t *testing.T) {
	t.Parallel()
	full := Tests{Regression: 8, Reproduction: 2}
	regression := func(Candidate) Tests { return full }
	reproduction := func(c Candidate) Tests {
		if c.Tests == nil {
			return full
		}
		best := *c.Tests
		best.Reproduction = full.Reproduction
		return best
	}
	for name, tc := range map[string]struct {
		rule   Rule
		cs     []Candidate
		tested []string // patches
		best   func(Candidate) Tests
		all    *Tests // set if no other tests are to come
		want   []int  // IDs
	}{
		"the best by score, once for each patch": {Rule{Verifier: Hybrid},
			[]Candidate{candidate(0, "a", .1), candidate(1, "b", .9), candidate(2, "b", .8), candidate(3, "c", .5), candidate(4, "d", .3)},
			nil, regression, nil, []int{1, 3, 4}},
		"all without a cut": {Rule{Verifier: Exec},
			[]Candidate{candidate(0, "a", .1), candidate(1, "b", .9), candidate(2, "", .8)},
			nil, regression, nil, []int{1, 0}},
		"one that breaks a test makes room": {Rule{Verifier: Hybrid},
			[]Candidate{breaking(candidate(0, "a", .9, 7, 0)), candidate(1, "b", .8), candidate(2, "c", .7), candidate(3, "d", .6), candidate(4, "e", .5)},
			[]string{"a"}, regression, nil, []int{1, 2, 3}},
		"nothing once one passes all": {Rule{Verifier: Hybrid},
			[]Candidate{candidate(0, "a", .9, 8, 2), candidate(1, "b", .8, 8, 0), candidate(2, "c", .7, 8, 0)},
			[]string{"a"}, reproduction, &full, nil},
		"a better score may still pass all, too": {Rule{Verifier: Hybrid},
			[]Candidate{candidate(0, "a", .9, 8, 0), candidate(1, "b", .8, 8, 2), candidate(2, "c", .7, 8, 0)},
			[]string{"b"}, reproduction, &full, []int{0, 2}},
		"one that passes all may be overtaken by tests to come": {Rule{Verifier: Hybrid},
			[]Candidate{candidate(0, "a", .9, 8, 0), candidate(1, "b", .8), candidate(2, "c", .7)},
			[]string{"a"}, regression, nil, []int{1, 2}},
		"after one was caught in a reproduction script, the next": {Rule{Verifier: Hybrid},
			[]Candidate{candidate(0, "a", .9, -1, 0), candidate(1, "b", .8, 8, 0), candidate(2, "c", .7, 8, 0), candidate(3, "d", .6)},
			[]string{"a"}, reproduction, &full, []int{1, 2, 3}},
		"only what is left after regression tests": {Rule{Verifier: Hybrid},
			[]Candidate{breaking(candidate(0, "a", .9, 7, 0)), candidate(1, "b", .8, 8, 0), breaking(candidate(2, "c", .7, 7, 0))},
			nil, reproduction, &full, []int{1}},
		"no change": {Rule{Verifier: Exec}, []Candidate{candidate(0, "", .1), candidate(1, "", .1)}, nil, regression, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			untested := func(patch string) bool { return !slices.Contains(tc.tested, patch) }
			var got []int
			for _, i := range tc.rule.ToTest(tc.cs, untested, tc.best, tc.all) {
				got = append(got, tc.cs[i].ID)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("to be tested: #%v, want #%v", got, tc.want)
			}
		})
	}
}

// outcome is what a patch gives when it is tested.
type outcome struct {
	tests Tests
	// forged says in which scripts it is caught forging results: "none", "all", or only those of "reproduction".
	forged string
}

// early runs tests of one kind after the other for as long as they can change the choice, and returns the candidates
// with the results so far.
func early(r Rule, cs []Candidate, hidden map[string]outcome, full Tests) []Candidate {
	cs = slices.Clone(cs)
	ran := map[string]bool{} // patches that were also tested for reproduction
	test := func(patch string, all bool) {
		o := hidden[patch]
		t := Tests{Regression: o.tests.Regression, Broken: o.tests.Broken, Rejected: o.forged == "all"}
		if all {
			t.Reproduction, t.Rejected = o.tests.Reproduction, o.forged != "none"
		}
		for i := range cs {
			if cs[i].Patch == patch {
				cs[i].Tests = &t
			}
		}
	}
	seen := map[string]bool{}
	untested := func(patch string) bool { return !seen[patch] }
	best := func(Candidate) Tests { return full }
	for next := r.ToTest(cs, untested, best, nil); len(next) > 0; next = r.ToTest(cs, untested, best, nil) {
		seen[cs[next[0]].Patch] = true
		test(cs[next[0]].Patch, false)
	}
	left := map[string]bool{}
	for _, i := range r.Left(cs) {
		left[cs[i].Patch] = true
	}
	if len(left) < 2 {
		return cs
	}
	untested = func(patch string) bool { return !ran[patch] }
	best = func(c Candidate) Tests {
		if c.Tests == nil {
			return full
		}
		t := *c.Tests
		t.Reproduction = full.Reproduction
		return t
	}
	for next := r.ToTest(cs, untested, best, &full); len(next) > 0; next = r.ToTest(cs, untested, best, &full) {
		ran[cs[next[0]].Patch] = true
		test(cs[next[0]].Patch, true)
	}
	return cs
}

// Testing only what can change the choice does not change it, unless a patch would have been caught in a reproduction
// script that was not run.
func TestToTestKeepsTheChoice(t *testing.T) {
	t.Parallel()
	full := Tests{Regression: 2, Reproduction: 2}
	saved := 0
	rapid.Check(t, func(t *rapid.T) {
		r := Rule{
			Verifier: rapid.SampledFrom([]Verifier{Exec, Hybrid}).Draw(t, "verifier"),
			Top:      rapid.IntRange(0, 3).Draw(t, "top"),
		}
		cs := drawCandidates(t, "candidates", 8)
		hidden, all := map[string]outcome{}, slices.Clone(cs)
		for i := range cs {
			patch := cs[i].Patch
			o, known := hidden[patch]
			if !known {
				o.tests.Regression = rapid.IntRange(0, 2).Draw(t, fmt.Sprint(patch, " regression"))
				o.tests.Broken = full.Regression - o.tests.Regression
				o.tests.Reproduction = rapid.IntRange(0, 2).Draw(t, fmt.Sprint(patch, " reproduction"))
				o.forged = rapid.SampledFrom([]string{"none", "none", "none", "all", "reproduction"}).Draw(t, patch+" forged")
				o.tests.Rejected = o.forged != "none"
				hidden[patch] = o
			}
			cs[i].ID, cs[i].Tests, all[i].ID, all[i].Tests = i, nil, i, nil
			if patch != "" {
				all[i].Tests = &o.tests
			}
		}
		known := early(r, cs, hidden, full)
		got, want := cs[r.Choose(known).Winner].Patch, cs[r.Choose(all).Winner].Patch
		missed := false // a forger that was not caught
		for _, c := range known {
			missed = missed || hidden[c.Patch].forged == "reproduction" && !c.rejected()
			if c.Patch != "" && c.Tests == nil {
				saved++
			}
		}
		if got != want && !missed {
			t.Fatalf("%+v chose %q, and %q once all is tested; known were %+v", r, got, want, known)
		}
	})
	if saved == 0 && !testing.Short() {
		t.Error("nothing was ever left untested")
	}
}
