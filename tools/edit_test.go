package tools_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"deepswe/tools"
)

// TestEditsKeepBytes checks the bytes of the file. What the model is told is checked by TestObservations.
func TestEditsKeepBytes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, before string
		use          use
		after        string
	}{
		{"tabs and trailing blanks", "\tif x:  \n\t\ty\n", editor("str_replace", "f", "old_str", "\t\ty", "new_str", "\t\tz"),
			"\tif x:  \n\t\tz\n"},
		{"white space at the ends of parameters", "  a  \n",
			editor("str_replace", "f", "old_str", "  a  ", "new_str", "\t\tb \t"), "\t\tb \t\n"},
		{"no line break at the end", "a\nb", editor("str_replace", "f", "old_str", "a", "new_str", "c"), "c\nb"},
		{"byte order mark", "\uFEFFa\n", editor("str_replace", "f", "old_str", "a", "new_str", "b"), "\uFEFFb\n"},
		{"wrong bytes elsewhere", "\xff\xfe\xe9\na\n", editor("str_replace", "f", "old_str", "a", "new_str", "b"),
			"\xff\xfe\xe9\nb\n"},
		{"wrong bytes by name", "caf\xe9 \\xe8\n", editor("str_replace", "f", "old_str", `caf\xe9`, "new_str", `th\xe9`),
			"th\xe9 \\xe8\n"},
		{"the letters of an escape", "\xff \\xe9\n", editor("str_replace", "f", "old_str", `\xe9`, "new_str", `\xe8`),
			"\xff \\xe8\n"},
		{"lone carriage returns", "a\rb\rc", editor("str_replace", "f", "old_str", "b", "new_str", "x"), "a\rx\rc"},
		{"deletion", "abc", editor("str_replace", "f", "old_str", "b"), "ac"},
		{"everything", "abc\n", editor("str_replace", "f", "old_str", "abc\n", "new_str", ""), ""},
		{"dash first", "-x\n", editor("str_replace", "f", "old_str", "-x", "new_str", "--y"), "--y\n"},

		{"CR LF, one line", "a\r\nb\r\n", editor("str_replace", "f", "old_str", "a", "new_str", "x\ny"), "x\r\ny\r\nb\r\n"},
		{"CR LF, several lines", "a\r\nb\r\n", editor("str_replace", "f", "old_str", "a\nb\n", "new_str", "x\n"), "x\r\n"},
		{"CR LF, line break first", "a\r\n b\r\n", editor("str_replace", "f", "old_str", "\n b", "new_str", "\n c\n d"),
			"a\r\n c\r\n d\r\n"},
		{"CR LF, sent as CR LF", "a\r\nb\r\n", editor("str_replace", "f", "old_str", "a\r\nb", "new_str", "x\r\ny"),
			"x\r\ny\r\n"},
		{"LF, sent as CR LF", "a\nb\n", editor("str_replace", "f", "old_str", "a\r\nb", "new_str", "x\r\ny"), "x\ny\n"},
		{"mixed, CR LF here", "a\r\nb\r\nc\n", editor("str_replace", "f", "old_str", "a\nb\n", "new_str", "x\ny\n"),
			"x\r\ny\r\nc\n"},
		{"mixed here", "z\na\r\nb\nc\r\n", editor("str_replace", "f", "old_str", "a\nb\nc", "new_str", "x\ny"),
			"z\nx\ny\r\n"},
		{"mixed, line break first", "a\r\n\nb\n", editor("str_replace", "f", "old_str", "\n\n", "new_str", "\n"), "a\nb\n"},
		{"mixed, LF here", "a\nb\nc\r\n", editor("str_replace", "f", "old_str", "a\nb\n", "new_str", "x\ny\n"),
			"x\ny\nc\r\n"},

		{"insert first", "a\n", editor("insert", "f", "insert_line", "0", "new_str", "x"), "x\na\n"},
		{"insert between", "a\nb\n", editor("insert", "f", "insert_line", "1", "new_str", "  x\n\ty\n"), "a\n  x\n\ty\nb\n"},
		{"insert last", "a\n", editor("insert", "f", "insert_line", "1", "new_str", "x"), "a\nx\n"},
		{"insert after an unfinished line", "a", editor("insert", "f", "insert_line", "1", "new_str", "x"), "a\nx"},
		{"insert into nothing", "", editor("insert", "f", "insert_line", "0", "new_str", "x"), "x\n"},
		{"insert a blank line", "a\nb\n", editor("insert", "f", "insert_line", " 1 ", "new_str", ""), "a\n\nb\n"},
		{"insert with CR LF", "a\r\nb\r\n", editor("insert", "f", "insert_line", "1", "new_str", "x\ny"),
			"a\r\nx\r\ny\r\nb\r\n"},

		{"refused: overlapping matches", "aaa\n", editor("str_replace", "f", "old_str", "aa", "new_str", "b"), "aaa\n"},
		{"refused: no match", "a\n", editor("str_replace", "f", "old_str", "b", "new_str", "c"), "a\n"},
		{"refused: out of range", "a\n", editor("insert", "f", "insert_line", "2", "new_str", "c"), "a\n"},
		{"refused: exists", "a\n", editor("create", "f", "file_text", "c"), "a\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			sb := newSandbox(t, map[string]string{"f": test.before})
			set := tools.New(tools.Options{})
			r := call(t, set, sb, test.use[0], test.use.args())
			if got := sb.read(t, "f"); got != test.after {
				t.Errorf("the file is %q, want %q; the model was told:\n%s", got, test.after, r.Output)
			}
			if refused := strings.HasPrefix(test.name, "refused"); r.Failed != refused {
				t.Errorf("failed is %v: %s", r.Failed, r.Output)
			}
			if undo := call(t, set, sb, "file_editor", editor("undo_edit", "f").args()); undo.Failed != r.Failed {
				t.Errorf("undo: %s", undo.Output)
			}
			if got := sb.read(t, "f"); got != test.before {
				t.Errorf("undo left %q, want %q", got, test.before)
			}
		})
	}
}

