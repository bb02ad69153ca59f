package telltale

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// How often real sources have telltales, as if each of them were new. DEEPSWE_TEST_SOURCES names their directories,
// with colons between; tests among them are left out.
func TestRate(t *testing.T) {
	dirs := os.Getenv("DEEPSWE_TEST_SOURCES")
	if dirs == "" {
		t.Skip("DEEPSWE_TEST_SOURCES names no directories")
	}
	for dir := range strings.SplitSeq(dirs, ":") {
		files, flagged, bytes := 0, 0, 0
		rules := map[Rule]int{}
		began := time.Now()
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			inner := strings.TrimPrefix(name, dir)
			if err != nil || d.IsDir() || !d.Type().IsRegular() || !Reads(name) || strings.Contains(inner, "/test") ||
				strings.Contains(inner, "_test") || strings.Contains(inner, "/idlelib/") || strings.Contains(inner, ".test.") {
				return nil
			}
			source, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			files++
			bytes += len(source)
			found := Find(name, source)
			if len(found) > 0 {
				flagged++
				t.Logf("%s: %v", inner, found)
			}
			for _, f := range found {
				rules[f.Rule]++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("RATE %s: %d of %d files (%.2f%%), %.1f MB in %v", dir, flagged, files, 100*float64(flagged)/float64(max(files, 1)),
			float64(bytes)/1e6, time.Since(began).Round(time.Millisecond))
		for _, rule := range slices.Sorted(maps.Keys(rules)) {
			t.Logf("RATE   %s: %d", rule, rules[rule])
		}
	}
}
