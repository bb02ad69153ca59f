package tools

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"strings"

	"deepswe/env"
)

//go:embed search.md
var searchDescription string

//go:embed search.json
var searchSchema string

const (
	mostMatches   = 1_000 // matching lines to consider
	mostMatchLine = 200   // bytes to show of one matching line
)

// searcher finds lines that contain a text, in a file or a directory: literally or, in a native set, by a regular
// expression.
type searcher struct{ native bool }

func (s searcher) run(ctx context.Context, sb Sandbox, c Call) (Result, error) {
	known := []string{"search_term", "path", "python_only"}
	if s.native {
		known = append(known, "regex")
	}
	p, err := newParams("search", c.Args, known...)
	if err != nil {
		return Result{}, err
	}
	p.quiet = s.native
	term, err := p.required("search_term", "the text to search for")
	if err != nil {
		return Result{}, err
	}
	pythonOnly, err := p.flag("python_only", false)
	if err != nil {
		return Result{}, err
	}
	switch {
	case term == "":
		return Result{}, tell("search_term is empty. To list files, view a directory with file_editor.")
	case strings.ContainsAny(strings.TrimSuffix(term, "\n"), "\n\x00"):
		return Result{}, tell("search_term contains a newline or a NUL byte. The search is line by line: search for " +
			"one line of the text.")
	case strings.HasSuffix(term, "\n"):
		term = strings.TrimSuffix(term, "\n")
		p.note("the newline at the end of search_term was removed: the search is line by line.")
	}
	q := env.Query{Term: term, Path: sb.Dir(), MaxMatches: mostMatches, MaxLine: mostMatchLine}
	if s.native {
		if q.Regexp, err = p.flag("regex", false); err != nil {
			return Result{}, err
		}
	}
	if v, _ := p.optional("path"); !absent(v) {
		if q.Path, err = p.path(sb, "path", "the file or directory to search"); err != nil {
			return Result{}, err
		}
	}
	if q.Regexp {
		if _, err := regexp.Compile(term); err != nil {
			return Result{}, tell("Invalid regular expression: %v. Nothing was searched.", err)
		}
	}
	out, err := s.find(ctx, sb, q, pythonOnly, p)
	if err != nil {
		return Result{}, err
	}
	return Result{Output: out + p.remarks("search")}, nil
}

func (s searcher) find(ctx context.Context, sb Sandbox, q env.Query, pythonOnly bool, p *params) (string, error) {
	if pythonOnly {
		q.Names = []string{"*.py", "*.pyi"}
	}
	m, err := sb.Search(ctx, q)
	if err == nil && pythonOnly && m.Total == 0 {
		q.Names = nil
		if m, err = sb.Search(ctx, q); err == nil && m.Total > 0 {
			p.note("no matches in Python files; these are in other files.")
		}
	}
	if err != nil {
		return "", explain(ctx, sb, q.Path, err)
	}
	if m.Total == 0 {
		return s.noMatches(ctx, sb, q, m), nil
	}
	return renderMatches(q.Term, q.Path, m), nil
}

// looksLikeRegexp matches what looks like a regular expression.
var looksLikeRegexp = regexp.MustCompile(`\.\*|\.\+|\\[a-zA-Z().|\[\]]|\|\w|^\^|\$$|\[[^\]]+\][*+?]`)