func TestCreateKeepsBytes(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "  a\n", "a\n\n", "\ta \t", "a\r\nb", "\x00\xff", "\uFEFFx"} {
		sb := newSandbox(t, nil)
		set := tools.New(tools.Options{})
		if r := call(t, set, sb, "file_editor", editor("create", "d/it's a \"file\"", "file_text",
			content).args()); r.Failed {
			t.Fatal(r.Output)
		}
		if got := sb.read(t, "d/it's a \"file\""); got != content {
			t.Errorf("created %q, want %q", got, content)
		}
		if r := call(t, set, sb, "file_editor", editor("undo_edit", "d/it's a \"file\"").args()); r.Failed {
			t.Error(r.Output)
		}
		if _, err := os.Stat(filepath.Join(sb.dir, "d/it's a \"file\"")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after undo the file is still there: %v", err)
		}
	}
}

// TestEditMeetsAnother changes the file between an edit's read and its write.
func TestEditMeetsAnother(t *testing.T) {
	t.Parallel()
	sb := newSandbox(t, map[string]string{"f": "a\n"})
	sb.before = func(path string) { os.WriteFile(path, []byte("a\nb\n"), 0o644) }
	set := tools.New(tools.Options{})
	r := call(t, set, sb, "file_editor", editor("str_replace", "f", "old_str", "a", "new_str", "x").args())
	if !r.Failed || !strings.Contains(r.Output, "was changed by another process") {
		t.Errorf("told: %s", r.Output)
	}
	if got := sb.read(t, "f"); got != "a\nb\n" {
		t.Errorf("the file is %q", got)
	}
}

func TestUndoRefusesOtherFiles(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"changed": func(p string) error { return os.WriteFile(p, []byte("other"), 0o644) },
		"removed": os.Remove,
		"binary":  func(p string) error { return os.WriteFile(p, []byte("\x00"), 0o644) },
	} {
		for _, edit := range []use{editor("create", "new", "file_text", "x"),
			editor("str_replace", "f", "old_str", "a", "new_str", "b")} {
			sb := newSandbox(t, map[string]string{"f": "a\n"})
			set := tools.New(tools.Options{})
			call(t, set, sb, "file_editor", edit.args())
			path := filepath.Join(sb.dir, edit.args()["path"])
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(path)
			r := call(t, set, sb, "file_editor", editor("undo_edit", edit.args()["path"]).args())
			after, _ := os.ReadFile(path)
			if !r.Failed || string(before) != string(after) {
				t.Errorf("%s: undo made %q of %q and told: %s", name, after, before, r.Output)
			}
		}
	}
}

