package pages

import (
	"html/template"
	"slices"
	"strings"

	"deepswe/agent/trajectory"
)

// change is the replacement of a text in a file, by one edit or by several edits of the same lines.
type change struct {
	File, Old, New string
	// Whole is set if New is the whole file, Undo if the edit takes the last one of the file back.
	Whole, Undo    bool
	Added, Removed int
}

// changeOf returns the edit of a file that a call asks for; nil for other calls.
func changeOf(c trajectory.Call) *change {
	e := change{File: c.Args["path"], Old: c.Args["old_str"], New: c.Args["new_str"]}
	switch c.Args["command"] {
	case "str_replace", "insert":
	case "create":
		e.Old, e.New, e.Whole = "", c.Args["file_text"], true
	case "undo_edit":
		e.Undo = true
	default:
		return nil
	}
	return &e
}

// shared returns the lines of both texts, and how many equal lines both begin with and end with.
func (c change) shared() (old, now []string, head, tail int) {
	old, now = splitLines(c.Old), splitLines(c.New)
	for head < min(len(old), len(now)) && old[head] == now[head] {
		head++
	}
	for tail < min(len(old), len(now))-head && old[len(old)-1-tail] == now[len(now)-1-tail] {
		tail++
	}
	return old, now, head, tail
}

// diff returns the change as a diff: the lines that both texts begin and end with once, and between them the old ones
// and the new ones.
func (c change) diff() fileDiff {
	old, now, head, tail := c.shared()
	d := fileDiff{Name: plain(c.File), Removed: len(old) - head - tail, Added: len(now) - head - tail}
	add := func(class, mark string, lines []string) {
		for _, l := range lines[:min(len(lines), maxDiffLines+1-len(d.Lines))] {
			d.Lines = append(d.Lines, diffLine{class, template.HTML(mark) + code(c.File, plain(l))})
		}
	}
	add("", " ", old[:head])
	add("del", "-", old[head:len(old)-tail])
	add("add", "+", now[head:len(now)-tail])
	add("", " ", old[len(old)-tail:])
	if len(d.Lines) > maxDiffLines {
		d.Lines = append(d.Lines[:maxDiffLines], diffLine{"hunk", "…"})
	}
	return d
}

// grown is the patch that edits have made so far, without what commands change.
type grown struct{ edits, changes []change }

func (g *grown) add(e change) {
	if !e.Undo {
		g.edits = append(g.edits, e)
		g.merge(e)
		return
	}
	for i, last := range slices.Backward(g.edits) {
		if last.File == e.File {
			g.edits = slices.Delete(g.edits, i, i+1)
			break
		}
	}
	g.changes = nil
	for _, e := range g.edits {
		g.merge(e)
	}
}

// merge adds an edit to the changes. One that replaces a part of an earlier change's text becomes a part of that
// change, and one that replaces more absorbs the earlier change.
func (g *grown) merge(e change) {
	for i, c := range slices.Backward(g.changes) {
		switch {
		case c.File != e.File:
		case e.Whole:
			g.changes = slices.Delete(g.changes, i, i+1)
		case e.Old != "" && strings.Contains(c.New, e.Old):
			c.New = strings.Replace(c.New, e.Old, e.New, 1)
			e = c
			g.changes = slices.Delete(g.changes, i, i+1)
		case c.New != "" && strings.Contains(e.Old, c.New):
			e.Old = strings.Replace(e.Old, c.New, c.Old, 1)
			g.changes = slices.Delete(g.changes, i, i+1)
		}
	}
	if e.Old != e.New {
		old, now, head, tail := e.shared()
		e.Removed, e.Added = len(old)-head-tail, len(now)-head-tail
		g.changes = append(g.changes, e)
	}
}

// diffs returns the patch, file by file.
func (g *grown) diffs() []fileDiff {
	var all []fileDiff
	at := map[string]int{}
	for _, c := range g.changes {
		d := c.diff()
		i, ok := at[c.File]
		if !ok {
			at[c.File] = len(all)
			all = append(all, d)
			continue
		}
		f := &all[i]
		f.Added, f.Removed = f.Added+d.Added, f.Removed+d.Removed
		if len(f.Lines) < maxDiffLines {
			f.Lines = slices.Concat(f.Lines, []diffLine{{"hunk", "…"}}, d.Lines)
		}
	}
	return all
}

// size returns the numbers of lines and files that the patch changes.
func (g *grown) size() (added, removed, files int) {
	names := map[string]bool{}
	for _, c := range g.changes {
		added, removed, names[c.File] = added+c.Added, removed+c.Removed, true
	}
	return added, removed, len(names)
}

// grownIn returns the patch that the edits of steps have made.
func grownIn(steps []*step) *grown {
	g := &grown{}
	for _, s := range steps {
		s.addTo(g)
	}
	return g
}

func (s *step) addTo(g *grown) {
	for _, c := range s.Calls {
		if c.Edit != nil && c.Failed == "" {
			g.add(*c.Edit)
		}
	}
}
