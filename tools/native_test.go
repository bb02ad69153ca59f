package tools_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"deepswe/env"
	"deepswe/env/testkit"
	"deepswe/tools"
)

func native() *tools.Set { return tools.New(tools.Options{Native: true}) }

// TestNativeSpecs pins what models that call tools natively are told.
func TestNativeSpecs(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, s := range native().Specs() {
		fmt.Fprintf(&b, "# %s\n\n%s\n\n%s\n\n", s.Name, s.Description, s.Parameters)
		if strings.Contains(string(s.Parameters)+s.Description, "{{") {
			t.Errorf("%s: a mark is left", s.Name)
		}
	}
	testkit.Golden(t, "testdata/native-specs.golden", b.String())
}

// One call can replace several places. A call that fails changes nothing.
func TestReplacements(t *testing.T) {
	t.Parallel()
	const before = "one\ntwo\none\nthree\n"
	for name, c := range map[string]struct {
		before, after string
		args          []string
		says          string
	}{
		"every occurrence": {before, "1\ntwo\n1\nthree\n", []string{"old_str", "one", "new_str", "1", "replace_all", "true"},
			"2 replacements"},
		"deletion": {before, "two\nthree\n", []string{"old_str", "one\n", "replace_all", "true"}, "2 replacements"},
		"several": {before, "one\n2\none\n3\n", []string{"edits",
			`[{"old_str":"two","new_str":"2"},{"old_str":"three","new_str":"3"}]`}, "2 replacements"},
		"one after the other": {before, "one\nthree\none\n3\n", []string{"edits",
			`[{"old_str":"three","new_str":"3"},{"old_str":"two","new_str":"three"}]`}, "2 replacements"},
		"one of them everywhere": {before, "1\n2\n1\nthree\n", []string{"edits",
			`[{"old_str":"one","new_str":"1","replace_all":true},{"old_str":"two","new_str":"2"}]`}, "3 replacements"},
		"the second fails": {before, before, []string{"edits",
			`[{"old_str":"two","new_str":"2"},{"old_str":"one","new_str":"1"}]`}, "Edit 2 of 2 failed, so none was made"},
		"not there":   {before, before, []string{"old_str", "four", "new_str", "4", "replace_all", "true"}, "did not appear"},
		"no list":     {before, before, []string{"edits", `{"old_str":"two"}`}, "edits must be a list"},
		"no new_str":  {before, before, []string{"edits", `[{"old_str":"two"}]`}, "new_str is missing"},
		"both":        {before, before, []string{"old_str", "two", "edits", `[{"old_str":"two","new_str":"2"}]`}, "both given"},
		"nothing new": {before, before, []string{"edits", `[{"old_str":"two","new_str":"two"}]`}, "identical"},
		"CR LF": {"a\r\nb\r\na\r\n", "x\r\ny\r\nb\r\nx\r\ny\r\n",
			[]string{"old_str", "a\n", "new_str", "x\ny\n", "replace_all", "true"}, "2 replacements"},
		"the plain form": {before, "one\n2\none\nthree\n", []string{"old_str", "two", "new_str", "2", "edits", "[]"}, "edited."},
	} {
		t.Run(name, func(t *testing.T) {
			sb, set := newSandbox(t, map[string]string{"f": c.before}), native()
			out := call(t, set, sb, "file_editor", editor("str_replace", "f", c.args...).args()).Output
			if got := sb.read(t, "f"); got != c.after || !strings.Contains(out, c.says) {
				t.Errorf("the file holds %q, want %q; told\n%s", got, c.after, out)
			}
			if c.before == c.after {
				return
			}
			call(t, set, sb, "file_editor", editor("undo_edit", "f").args())
			if got := sb.read(t, "f"); got != c.before {
				t.Errorf("undone, the file holds %q", got)
			}
		})
	}
}

// scratched is a sandbox with a /tmp of its own.
type scratched struct {
	*dirSandbox
	tmp map[string]string
}

func (s scratched) Write(
	ctx context.Context, path string, data []byte, o env.WriteOptions,
) (env.FileInfo, error) {
	if !strings.HasPrefix(path, "/tmp/output") {
		return s.dirSandbox.Write(ctx, path, data, o)
	}
	s.tmp[path] = string(data)
	return env.FileInfo{Path: path}, nil
}

// A command's output is limited only by its characters, and the whole output is kept in a file.
func TestNativeOutput(t *testing.T) {
	t.Parallel()
	sb, set := scratched{newSandbox(t, nil), map[string]string{}}, native()
	if out := call(t, set, sb, "execute_bash", bash("seq 500").args()).Output; !strings.Contains(out, "\n250\n") {
		t.Errorf("500 short lines are cut:\n%s", out)
	}
	wide := strings.Repeat("x", 99) + "\n"
	sb.result = &env.Result{Stdout: env.Output{Head: []byte(strings.Repeat(wide, 300)), Size: 30_000},
		Stderr: env.Output{Head: []byte("careful\n"), Size: 8}}
	out := call(t, set, sb, "execute_bash", bash("make").args()).Output
	if len(out) > 12_000 || !strings.Contains(out, "truncated") || !strings.Contains(out,
		"all of the output is in /tmp/output-1.txt") {
		t.Errorf("told\n%s", out)
	}
	if c := sb.ran[len(sb.ran)-1]; c.Head < 1<<20 || c.Tail < 1<<20 {
		t.Errorf("only %d and %d bytes are kept", c.Head, c.Tail)
	}
	if got := sb.tmp["/tmp/output-1.txt"]; got != strings.Repeat(wide, 300)+"careful\n" {
		t.Errorf("the file holds %d bytes", len(got))
	}
	// The reference's tools do neither.
	out = call(t, tools.New(tools.Options{}), sb, "execute_bash", bash("make").args()).Output
	if strings.Contains(out, "/tmp/output") || strings.Count(out, "\n") > 100 {
		t.Errorf("told %d lines", strings.Count(out, "\n"))
	}
}

