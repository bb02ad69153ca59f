package tools

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"deepswe/env"
	"deepswe/env/guest"
)

// condenseAbove is the number of Python lines above which a view leaves out function bodies.
const condenseAbove = 110

// view shows a file or a directory.
func view(ctx context.Context, sb Sandbox, path string, p *params) (string, error) {
	pythonOnly, err := p.flag("python_only", false)
	if err != nil {
		return "", err
	}
	first, last, ranged, err := p.lineRange("view_range")
	if err != nil {
		return "", err
	}
	concise, err := p.flag("concise", true)
	if err != nil {
		return "", err
	}
	given, _ := p.optional("concise")
	forced := concise && !absent(given)
	f, err := readFile(ctx, sb, path)
	if errors.Is(err, guest.ErrIsDirectory) {
		if ranged {
			return "", tell("The view_range parameter is not allowed when path points to a directory (%s).", name(path))
		}
		return viewDirectory(ctx, sb, path, pythonOnly)
	}
	if err != nil {
		return "", explain(ctx, sb, path, err)
	}
	if pythonOnly && !isPython(path) {
		p.note("python_only only applies to directories.")
	}
	for _, s := range f.peculiarities() {
		p.note("%s", s)
	}
	switch {
	case f.lines == 0:
		return fmt.Sprintf("The file %s is empty.", name(f.path)), nil
	case ranged:
		return viewRange(f, first, last, p)
	case concise && isPython(path) && (forced || f.lines > condenseAbove):
		return viewCondensed(f, p), nil
	case forced:
		p.note("concise only applies to Python files.")
	}
	return viewWhole(f), nil
}

func isPython(p string) bool { return path.Ext(p) == ".py" || path.Ext(p) == ".pyi" }

func viewWhole(f file) string {
	heading := fmt.Sprintf("Here's the result of running `cat -n` on %s (%s):", name(f.path), f.length())
	return render(heading, f, span{1, f.lines}, nil)
}

func viewRange(f file, first, last int, p *params) (string, error) {
	n := f.lines
	if first < 1 {
		p.note("line numbers start at 1, so view_range was adjusted.")
		first = 1
	}
	switch {
	case first > n && f.cut():
		return "", tell("Invalid view_range parameter: only the first %s bytes of %s (%d lines) can be viewed, and line %d "+
			"is after them. Use execute_bash (sed -n '%d,+40p').", count(len(f.data)), name(f.path), n, first, first)
	case first > n:
		return "", tell("Invalid view_range parameter: it starts at line %d, but %s has %s.", first, name(f.path), f.length())
	case last != -1 && last < first:
		return "", tell("Invalid view_range parameter: [%d, %d]. It must be [first, last] in [1, %d] with first <= "+
			"last, or last = -1 for the end of the file.", first, last, n)
	case last > n:
		p.note("the file has %s, so view_range was adjusted.", f.length())
	}
	if last == -1 || last > n {
		last = n
	}
	part := span{first, last}
	heading := fmt.Sprintf("Here's the result of running `cat -n` on %s (%s), %v:", name(f.path), f.length(), part)
	return render(heading, f, part, nil), nil
}

// viewCondensed shows Python source without function bodies; if the source cannot be parsed, it shows everything.
func viewCondensed(f file, p *params) string {
	if f.cut() {
		return viewWhole(f)
	}
	folds, err := pythonFolds(f.data)
	if err != nil {
		p.note("the file is not valid Python (brackets, strings or indentation are unbalanced), so it is shown in full.")
	}
	if len(folds) == 0 {
		return viewWhole(f)
	}
	heading := fmt.Sprintf("Here's a condensed view of %s (%s) with the bodies of functions elided. "+
		"Use view_range to view a part in full, or concise=false to view everything.", name(f.path), f.length())
	return render(heading, f, span{1, f.lines}, folds)
}

