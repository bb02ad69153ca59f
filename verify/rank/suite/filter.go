package suite

import (
	"cmp"
	"slices"
)

// TestID names a test of a task: the script's name and the test's own.
func TestID(script, test string) string { return script + "::" + test }

// Alike is how the reason begins why a test does not count that all candidates pass, or none.
const Alike = "tells no candidates apart"

// Column is what the tests say about one distinct patch.
type Column struct {
	// Passed are the ids of the tests that pass.
	Passed map[string]bool
	// Rejected patches are left out of the comparison.
	Rejected bool
}

// Verdict says whether a test counts. Reason is empty where it does.
type Verdict struct {
	ID     string `json:"id"`
	Kind   Kind   `json:"kind"`
	Reason string `json:"reason,omitempty"`
	// Passed is how many distinct patches pass it, of Tried.
	Passed int `json:"passed"`
	Tried  int `json:"tried"`
}

// Filter decides which tests count: those that tell candidates apart and are not toxic. The verdicts are in the order
// of ids, which are those of the tests kept on the base.
//
// A test is toxic where it rejects most candidates, and those that it accepts do worse by all the other tests than one
// that it rejects: the best candidates agree against it. A test that rejects most candidates and is not alone in that,
// because the candidates that it accepts are also the best by the others, may well be the one that tells a right patch
// from many wrong ones, and counts. The verdict on one test does not depend on the verdicts on others.
func Filter(kinds map[string]Kind, columns []Column) []Verdict {
	ids := make([]string, 0, len(kinds))
	for id := range kinds {
		ids = append(ids, id)
	}
	slices.Sort(ids)
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
		accepted, rejected := [2]int{-1, -1}, [2]int{-1, -1} // the best by the other tests
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

// place is where a kind is counted: reproduction first, because it is the one about the issue.
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
