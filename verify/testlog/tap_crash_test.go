package testlog

import "testing"

// Tape's output ends where an exception is not caught, also in a test that has made no assertion yet.
func TestTapeCrashes(t *testing.T) {
	t.Parallel()
	const begun = "TAP version 13\n# parse()\nok 1 parses\n# merge()\n"
	for name, c := range map[string]struct {
		log  string
		want Status
	}{
		"before an assertion": {begun + "/testbed/lib/utils.js:54\n\nTypeError: Cannot set properties of null\n", Failed},
		"after one":           {begun + "ok 2 merges\n/testbed/lib/utils.js:54\n\nTypeError: no\n", Failed},
		"not at all":          {begun + "ok 2 merges\n\n1..2\n# tests 2\n# pass  2\n\n# ok\n", Passed},
	} {
		r, err := tapGroups(c.log, Task{})
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := r.Status("merge()"); got != c.want || r.Len() != 2 {
			t.Errorf("%s: %v, %d tests, want %v", name, got, r.Len(), c.want)
		}
	}
}
