package tools_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/env/testkit"
	"deepswe/tools"
)

// use is one call: a tool's name, then its parameters as alternating keys and values.
type use []string

func view(path string, more ...string) use { return editor("view", path, more...) }

func editor(command, path string, more ...string) use {
	return append(use{"file_editor", "command", command, "path", path}, more...)
}

func bash(cmd string) use { return use{"execute_bash", "cmd", cmd} }

func (u use) args() map[string]string {
	args := make(map[string]string)
	for pair := range slices.Chunk(u[1:], 2) {
		args[pair[0]] = pair[1]
	}
	return args
}

// longPython returns a file that is too long to be shown in full.
func longPython() string {
	var b strings.Builder
	b.WriteString("\"\"\"Shapes.\"\"\"\nimport math\n\n\nclass Shape:\n    \"\"\"What has an area.\n\n    Subclasses compute it.\n    \"\"\"\n\n    sides = 0\n\n")
	for i := range 12 {
		fmt.Fprintf(&b, "    @property\n    def area_%d(self):\n        # the width first\n        a = %d\n        if a:\n            return (a,\n                    self.sides)\n        return None\n\n", i, i)
	}
	b.WriteString("    def short(self):\n        return 1\n\n\nif __name__ == '__main__':\n    print(Shape().short())\n")
	return b.String()
}