// render shows numbered lines below a heading, up to the limit.
func render(heading string, f file, lines span, folds []span) string {
	var b strings.Builder
	b.WriteString(heading + "\n")
	crlf := crlf(f.data)
	most := b.Len() + maxChars
	b.Grow(min(maxChars, len(f.data)+8*f.lines))
	shortened, complete := false, lines.last == f.lines && !f.cut()
	hidden := 0 // the last line of the current fold
	for n, line := range f.from(lines.first) {
		if n > lines.last {
			break
		}
		if n <= hidden {
			continue
		}
		text, cut := show(n, line, crlf)
		if len(folds) > 0 && folds[0].first == n {
			text, cut = fmt.Sprintf("%s... eliding %v ...", indentOf(line), folds[0]), false
			hidden, folds = folds[0].last, folds[1:]
		}
		if b.Len()+len(text)+8 > most && n > lines.first {
			fmt.Fprintf(&b, "NOTE: the view was truncated before line %d (limit: %s characters). Continue with "+
				"view_range [%d, %d].", n, count(maxChars), n, min(lines.last, n+200))
			complete = false
			break
		}
		shortened = shortened || cut
		writeNumbered(&b, n, text)
	}
	out := strings.TrimSuffix(b.String(), "\n")
	if complete && f.unfinished() {
		out += "\nNOTE: no newline at end of file."
	}
	if shortened {
		out += "\nNOTE: long lines are truncated. To see the rest of line N, use `sed -n 'Np' FILE | cut -c " +
			"2000-4000` with execute_bash."
	}
	return out
}

// writeNumbered is a fast version of Fprintf with "%6d\t%s\n", which takes most of a view's time.
func writeNumbered(b *strings.Builder, n int, text string) {
	var digits [20]byte
	d := strconv.AppendInt(digits[:0], int64(n), 10)
	for range 6 - len(d) {
		b.WriteByte(' ')
	}
	b.Write(d)
	b.WriteByte('\t')
	b.WriteString(text)
	b.WriteByte('\n')
}

func indentOf(line []byte) string {
	for i, c := range line {
		if c != ' ' && c != '\t' || i == 80 {
			return string(line[:i])
		}
	}
	return ""
}

// mostEntries is how many entries of a directory are considered.
const mostEntries = 2_000

// viewDirectory lists two levels, or only one if two have too many entries, so that the content of a huge
// subdirectory does not crowd out the names beside it.
func viewDirectory(ctx context.Context, sb Sandbox, dir string, pythonOnly bool) (string, error) {
	what := "Files and directories"
	if pythonOnly {
		what = "Directories and Python files"
	}
	text, left, err := listing(ctx, sb, dir, 2, pythonOnly)
	deep := "up to 2 levels deep"
	if err == nil && left > 0 {
		text, left, err = listing(ctx, sb, dir, 1, pythonOnly)
		deep = "1 level deep (2 levels have too many entries)"
	}
	if err != nil {
		return "", explain(ctx, sb, dir, err)
	}
	out := fmt.Sprintf("%s in %s %s, excluding hidden items:\n%s\n%s", what, name(dir), deep, name(dir), text)
	if left > 0 {
		out += fmt.Sprintf("NOTE: at least %s more are not listed. Use `ls` or `find` with execute_bash to narrow it "+
			"down.\n", count(left))
	}
	return strings.TrimSuffix(out, "\n"), nil
}

// listing returns a directory's entries, one per line, and a lower bound of how many are left out.
func listing(
	ctx context.Context, sb Sandbox, dir string, depth int, pythonOnly bool,
) (text string, left int, err error) {
	l, err := sb.List(ctx, dir, env.ListOptions{Depth: depth, Limit: mostEntries})
	if err != nil {
		return "", 0, err
	}
	var b strings.Builder
	for _, entry := range l.Entries {
		if pythonOnly && entry.Kind != guest.KindDir && !isPython(entry.Path) {
			continue
		}
		line := entryLine(entry)
		if left > 0 || b.Len()+len(line) > maxChars {
			left++
			continue
		}
		b.WriteString(line)
	}
	if l.Truncated {
		left++
	}
	if len(l.Entries) == 0 {
		b.WriteString("(empty)\n")
	}
	return b.String(), left, nil
}

func entryLine(entry env.FileInfo) string {
	line := name(entry.Path)
	switch entry.Kind {
	case guest.KindDir:
		line += "/"
	case guest.KindSymlink:
		line += " -> " + name(entry.Target)
	case guest.KindOther:
		line += " (not a regular file)"
	}
	return line + "\n"
}