// noMatches reports that nothing was found, with the likely reason.
func (s searcher) noMatches(ctx context.Context, sb Sandbox, q env.Query, m env.Matches) string {
	var b strings.Builder
	fmt.Fprintf(&b, "No matches found for %s in %s.", quote(q.Term), name(q.Path))
	expression, anyCase := "use `grep -rnE` with execute_bash", "use `grep -rni` with execute_bash"
	if s.native {
		expression, anyCase = "set regex to true", "set regex to true and begin with (?i)"
	}
	if q.Regexp {
		return b.String() + skipped(m)
	}
	if looksLikeRegexp.MatchString(q.Term) {
		fmt.Fprintf(&b, " search_term is literal, not a regular expression; for that %s.", expression)
	} else if any, err := sb.Search(ctx, env.Query{
		Term: "(?i)" + regexp.QuoteMeta(q.Term), Regexp: true, Path: q.Path, MaxMatches: 1,
	}); err == nil && any.Total > 0 {
		fmt.Fprintf(&b, " A case-insensitive search matches %s: %s.", plural(any.Total, "line"), anyCase)
	}
	b.WriteString(skipped(m))
	return b.String()
}

func skipped(m env.Matches) string {
	var b strings.Builder
	if m.Binary > 0 {
		fmt.Fprintf(&b, "\nNOTE: %s skipped.", plural(m.Binary, "binary file"))
	}
	if m.Unreadable > 0 {
		fmt.Fprintf(&b, "\nNOTE: %s could not be read.", plural(m.Unreadable, "file"))
	}
	return b.String()
}

// found is the matches in one file.
type found struct {
	path  string
	lines []env.Match
}

// renderMatches lists the matches by file. If there are too many, it shows fewer lines of each file, down to none,
// because knowing which files match is worth more than further lines of the first ones.
func renderMatches(term, path string, m env.Matches) string {
	files := group(m.Matches)
	heading := fmt.Sprintf("Found %s of %s in %s", plural(m.Total, "match"), quote(term), name(path))
	single := len(files) == 1 && files[0].path == path
	if !single {
		heading += fmt.Sprintf(", in %s", plural(m.Files, "file"))
	}
	heading += ":\n"
	var body string
	for _, perFile := range []int{mostMatches, 200, 100, 50, 20, 10, 5, 3, 1, 0} {
		var all bool
		body, all = list(files, perFile, single)
		if all {
			break
		}
	}
	out := heading + body
	if m.Total > len(m.Matches) {
		out += fmt.Sprintf("\nNOTE: only the first %s of %s are listed. Narrow the search with a longer search_term "+
			"or a subdirectory as path.", count(len(m.Matches)), plural(m.Total, "match"))
	}
	return out + skipped(m)
}

// list shows up to perFile lines of each file. It returns false if that exceeds the limit.
func list(files []found, perFile int, single bool) (string, bool) {
	var b strings.Builder
	for i, f := range files {
		var part strings.Builder
		if !single {
			fmt.Fprintf(&part, "%s (%s)\n", name(f.path), plural(len(f.lines), "match"))
		}
		shown := min(perFile, len(f.lines))
		for _, m := range f.lines[:shown] {
			fmt.Fprintf(&part, "%6d\t%s\n", m.Line, matchText(m))
		}
		if left := len(f.lines) - shown; left > 0 && shown > 0 {
			fmt.Fprintf(&part, "      \t… %s more\n", count(left))
		}
		if b.Len()+part.Len() > maxChars {
			if perFile > 0 {
				return "", false
			}
			fmt.Fprintf(&b, "… and %s more. Narrow the search with path or a longer "+
				"search_term.\n", plural(len(files)-i, "file"))
			break
		}
		b.WriteString(part.String())
	}
	return strings.TrimSuffix(b.String(), "\n"), true
}

// matchText shows a matching line, and marks where it was cut.
func matchText(m env.Match) string {
	text, _ := visible([]byte(strings.TrimSuffix(string(m.Text), "\r")))
	text = shorten(text, 4*mostMatchLine)
	if m.Cut {
		text = "…" + text + "…"
	}
	return text
}

// group groups matches, which come in path order, by file.
func group(matches []env.Match) []found {
	var files []found
	for _, m := range matches {
		if n := len(files); n == 0 || files[n-1].path != m.Path {
			files = append(files, found{path: m.Path})
		}
		last := &files[len(files)-1]
		last.lines = append(last.lines, m)
	}
	return files
}