// text draws a file's content from pieces that are difficult for editors.
func text() *rapid.Generator[string] {
	piece := rapid.SampledFrom([]string{"a", "b", "ab", " ", "\t", "\n", "\r\n", "\r", "é", "\xe9", "\uFEFF", `\xe9`,
		"def f():", "    "})
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"),
			"")
	})
}

// For every file and every edit, a refused edit changes nothing, an edit is undone exactly, and a replacement changes
// nothing before and after it.
func TestEditProperties(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f.py")
	rapid.Check(t, func(t *rapid.T) {
		before := text().Draw(t, "file")
		if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
		sb, set := &dirSandbox{dir: dir}, tools.New(tools.Options{})
		run := func(u use) tools.Result {
			r, err := set.Run(t.Context(), sb, tools.Call{Name: u[0], Args: u.args()})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		content := func() string {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		states := []string{before}
		for range rapid.IntRange(1, 4).Draw(t, "edits") {
			was := content()
			new := text().Draw(t, "new_str")
			var r tools.Result
			if rapid.Bool().Draw(t, "insert") {
				r = run(editor("insert", path, "insert_line", fmt.Sprint(rapid.IntRange(-1, 6).Draw(t, "line")), "new_str", new))
			} else {
				old := part(t, was)
				r = run(editor("str_replace", path, "old_str", old, "new_str", new))
				checkReplaced(t, was, old, new, content(), r)
			}
			if r.Failed {
				if got := content(); got != was {
					t.Fatalf("refused, and the file went from %q to %q: %s", was, got, r.Output)
				}
				continue
			}
			states = append(states, content())
		}
		for i := len(states) - 2; i >= 0; i-- {
			if r := run(editor("undo_edit", path)); r.Failed || content() != states[i] {
				t.Fatalf("undo made %q, want %q: %s", content(), states[i], r.Output)
			}
		}
		if r := run(editor("undo_edit", path)); !r.Failed {
			t.Fatalf("undid what was never done: %s", r.Output)
		}
	})
}

// part draws a part of the file as a model would: usually exact, sometimes something else.
func part(t *rapid.T, file string) string {
	if rapid.IntRange(0, 3).Draw(t, "other") == 0 {
		return text().Draw(t, "old_str")
	}
	from := rapid.IntRange(0, len(file)).Draw(t, "from")
	old := file[from:rapid.IntRange(from, len(file)).Draw(t, "to")]
	if rapid.Bool().Draw(t, "plain breaks") {
		old = strings.ReplaceAll(old, "\r\n", "\n")
	}
	return old
}

// checkReplaced compares the result with the plain meaning of str_replace, ignoring the kind of line breaks.
func checkReplaced(t *rapid.T, was, old, new, is string, r tools.Result) {
	plain := func(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }
	once := func(s, part string) bool {
		return part != "" && strings.Contains(s, part) && strings.Index(s, part) == strings.LastIndex(s, part)
	}
	if r.Failed {
		if once(was, old) && once(plain(was), plain(old)) && old != new && !strings.Contains(plain(was), "\r") {
			t.Fatalf("%q stands once in %q and was not replaced: %s", old, was, r.Output)
		}
		return
	}
	if strings.ContainsAny(plain(was+"."+old+"."+new), "\r\\") {
		return // half a line break or an escaped byte: TestEditsKeepBytes has examples
	}
	from, what := was, old
	if at := strings.Index(was, old); !once(was, old) || strings.HasPrefix(old, "\n") &&
		strings.HasSuffix(was[:at], "\r") {
		from, what = plain(was), plain(old)
	}
	if want := plain(strings.Replace(from, what, new, 1)); plain(is) != want {
		t.Fatalf("%q, with %q for %q, became %q", was, new, old, is)
	}
}
