package mine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// If a commit adds only to test data, the tests that may read the data run.
func TestReaders(t *testing.T) {
	t.Parallel()
	const tree = `change a.py x; change tests/test_a.py x; change tests/cases/test_b.py x; change tests/util.js x
change src/lib.rs x; change tests/a.rs x; change other/test_c.py x; change tests/conftest.py x
change a.ts x; change src/a.test.ts x; change src/b.test.js x; change spec/run-tests.js x; change spec/bench.js x
change spec/cases/a.md x; change spec/cases/a.html x; change spec/cases/b.cjs x
commit root; `
	for change, want := range map[string][]string{
		"change a.py y; change tests/data/a.json '{}'":                       {"tests/cases/test_b.py", "tests/test_a.py"},
		"change a.py y; change tests/cases/in/a.txt y":                       {"tests/cases/test_b.py"},
		"change a.py y; change testdata/a.golden y":                          {"other/test_c.py", "tests/cases/test_b.py", "tests/test_a.py"},
		"change a.ts y; change src/__snapshots__/a.test.ts.snap y":           {"src/a.test.ts"},
		"change a.ts y; change src/__snapshots__/pages.snap y":               {"src/a.test.ts", "src/b.test.js"},
		"change a.py y; change tests/data/a.json; change tests/test_a.py":    {"tests/test_a.py"},
		": >tests/test_a.py; change a.py y; change tests/data/a.json '{}'":   {"tests/cases/test_b.py", "tests/test_a.py"},
		": >tests/a.rs; change src/lib.rs y":                                 nil,
		"change a.ts y; change spec/cases/c.md y; change spec/cases/b.cjs y": {"spec/run-tests.js"},
		"change a.ts y; change spec/cases/c.md y; change spec/bench.js y":    {"spec/bench.js"},
		"change a.py y; change tests/README.md y":                            nil,
		"change a.py y; change tests/conftest.py y":                          nil,
		"change a.rb y; change tests/data/a.json y":                          nil,
	} {
		dir := history(t, tree+change+"; commit 'y is missing'")
		candidates, unfit := candidatesOf(t, dir, 1)
		var got []string
		for _, c := range candidates {
			got = c.TestFiles()
		}
		if diff := cmp.Diff(want, got); diff != "" || want == nil && unfit[NoTests]+unfit[OnlyRemoved] != 1 {
			t.Errorf("%s: %s %v", change, diff, unfit)
		}
	}
}