// Native search takes regular expressions, and find_files takes patterns of names.
func TestNativeSearch(t *testing.T) {
	t.Parallel()
	sb := newSandbox(t, map[string]string{
		"a.go": "func One() {}\nfunc two() {}\n", "sub/a_test.go": "func TestOne() {}\n", "sub/deep/b.ts": "one\n",
		".github/ci.yml": "on: push\n", ".git/config": "x\n", "with space.go": "",
	})
	for _, c := range []struct {
		use  use
		says []string
		not  string
	}{
		{use{"search", "search_term", `func [A-Z]\w+\(`, "regex", "true"}, []string{"Found 2 matches", "TestOne"}, "two"},
		{use{"search", "search_term", "(", "regex", "true"}, []string{"Invalid regular expression"}, "Found"},
		{use{"search", "search_term", "func .*ne"}, []string{"No matches", "set regex to true"}, "grep"},
		{use{"find_files", "pattern", "*.go"}, []string{"Found 3 files", "/a.go", "/sub/a_test.go", "with space"}, "b.ts"},
		{use{"find_files", "pattern", "sub/**/*.{ts,js}"}, []string{"Found 1 file", "/sub/deep/b.ts"}, "a_test"},
		{use{"find_files", "pattern", "**/*_test.go"}, []string{"Found 1 file", "a_test.go"}, "b.ts"},
		{use{"find_files", "pattern", "b.*", "path", "sub"}, []string{"/sub/deep/b.ts"}, "a_test"},
		{use{"find_files", "pattern", ".github/*"}, []string{"ci.yml"}, "config"},
		{use{"find_files", "pattern", "*.rs"}, []string{"No files match"}, "Found"},
		{use{"find_files", "pattern", "{a"}, []string{"{ without }"}, "Found"},
		{use{"find_files", "pattern", "*", "path", "nowhere"}, []string{"does not exist"}, "Found"},
	} {
		out := call(t, native(), sb, c.use[0], c.use.args()).Output
		for _, want := range c.says {
			if !strings.Contains(out, want) || strings.Contains(out, c.not) {
				t.Errorf("%q: %q is missing, or %q told in\n%s", c.use, want, c.not, out)
			}
		}
	}
	if out := call(t, tools.New(tools.Options{}), sb, "find_files", nil).Output; !strings.Contains(out, "Unknown tool") {
		t.Errorf("the reference's set has find_files: %s", out)
	}
}

// What models write instead of numbers and command lines is understood.
func TestLenientParameters(t *testing.T) {
	t.Parallel()
	for _, set := range []*tools.Set{tools.New(tools.Options{}), native()} {
		sb := newSandbox(t, map[string]string{"f": "a\nb\nc\n"})
		for _, c := range []struct {
			use  use
			says string
		}{
			{view("f", "view_range", "[2.0, 3.0]"), "     2\tb\n     3\tc"},
			{view("f", "view_range", `["2", "2"]`), "     2\tb"},
			{editor("insert", "f", "insert_line", `"3"`, "new_str", "d"), "     4\td"},
			{editor("insert", "f", "insert_line", "4.0", "new_str", "e"), "     5\te"},
			{editor("insert", "f", "insert_line", "4.5", "new_str", "e"), "must be an integer"},
			{bash(`["echo", "two words"]`), "two words"},
			{bash(`["echo", "$HOME"]`), "$HOME"},
			{bash(`["bash", "-lc", "echo $((1+1))"]`), "\n2"},
			{bash(`["echo $((1+1))"]`), "\n2"},
			{bash(`[ -f f ] && echo yes`), "yes"},
		} {
			if out := call(t, set, sb, c.use[0], c.use.args()).Output; !strings.Contains(out, c.says) {
				t.Errorf("%q: %q is missing in\n%s", c.use, c.says, out)
			}
		}
	}
}

// FuzzGlob only looks for patterns that fail.
func FuzzGlob(f *testing.F) {
	sb := newSandbox(f, map[string]string{"a/b.go": "", "[x].go": ""})
	for _, p := range []string{"*.go", "**/*", "{a,b}/?.go", "[x].go", "}{", "a//b", "\xff", "{,}", "((", `\`} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		r, err := native().Run(t.Context(), sb, tools.Call{Name: "find_files", Args: map[string]string{"pattern": pattern}})
		if err != nil || r.Output == "" || strings.Contains(r.Output, "Invalid pattern") {
			t.Errorf("%q: %+v, %v", pattern, r, err)
		}
	})
}
