package tools

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestPythonFolds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, src string
		want      []span
	}{
		{"body of three lines", "def f():\n    a\n    b\n    c\nx\n", []span{{2, 4}}},
		{"body of two lines", "def f():\n    a\n    b\nx\n", nil},
		{"no line break at the end", "def f():\n    a\n    b\n    c", []span{{2, 4}}},
		{"async, decorated", "@d\n@e(\n  1,\n)\nasync  def f(\n    a,\n    b=(1,\n       2),\n) -> int:\n    a\n    b\n    c\n", []span{{10, 12}}},
		{"methods", "class A(B):\n    x = 1\n    def f(self):\n        a\n        b\n        c\n\n    def g(self): return 1\n    y = 2\n", []span{{4, 6}}},
		{"nested function goes with its parent", "def f():\n    def g():\n        a\n        b\n        c\n    return g\n",
			[]span{{2, 6}}},
		{"function in a short function's place", "if x:\n    def f():\n        a\n        b\n        c\nelse:\n    pass\n",
			[]span{{3, 5}}},
		{"docstring of a class", "class A:\n    \"\"\"One.\n\n    Two.\n    \"\"\"\n    x = 1\n", []span{{2, 5}}},
		{"short docstring of a class", "class A:\n    \"\"\"One.\n\n    \"\"\"\n    x = 1\n", nil},
		{"docstring and call", "class A:\n    \"\"\"One.\n\n\n    \"\"\".strip()\n", nil},
		{"strings with brackets, quotes and keywords",
			"def f():\n    a = ')]}'\n    b = \"it's (\"\n    c = '''\ndef g(:\n'''\nx\n", []span{{2, 6}}},
		{"escapes", "def f():\n    a = '\\''\n    b = r'\\'  # )'\n    c = '\\\n'\nx\n", []span{{2, 5}}},
		{"prefixes", "def f():\n    a = rb'('\n    b = F\"\"\"{(1)}\n\"\"\"\n    c = bar'x'\nx\n", []span{{2, 5}}},
		{"comments", "def f():  # (\n# at the margin\n    a  # '\n\n    b\n  # between\n    c\n# after\nx\n", []span{{3, 7}}},
		{"continued lines", "def f(): \\\n\n    a\nx = 1 + \\\n    2\n", nil},
		{"backslash within a body", "def f():\n    a = 1 + \\\n  2\n    b\nx\n", []span{{2, 4}}},
		{"tabs", "def f():\n\ta\n\tb\n        c\nx\n", []span{{2, 4}}},
		{"CR LF", "def f():\r\n    a\r\n    b\r\n    c\r\nx\r\n", []span{{2, 4}}},
		{"byte order mark", "\uFEFFdef f():\n    a\n    b\n    c\n", []span{{2, 4}}},
		{"names of other scripts", "def größe():\n    a\n    b\n    c\n", []span{{2, 4}}},
		{"default is not def", "default = [\n    1,\n    2,\n    3]\n", nil},
		{"print statement of old", "def f():\n    print 'a'\n    print 'b'\n    exec 'c'\n", []span{{2, 4}}},
		{"empty", "", nil},
		{"comments only", "# a\n  # b\n", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := pythonFolds([]byte(test.src))
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
}

func TestPythonFoldsRefuses(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"open bracket":             "def f(:\n    a\n",
		"closing bracket":          "a = 1)\n",
		"wrong bracket":            "a = (1]\n",
		"open string":              "a = 'b\nc = 1\n",
		"open triple string":       "a = '''b\n",
		"string up to the end":     "a = 'b\\",
		"dedent to nowhere":        "if a:\n        b\n    c\n",
		"indent without a colon":   "a\n    b\n",
		"indent at the beginning":  "    a\nb\n",
		"something after the line": "a = 1 \\ b\n",
	} {
		if folds, err := pythonFolds([]byte(src)); err == nil {
			t.Errorf("%s: %q gives %v", name, src, folds)
		}
	}
}

// TestPythonFoldsAgreeWithPython compares with Python's own parser on its standard library, if Python is installed.
func TestPythonFoldsAgreeWithPython(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("reads a whole Python library")
	}
	const program = `
import ast, json, os, sys, sysconfig
root = sysconfig.get_paths()["stdlib"]
files = []
for folder in ("asyncio", "email", "unittest", "importlib", "concurrent/futures"):
    full = os.path.join(root, folder)
    files += [os.path.join(full, n) for n in sorted(os.listdir(full)) if n.endswith(".py")]
def folds(node, out):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first, last = child.body[0].lineno, child.body[-1].end_lineno
            if getattr(child.body[0], "decorator_list", None):
                first = child.body[0].decorator_list[0].lineno
            if last - first + 1 >= 3 and first > child.lineno:
                out.append([first, last]); continue
        if isinstance(child, ast.ClassDef):
            d = child.body[0]
            if isinstance(d, ast.Expr) and isinstance(d.value, ast.Constant) and isinstance(d.value.value, str) \
                    and d.end_lineno - d.lineno + 1 >= 4:
                out.append([d.lineno, d.end_lineno])
        folds(child, out)
for f in files:
    src = open(f, "rb").read()
    try:
        tree = ast.parse(src)
    except SyntaxError:
        continue
    out = []
    folds(tree, out)
    out.sort()
    print(json.dumps({"file": f, "folds": out}))
`
	out, err := exec.Command("python3", "-c", program).Output()
	if err != nil {
		t.Skipf("no Python to compare with: %v", err)
	}
	compared := 0
	for line := range bytes.Lines(out) {
		var want struct {
			File  string
			Folds [][2]int
		}
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatal(err)
		}
		src, err := os.ReadFile(want.File)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pythonFolds(src)
		if err != nil {
			t.Errorf("%s: %v", want.File, err)
			continue
		}
		same := slices.EqualFunc(got, want.Folds, func(s span, f [2]int) bool { return s.first == f[0] && s.last == f[1] })
		if !same {
			t.Errorf("%s: got %v, want %v", want.File, got, want.Folds)
		}
		compared++
	}
	t.Logf("%d files agree", compared)
}

func FuzzPythonFolds(f *testing.F) {
	f.Add("class A:\n    '''\n    d\n    '''\n    async def f(self):\n        x = (1,\n  2)\n        return f'{x}'\n")
	f.Add("def f():\\\n\n\tx\n")
	f.Add("\uFEFF'\\\r\n'\"\"\"")
	f.Fuzz(func(t *testing.T, src string) {
		folds, err := pythonFolds([]byte(src))
		if err != nil {
			return
		}
		at, lines := 0, newText([]byte(src)).lines
		for _, s := range folds {
			if s.first <= at || s.last < s.first || s.last > lines {
				t.Fatalf("%v of %d lines in %q", folds, lines, src)
			}
			at = s.last
		}
		if again, err := pythonFolds([]byte(strings.ReplaceAll(src, "\n", "\r\n"))); err == nil &&
			!strings.Contains(src, "\r") && !slices.Equal(folds, again) {
			t.Fatalf("line breaks matter: %v and %v for %q", folds, again, src)
		}
	})
}
