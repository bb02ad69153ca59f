package telltale

import (
	"cmp"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hunk is how many lines count as one change.
const hunk = 40

// rate counts the sources of a language that have telltales.
type rate struct {
	files, flagged, hunks, flaggedHunks int
	kinds                               map[Finding]int // files, by the telltales that they have
}

// How often real sources have telltales, as if each of them were new. DEEPSWE_TEST_SOURCES names their directories,
// with colons between; tests among them are left out.
func TestRate(t *testing.T) {
	dirs := os.Getenv("DEEPSWE_TEST_SOURCES")
	if dirs == "" {
		t.Skip("DEEPSWE_TEST_SOURCES names no directories")
	}
	languages := map[string]*rate{}
	for dir := range strings.SplitSeq(dirs, ":") {
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			inner := strings.TrimPrefix(name, dir)
			if err != nil || !d.Type().IsRegular() || !Reads(name) || isOfTests(inner) {
				return err
			}
			source, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			language := map[string]string{".py": "Python", ".pyi": "Python", ".go": "Go"}[path.Ext(name)]
			language = cmp.Or(language, "JavaScript")
			if languages[language] == nil {
				languages[language] = &rate{kinds: map[Finding]int{}}
			}
			languages[language].add(t, inner, source)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for language, r := range languages {
		t.Logf("RATE %s: %d of %d files (%.2f%%), %d of %d changes of %d lines (%.2f%%)", language, r.flagged, r.files,
			100*float64(r.flagged)/float64(max(r.files, 1)), r.flaggedHunks, r.hunks, hunk,
			100*float64(r.flaggedHunks)/float64(max(r.hunks, 1)))
		kinds := slices.SortedFunc(maps.Keys(r.kinds), func(a, b Finding) int {
			return cmp.Or(r.kinds[b]-r.kinds[a], strings.Compare(a.What, b.What))
		})
		for _, k := range kinds[:min(len(kinds), 15)] {
			t.Logf("RATE   %d files: %s (%s)", r.kinds[k], k.What, k.Rule)
		}
	}
}

// isOfTests reports whether a source is one of tests, or of a test runner.
func isOfTests(name string) bool {
	return slices.ContainsFunc([]string{"/test", "_test", ".test.", ".spec.", "/idlelib/", "/spec/", "/__tests__/", "/_pytest/"},
		func(part string) bool { return strings.Contains(name, part) })
}

func (r *rate) add(t *testing.T, name string, source []byte) {
	found := Find(name, source)
	r.files++
	r.hunks += strings.Count(string(source), "\n")/hunk + 1
	if len(found) > 0 {
		r.flagged++
		t.Logf("%s: %v", name, found)
	}
	flagged := map[int]bool{}
	for _, f := range found {
		flagged[f.Line/hunk] = true
		f.Line = 0
		r.kinds[f]++
	}
	r.flaggedHunks += len(flagged)
}