// TestObservations shows what a model reads, call by call. Each case has a file in testdata/observations.
func TestObservations(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"shapes.py":    longPython(),
		"short.py":     "def f(x):\n\treturn x + 1\n\n\ndef g(x):\n\treturn f(x) + 1\n",
		"broken.py":    "def f(:\n" + strings.Repeat("    x = (1\n", 120),
		"windows.txt":  "one\r\ntwo\r\nthree\r\n",
		"mixed.txt":    "one\r\ntwo\nthree\rfour",
		"latin1.txt":   "caf\xe9\nth\xe9\n",
		"bom.txt":      "\uFEFFfirst\nsecond\n",
		"escape.txt":   "a\x1b[31mred\x1b[0m\n",
		"empty.txt":    "",
		"picture.png":  "\x89PNG\r\n\x1a\n\x00\x00",
		"wide.txt":     strings.Repeat("wide ", 1000) + "\nnext\n",
		"many.txt":     strings.Repeat("a line of text"+strings.Repeat(" and so on", 9)+"\n", 1000),
		"src/main.go":  "package main\n\nfunc main() {}\n",
		"src/a/b/c.go": "package b\n",
		"src/app.js":   "function main() {}\n",
		".hidden/x.py": "def f(): pass\n",
		"odd\nname.py": "main = 1\n",
	}
	tests := map[string][]use{
		"view directory": {view("."), view("src", "python_only", "true"), view("src", "view_range", "[1, 2]"),
			view("/DIR/src/a/b")},
		"view file": {view("/DIR/short.py"), view("src/main.go"), view("empty.txt"), view("wide.txt")},
		"view condensed": {view("shapes.py"), view("short.py", "concise", "True"), view("broken.py", "view_range", "[1, 3]"),
			view("src/main.go", "concise", "true")},
		"view full": {view("shapes.py", "concise", "false", "view_range", ""), view("broken.py")},
		"view range": {view("short.py", "view_range", "[2, 3]"), view("short.py", "view_range", "(5 -1)"),
			view("short.py", "view_range", "0, 99"), view("short.py", "view_range", "[9, 12]"),
			view("short.py", "view_range", "[3, 2]"), view("short.py", "view_range", "[3]")},
		"view long": {view("many.txt"), view("many.txt", "view_range", "[400, -1]")},
		"view odd bytes": {view("windows.txt"), view("mixed.txt"), view("latin1.txt"), view("bom.txt"), view("escape.txt"),
			view("picture.png"), view("odd\nname.py")},
		"view missing": {view("shape.py"), view("src/b/c.go"), view("/DIR/short.py "), view("short.py/x"), view("~/x"),
			view("")},
		"create": {editor("create", "new/deep/a.txt", "file_text", "  one\n\ttwo  \n\n"),
			editor("create", "new/deep/a.txt", "file_text", "x"), editor("create", "e", "file_text", ""),
			editor("create", "src", "file_text", ""), editor("create", "f"), editor("create", "short.py/x", "file_text", "")},
		"str_replace": {editor("str_replace", "short.py", "old_str", "\treturn x + 1\n", "new_str",
			"\ty = x\n\treturn y + 1\n"), editor("str_replace", "short.py", "old_str", "\ty = x\n")},
		"no match": {editor("str_replace", "short.py", "old_str", "    return x + 1\n", "new_str", ""),
			editor("str_replace", "short.py", "old_str", "def f(x):\n\treturn x + 2\n", "new_str", ""),
			editor("str_replace", "short.py", "old_str", "     1\tdef f(x):", "new_str", ""),
			editor("str_replace", "short.py", "old_str", "def h(x, y):", "new_str", ""),
			editor("str_replace", "short.py", "old_str", "zzz", "new_str", ""),
			editor("str_replace", "empty.txt", "old_str", "zzz", "new_str", "")},
		"several matches": {editor("str_replace", "short.py", "old_str", "return", "new_str", ""),
			editor("str_replace", "many.txt", "old_str", "line", "new_str", "")},
		"refused": {editor("str_replace", "short.py", "old_str", "", "new_str", "x"),
			editor("str_replace", "short.py", "old_str", "x", "new_str", "x"), editor("str_replace", "short.py", "new_str", "x"),
			editor("insert", "short.py", "new_str", "x"), editor("insert", "short.py", "insert_line", "one", "new_str", "x"),
			editor("insert", "short.py", "insert_line", "7", "new_str", "x"),
			editor("str_replace", "picture.png", "old_str", "x"), editor("str_replace", "src", "old_str", "x")},
		"insert": {editor("insert", "short.py", "insert_line", "0", "new_str", "import os\n\n"),
			editor("insert", "short.py", "insert_line", "8", "new_str", "# end")},
		"line breaks": {editor("str_replace", "windows.txt", "old_str", "one\ntwo\n", "new_str", "1\n2\n"),
			editor("insert", "windows.txt", "insert_line", "1", "new_str", "1a\n1b"),
			editor("str_replace", "mixed.txt", "old_str", "two\nthree", "new_str", "2"),
			editor("str_replace", "short.py", "old_str", "def g(x):\r\n\treturn", "new_str", "def g(x):\r\n\tyield")},
		"wrong bytes": {editor("str_replace", "latin1.txt", "old_str", `caf\xe9`, "new_str", `le caf\xe9`),
			view("latin1.txt")},
		"undo": {editor("create", "n.txt", "file_text", "one\n"),
			editor("str_replace", "n.txt", "old_str", "one", "new_str", "two"), editor("undo_edit", "n.txt"),
			editor("undo_edit", "n.txt"), editor("undo_edit", "n.txt"),
			editor("insert", "short.py", "insert_line", "0", "new_str", "x"), bash("echo changed >> short.py"),
			editor("undo_edit", "short.py")},
		"lint": {editor("create", "bad.py", "file_text", "def f(:\n", "enable_linting", "true"),
			editor("create", "good.py", "file_text", "x = 1\n", "enable_linting", "true"),
			editor("create", "a.txt", "file_text", "def f(:\n", "enable_linting", "true")},
		"parameters": {view("short.py", "line", "1", "Path", "x"), view("short.py", "concise", "maybe"),
			view("short.py", "old_str", "x", "insert_line", ""), {"file_editor", "path", "short.py"},
			editor("delete", "short.py"), {"file_editor", "command", "view"}, {"browser"}},
		"search": {{"search", "search_term", "main"}, {"search", "search_term", "return", "path", "short.py"},
			{"search", "search_term", "main", "path", "src", "python_only", "true"}, {"search", "search_term", "caf"},
			{"search", "search_term", "wide next"}, {"search", "search_term", "wide"}},
		"search nothing": {{"search", "search_term", "def .*x"}, {"search", "search_term", "MAIN"},
			{"search", "search_term", ""}, {"search", "search_term", "a\nb"}, {"search", "path", "src"},
			{"search", "search_term", "x", "path", "source"}, {"search", "search_term", "main\n", "path", "src/main.go"}},
		"search much": {{"search", "search_term", "line of"}},
		"bash": {bash("printf '  out\\n'; echo err >&2; exit 3"), bash("true"),
			{"execute_bash", "command", "echo alias"}, bash(" "), {"execute_bash"}, {"execute_bash", "cmd", "a", "command", "b"},
			{"execute_bash", "cmd", "a", "timeout", "5"}, bash("echo a\x00b")},
		"bash much": {bash("seq 1 200"), bash("seq 1 60; seq 101 160 >&2"),
			bash("head -c 30000 /dev/zero | tr '\\0' x")},
		"finish": {{"finish", "command", "submit", "result", " All done.\n"}, {"finish"},
			{"finish", "command", "done", "summary", "x"}},
	}
	for name, uses := range tests {
		t.Run(name, func(t *testing.T) {
			sb := newSandbox(t, files)
			set := tools.New(tools.Options{})
			var b strings.Builder
			for _, u := range uses {
				args := u.args()
				fmt.Fprintf(&b, ">>> %s", u[0])
				for _, key := range slices.Sorted(maps.Keys(args)) {
					fmt.Fprintf(&b, " %s=%q", key, args[key])
					args[key] = strings.ReplaceAll(args[key], "/DIR", sb.dir)
				}
				r := call(t, set, sb, u[0], args)
				fmt.Fprintf(&b, "\n<<<")
				if r.Failed {
					b.WriteString(" failed")
				}
				if r.Finished {
					fmt.Fprintf(&b, " finished %q", r.Answer)
				}
				b.WriteString("\n" + strings.ReplaceAll(r.Output, sb.dir, "/testbed") + "\n\n")
			}
			testkit.Golden(t, filepath.Join("testdata", "observations", strings.ReplaceAll(name, " ", "_")+".golden"),
				b.String())
		})
	}
}
