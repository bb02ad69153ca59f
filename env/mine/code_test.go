package mine

import (
	"fmt"
	"slices"
	"testing"
)

// Changes of layout and comments are told from changes of meaning.
func TestSameCode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		file, before, after string
		want                bool
	}{
		{"m.py", "f(a, b)\n", "f(\n    a,\n    b,\n)\n", true},
		{"m.js", "x = a && b\n    .c()\n", "x = a\n    && b.c()\n", true},
		{"m.py", "x = (1)\n", "x = (1,)\n", false},
		{"m.py", "a = 1\nb = 2\nc = 3\n", "b = 2\na = 1\nc = 3\n", false},
		{"m.py", "a = 1\n", "a = 1\nb = 2\n", false},
		{"m.py", "", "b = 2\n", false},

		{"m.py", "def f():\n  return 1\n", "def f():\n    return 1  # one\n", true},
		{"m.py", "for a in b:\n    c()\n    d()\n", "for a in b:\n    c()\nd()\n", false},
		{"m.py", "say('a b')\n", "say('ab')\n", false},
		{"m.go", "package m\n\nvar a = []int{1, 2}\n", "package m\n\n// a is a list.\nvar a = []int{\n\t1,\n\t2,\n}\n", true},
		{"m.go", "package m\n\nvar a string\n", "package m\n\n//go:embed a.txt\nvar a string\n", false},
		{"m.go", "package m\n\nconst a = `b  c`\n", "package m\n\nconst a = `b c`\n", false},
		{"M.java", "/** Old. */\nint a;\n", "/**\n * New: \"a.\n */\nint a;\n", true},
		{"M.java", "int a = 1;\n", "int a = 1; // int b = 2;\n", true},
		{"m.c", "*p = 1;\n", "*p = 2;\n", false},
		{"m.rs", "/// Old.\nfn f<'a>() {}\n", "/// It's new.\nfn f<'a>() {}\n", true},
		{"m.rb", "a = 'b' # old\n", "# new\na = 'b'\n", true},
		{"m.lua", "f(a,b)\n", "f(a, b)\n", true},
		{"m.lua", "f(a)\n", "f(a) -- a\n", false},
		{"m.py", "f(\n", "f( \n", true}, // not Python
	} {
		got := slices.Equal(code(tc.file, tc.before), code(tc.file, tc.after))
		if got != tc.want {
			t.Errorf("%s: from %q to %q: %t", tc.file, tc.before, tc.after, got)
		}
	}
}

// A patch with whole files as its context is compared file by file.
func TestSameCodeOfPatch(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{"# b": 1, "b = 2": 0} {
		dir := history(t, fmt.Sprintf(`change m.py 'a = 1'; change été.py 'a = 1'; commit a
change m.py '# a'; change été.py '%s'; change tests/test_m.py 'def test_m(): pass'; commit b`, line))
		if _, unfit := candidatesOf(t, dir, 0); unfit[Formatting] != want {
			t.Errorf("with %q: %v", line, unfit)
		}
	}
}
