package pages

import (
	"fmt"
	"strings"
	"testing"

	"deepswe/agent/trajectory"
)

// Edits of the same lines are shown as one change, and edits that were taken back are not shown.
func TestGrown(t *testing.T) {
	t.Parallel()
	edit := func(command, path string, args ...string) change {
		c := trajectory.Call{Args: map[string]string{"command": command, "path": path}}
		for i := 0; i < len(args); i += 2 {
			c.Args[args[i]] = args[i+1]
		}
		return *changeOf(c)
	}
	replace := func(path, old, now string) change {
		return edit("str_replace", path, "old_str", old, "new_str", now)
	}
	for name, c := range map[string]struct {
		edits []change
		want  string // lines of all files
	}{
		"none":     {nil, ""},
		"separate": {[]change{replace("a", "1\n", "2\n"), replace("a", "8\n", "9\n")}, "a +2 −2: -1 +2 … -8 +9"},
		"a part of what was edited": {
			[]change{replace("a", "1\n", "2\n3\n"), replace("a", "3\n", "4\n")}, "a +2 −1: -1 +2 +4",
		},
		"more than what was edited": {
			[]change{replace("a", "1\n", "2\n"), replace("a", "0\n2\n5\n", "0\n3\n5\n")}, "a +1 −1:  0 -1 +3  5",
		},
		"back by hand":     {[]change{replace("a", "1\n", "2\n"), replace("a", "2\n", "1\n")}, ""},
		"a new file twice": {[]change{edit("create", "n", "file_text", "1\n"), edit("create", "n", "file_text", "2\n")}, "n +1 −0: +2"},
		"a new file edited": {
			[]change{edit("create", "n", "file_text", "1\n2\n"), replace("n", "2\n", "3\n")}, "n +2 −0: +1 +3",
		},
		"inserted": {[]change{edit("insert", "a", "new_str", "7\n")}, "a +1 −0: +7"},
		"undone": {
			[]change{replace("a", "1\n", "2\n"), replace("a", "2\n", "3\n"), edit("undo_edit", "a")}, "a +1 −1: -1 +2",
		},
		"nothing to undo": {[]change{replace("a", "1\n", "2\n"), edit("undo_edit", "b")}, "a +1 −1: -1 +2"},
		"two files":       {[]change{replace("a", "1\n", "2\n"), replace("b", "2\n", "1\n")}, "a +1 −1: -1 +2; b +1 −1: -2 +1"},
	} {
		g := grown{}
		for _, e := range c.edits {
			g.add(e)
		}
		var files []string
		for _, d := range g.diffs() {
			text := fmt.Sprintf("%s +%d −%d:", d.Name, d.Added, d.Removed)
			for _, l := range d.Lines {
				text += " " + string(l.Text)
			}
			files = append(files, text)
		}
		if got := strings.Join(files, "; "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The diff of 3,000 edits to one file is cut off at a limit.
func TestLargeGrown(t *testing.T) {
	t.Parallel()
	g := grown{}
	for i := range 3000 {
		g.add(change{File: "a.py", Old: fmt.Sprintf("line %d of the old file\n", i), New: fmt.Sprintf("the new line %d\n", i)})
		g.size()
	}
	diffs := g.diffs()
	if len(diffs) != 1 || diffs[0].Added != 3000 || len(diffs[0].Lines) > maxDiffLines+10 {
		t.Errorf("%d files, +%d in %d lines", len(diffs), diffs[0].Added, len(diffs[0].Lines))
	}
}
