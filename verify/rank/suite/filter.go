package suite

import (
	"cmp"
	"maps"
	"slices"
)

// TestID names a test of a task: the script's name and the test's own.
func TestID(script, test string) string { return script + "::" + test }

// Alike is the prefix of the reason for dropping a test that all candidates pass, or none.
const Alike = "tells no candidates apart"

// Column holds the test results of one distinct patch.
type Column struct {
	// Passed holds the ids of the tests that pass.
	Passed map[string]bool
	// Rejected patches are left out of the comparison.
	Rejected bool
}

// Verdict says whether a test counts. If not, Reason says why.
type Verdict struct {
	ID     string `json:"id"`
	Kind   Kind   `json:"kind"`
	Reason string `json:"reason,omitempty"`
	// Passed is how many of Tried distinct patches pass it.
	Passed int `json:"passed"`
	Tried  int `json:"tried"`
}

// Filter decides which tests count: those that distinguish candidates and are not toxic. The verdicts are sorted by id.
// kinds has the tests kept on the base.
//
// A test is toxic if it rejects most candidates, and at least one of these does better in all other tests than every
// candidate that it accepts: then the best candidates agree against it. A test that rejects most candidates counts if
// those that it accepts are also the best in the other tests, because it may be the one that distinguishes a right
// patch from many wrong ones. The verdict on one test does not depend on the verdicts on others.
func Filter(kinds map[string]Kind, columns []Column) []Verdict {
	ids := slices.Sorted(maps.Keys(kinds))
	columns = slices.DeleteFunc(slices.Clone(columns), func(c Column) bool { return c.Rejected })
	totals := make([][2]int, len(columns))
	for i, c := range columns {
		for id := range c.Passed {
			totals[i][place(kinds[id])]++
		}
	}
	verdicts := make([]Verdict, 0, len(ids))
	for _, id := range ids {
		v := Verdict{ID: id, Kind: kinds[id], Tried: len(columns)}
		accepted, rejected := [2]int{-1, -1}, [2]int{-1, -1} // the best results in the other tests
		for i, c := range columns {
			others := totals[i]
			if c.Passed[id] {
				v.Passed++
				others[place(v.Kind)]--
				accepted = better(accepted, others)
			} else {
				rejected = better(rejected, others)
			}
		}
		switch {
		case v.Tried > 1 && v.Passed == v.Tried:
			v.Reason = Alike + ": all pass"
		case v.Tried > 1 && v.Passed == 0:
			v.Reason = Alike + ": all fail"
		case v.Tried > 1 && 2*v.Passed < v.Tried && compare(accepted, rejected) < 0:
			v.Reason = "toxic: most candidates fail, and one of them passes more of the other tests than any that passes"
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// place returns the index of a kind's count: reproduction tests first, because they are about the issue.
func place(k Kind) int {
	if k == Reproduction {
		return 0
	}
	return 1
}

func better(a, b [2]int) [2]int {
	if compare(a, b) < 0 {
		return b
	}
	return a
}

func compare(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }
