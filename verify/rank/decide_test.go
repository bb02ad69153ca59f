package rank

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// A decision is never wrong: whatever the unknown parts come to, the full rule chooses the same patch.
func TestDecidedNeverChangesTheChoice(t *testing.T) {
	t.Parallel()
	full := Tests{Regression: 2, Reproduction: 2}
	decided := 0
	rapid.Check(t, func(t *rapid.T) {
		r := drawRule(t)
		truth := drawCandidates(t, "truth", 7)
		other := drawCandidates(t, "other", 7)
		now := make([]Contender, len(truth))
		for i := range truth {
			truth[i].ID = i
			now[i] = Contender{Candidate: truth[i]}
			switch rapid.IntRange(0, 5).Draw(t, fmt.Sprint("state ", i)) {
			case 0:
				now[i] = Contender{Candidate: Candidate{ID: i}, Running: true}
			case 1:
				now[i].Unscored, now[i].Score = true, nil
			case 2, 3:
				now[i].Untested, now[i].Tests = true, nil
			}
		}
		w, ok := r.Decided(now, full)
		if !ok {
			return
		}
		decided++
		if now[w].Running {
			t.Fatal("chose an attempt that is under way")
		}
		for _, future := range [][]Candidate{truth, other} {
			end := make([]Candidate, len(truth))
			for i := range truth {
				end[i] = truth[i]
				if i >= len(future) {
					continue
				}
				if now[i].Running {
					end[i] = future[i]
					end[i].ID = i
				}
				if now[i].Unscored {
					end[i].Score = future[i].Score
				}
				if now[i].Untested {
					end[i].Tests = future[i].Tests
				}
			}
			for i := range end { // the same patch has the same results
				for j := range i {
					if end[i].Patch == end[j].Patch && !now[i].Untested && !now[j].Untested && !now[i].Running && !now[j].Running {
						continue
					}
					if end[i].Patch == end[j].Patch && (now[j].Running || now[j].Untested) {
						end[j].Tests = end[i].Tests
					} else if end[i].Patch == end[j].Patch {
						end[i].Tests = end[j].Tests
					}
				}
			}
			if got := end[r.Choose(end).Winner].Patch; got != now[w].Patch {
				t.Fatalf("%+v decided for #%d (%s) in %+v, and the full run chooses %s in %+v", r, w, now[w].Patch, now, got, end)
			}
		}
	})
	if decided == 0 {
		t.Error("nothing was ever decided")
	}
}

// The cases in which a race ends early.
func TestDecided(t *testing.T) {
	t.Parallel()
	full := Tests{Regression: 3, Reproduction: 1}
	running := Contender{Running: true}
	known := func(id int, patch string, score float64, tests ...int) Contender {
		return Contender{Candidate: candidate(id, patch, score, tests...), Untested: len(tests) == 0}
	}
	for name, tc := range map[string]struct {
		rule Rule
		cs   []Contender
		want int // -1: open
	}{
		"a majority that cannot be caught": {Rule{Verifier: None},
			[]Contender{known(0, "a", -1, 0, 0), known(1, "a", -1, 0, 0), known(2, "a", -1, 0, 0), running, running}, 0},
		"a majority that can be caught": {Rule{Verifier: None},
			[]Contender{known(0, "a", -1, 0, 0), known(1, "a", -1, 0, 0), running, running}, -1},
		"all tests pass, and most agree": {Rule{Verifier: Exec},
			[]Contender{known(0, "a", -1, 3, 1), known(1, "a", -1, 3, 1), known(2, "b", -1, 2, 1), running}, 0},
		"an attempt may still join others, whose scores are lower": {Rule{Verifier: Free},
			[]Contender{known(0, "b", .5, 0, 0), known(1, "c", 1, 0, 0), known(2, "c", .5, 0, 0), running}, -1},
		"some have a score": {Rule{Verifier: Exec},
			[]Contender{known(0, "a", -1, 3, 1), known(1, "a", -1, 3, 1), known(2, "b", .5, 2, 1), running}, -1},
		"all tests pass": {Rule{Verifier: Exec}, []Contender{known(0, "a", -1, 3, 1), running}, -1},
		"a score can be beaten": {Rule{Verifier: Hybrid},
			[]Contender{known(0, "a", .9, 3, 1), known(1, "b", .5, 3, 1), running}, -1},
		"the best score passes everything": {Rule{Verifier: Hybrid, Top: 3},
			[]Contender{known(0, "a", .9, 3, 1), known(1, "b", .5), known(2, "c", .4)}, 0},
		"a better score is still untested": {Rule{Verifier: Hybrid, Top: 3},
			[]Contender{known(0, "a", .9), known(1, "b", .5, 3, 1), known(2, "c", .4)}, -1},
		"the tests that count depend on those outside the cut": {Rule{Verifier: Hybrid, Top: 2},
			[]Contender{known(0, "a", .9, 1, 0), known(1, "b", .5, 2, 0), known(2, "c", .4)}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			if w, ok := tc.rule.Decided(tc.cs, full); ok != (tc.want >= 0) || ok && w != tc.want {
				t.Errorf("decided %v for %d, want %d", ok, w, tc.want)
			}
		})
	}
}
