package canary

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkShares measures, for each language, the share of tests that get each kind of canary (see Kind), or none.
// DEEPSWE_TEST_SOURCES names the directories of test suites, separated by colons; by default it is Go's standard
// library.
func BenchmarkShares(b *testing.B) {
	dirs := filepath.SplitList(os.Getenv("DEEPSWE_TEST_SOURCES"))
	if len(dirs) == 0 {
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			b.Fatal(err)
		}
		dirs = []string{filepath.Join(strings.TrimSpace(string(root)), "src")}
	}
	for language, w := range map[string]Writer{
		"Go": Golang{}, "Python": Python{}, "JavaScript": JavaScript{}, "Rust, Java and PHP": Braced{}, "Ruby": Ruby{},
	} {
		b.Run(language, func(b *testing.B) {
			counts, tests := map[string]float64{}, 0.0
			for b.Loop() {
				clear(counts)
				tests = 0
				for _, dir := range dirs {
					err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
						if err != nil || !d.Type().IsRegular() || !w.Holds(name) || !mayTest(name) {
							return err
						}
						data, err := os.ReadFile(name)
						count(w, Source{name, data}, counts, &tests)
						return err
					})
					if err != nil && !errors.Is(err, fs.ErrPermission) {
						b.Fatal(err)
					}
				}
			}
			if tests == 0 {
				b.Skip("there are no tests")
			}
			for _, kind := range []string{"withheld", "expectation", "telling", "outright", "none", "placed"} {
				b.ReportMetric(100*counts[kind]/tests, kind+"-%")
			}
			b.ReportMetric(tests, "tests")
		})
	}
}

// mayTest reports whether a file may have tests. In Rust, any file may.
func mayTest(name string) bool {
	return strings.Contains(strings.ToLower(name), "test") || strings.Contains(name, "spec") || strings.HasSuffix(name, ".rs")
}

// count adds up the canaries of a file's tests by kind. As "placed" it counts the tests for which it is certain without
// a run that a wrong expectation is where the fix is needed.
func count(w Writer, s Source, counts map[string]float64, tests *float64) {
	ids := List(w, s)
	set, err := New(w, Options{Tests: ids, Sources: []Source{s}, Record: "/tmp/record", Rand: random(1)})
	if err != nil && !errors.Is(err, ErrNone) {
		return
	}
	*tests += float64(len(ids))
	counts["none"] += float64(len(set.Skipped))
	for _, c := range set.Canaries {
		counts[string(c.Kind)] += float64(len(c.Tests))
	}
	set, _ = New(w, Options{Tests: ids, Fixes: -1, Sources: []Source{s}, Rand: random(1)})
	for _, c := range set.Canaries {
		if c.Kind == Expectation {
			counts["placed"] += float64(len(c.Tests))
		}
	}
}
