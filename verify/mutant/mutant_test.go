package mutant

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env/testkit"
)

// The golden files show all mutants of a file in each language.
func TestEdits(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gauge.py", "gauge.go", "gauge.js", "gauge.sh", "gauge.awk", "gauge.rs", "gauge.rb", "gauge.java", "gauge.c"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join("testdata", name)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, m := range Of(newFile(name, string(data)), map[string][]byte{name: data}, 1000, 1) {
				fmt.Fprintf(&got, "%03d %s\n\t-%s\n\t+%s\n", m.Line, m.Operator, m.Before, m.After)
			}
			testkit.Golden(t, path+".golden", sorted(got.String()))
		})
	}
}

// newFile returns the patch that adds a file.
func newFile(name, text string) []byte {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return fmt.Appendf(nil, "diff --git a/%s b/%s\nnew file mode 100644\n--- /dev/null\n+++ b/%s\n@@ -0,0 +1,%d @@\n+%s\n",
		name, name, name, len(lines), strings.Join(lines, "\n+"))
}

// sorted sorts entries by their lines.
func sorted(text string) string {
	entries := strings.SplitAfter(text, "\n")
	var all []string
	for i := 0; i+2 < len(entries); i += 3 {
		all = append(all, strings.Join(entries[i:i+3], ""))
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

const solution = `diff --git a/lib/one.py b/lib/one.py
index 1..2 100644
--- a/lib/one.py
+++ b/lib/one.py
@@ -1,2 +1,3 @@
 a = 1
-b = 2
+b = 3
+c = 4
@@ -10 +11 @@ def d():
-    return 5
+    return 6
--- "a/lib/tw\303\266.sh"	2026
+++ "b/lib/tw\303\266.sh"	2026
@@ -1 +1 @@
-x=1
\ No newline at end of file
+x=2
\ No newline at end of file
`

var files = map[string][]byte{
	"lib/one.py": []byte("a = 1\nb = 3\nc = 4\n\n\n\n\n\n\n\n    return 6\n"),
	"lib/twö.sh": []byte("x=2"), "other.py": []byte("y = 7\n"),
}

// A small number of mutants is spread over as many lines as possible, and is the same each time.
func TestSpread(t *testing.T) {
	t.Parallel()
	few := Of([]byte(solution), files, 4, 7)
	lines := map[string]bool{}
	for _, m := range few {
		lines[fmt.Sprint(m.File, m.Line)] = true
	}
	if len(few) != 4 || len(lines) != 4 {
		t.Errorf("%d mutants of %d lines", len(few), len(lines))
	}
	if diff := cmp.Diff(few, Of([]byte(solution), files, 4, 7)); diff != "" {
		t.Error(diff)
	}
	if all := Of([]byte(solution), files, 100, 7); len(all) != 12 {
		t.Errorf("%d mutants in all: %v", len(all), all)
	}
}

// The patch of a mutant differs from that of the solution in one line.
func TestPatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mutant    Mutant
		old, line string
	}{
		{Mutant{"lib/one.py", 3, "c = 4", "pass", Deletion}, "+c = 4\n", "+pass\n"},
		{Mutant{"lib/one.py", 11, "    return 6", "    return 7", Boundary}, "+    return 6\n", "+    return 7\n"},
		{Mutant{"lib/twö.sh", 1, "x=2", "x=3", Boundary}, "+x=2\n", "+x=3\n"},
		{Mutant{"lib/one.py", 1, "a = 1", "a = 2", Boundary}, "", ""}, // a line that the solution does not change
	} {
		want := strings.Replace(solution, tc.old, tc.line, 1)
		if got := string(tc.mutant.Patch([]byte(solution))); got != want {
			t.Errorf("%s: %s", tc.mutant.Diff(), got)
		}
	}
}

// There are no mutants of a solution whose hunk headers do not match the files, or that cannot be read.
func TestNoMutants(t *testing.T) {
	t.Parallel()
	for name, patch := range map[string]string{
		"elsewhere":    "--- a/f.py\n+++ b/f.py\n@@ -3 +3 @@\n-x = 1\n+x = 2\n",
		"not a patch":  "x = 2\n",
		"cut off":      "+++ b/f.py\n@@ -1 +1 @@\n",
		"huge numbers": "+++ b/f.py\n@@ -1 +99999999999999999999 @@\n+x = 2\n",
	} {
		if all := Of([]byte(patch), map[string][]byte{"f.py": []byte("x = 2\n")}, 9, 1); len(all) != 0 {
			t.Errorf("%s: %v", name, all)
		}
	}
	for name, text := range map[string]string{
		"f.py": "x = '2\n", "f.go": "x := 2\n", "f.js": "/* 2\n", "f.txt": "2\n", "f": "2\n", "g.js": "x = `2\n",
	} {
		if all := Of(newFile(name, text), map[string][]byte{name: []byte(text)}, 9, 1); len(all) != 0 {
			t.Errorf("%s: %v", name, all)
		}
	}
}

// Whatever a file holds, no mutant spans several lines.
func FuzzEdits(f *testing.F) {
	for _, name := range []string{"f.py", "f.go", "f.js", "f.sh", "f.awk", "f.rs", "f.rb", "f.c"} {
		f.Add(name, "if x == 1: return '2' # (")
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		for _, m := range Of(newFile(name, text), map[string][]byte{name: []byte(text)}, 50, 1) {
			if strings.Contains(m.After, "\n") {
				t.Errorf("%q", m.After)
			}
		}
	})
}
