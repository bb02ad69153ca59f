package pages

import (
	"fmt"
	"html/template"
	"path"
	"regexp"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/diff"
)

// A small scanner colours comments, strings, words and numbers: Chroma's lexers would cost every start of the
// program, and with it every sandbox, ten milliseconds.

// The most bytes of a text and of a line that a page shows.
const (
	maxText = 20000
	maxLine = 2000
)

// plain returns a text without colours of a terminal, and with everything that is not shown made visible: control
// characters, and what changes the direction of text.
func plain(s string) string {
	s = string(cli.Visible([]byte(ansi.Strip(shortened(s, maxText)))))
	if !strings.ContainsFunc(s, func(r rune) bool { return r == '\n' }) && len(s) <= maxLine {
		return s
	}
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if r := []rune(l); len(r) > maxLine {
			lines[i] = string(r[:maxLine]) + fmt.Sprintf("… %d more characters", len(r)-maxLine)
		}
	}
	return strings.Join(lines, "\n")
}

// shortened returns the text, without its middle if it has more than most bytes.
func shortened(s string, most int) string {
	if len(s) <= most {
		return s
	}
	head, tail := strings.ToValidUTF8(s[:most/2], ""), strings.ToValidUTF8(s[len(s)-most/2:], "")
	return head + fmt.Sprintf("\n… %d bytes …\n", len(s)-len(head)-len(tail)) + tail
}

// words are the keywords of the languages that patches are mostly written in, in one list: a keyword of another
// language is coloured seldom, and harms nobody.
const words = " and as assert async await break case catch chan class const continue def default defer del do done " +
	"elif else enum except export extends extern false False fi final finally fn for from func function " +
	"global go goto if impl implements import in instanceof interface is lambda let loop map match mod " +
	"mut new nil None nonlocal not null or package pass private protected pub public raise range return " +
	"select self static struct super switch then this throw trait true True try type typeof undefined use " +
	"var void where while with yield "

// tokens matches what is coloured, in this order: comments, strings, numbers, and words.
var tokens = map[string]func() *regexp.Regexp{
	"hash": env.Pattern(`(#.*)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(\b\d[\w.]*)|([A-Za-z_]\w*)`),
	"slash": env.Pattern(`(//.*|/\*.*?\*/)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|` + "`[^`]*`" +
		`)|(\b\d[\w.]*)|([A-Za-z_]\w*)`),
}

// comments names the kind of comments by the ending of a file's name.
var comments = map[string]string{
	".py": "hash", ".sh": "hash", ".rb": "hash", ".yaml": "hash", ".yml": "hash", ".toml": "hash", ".pyi": "hash",
	".go": "slash", ".js": "slash", ".ts": "slash", ".tsx": "slash", ".jsx": "slash", ".rs": "slash", ".c": "slash",
	".h": "slash", ".cc": "slash", ".cpp": "slash", ".java": "slash", ".kt": "slash", ".php": "slash", ".cs": "slash",
}

// code colours a line of a file's text.
func code(name, line string) template.HTML {
	expr := tokens[comments[path.Ext(name)]]
	if expr == nil {
		return template.HTML(template.HTMLEscapeString(line))
	}
	var b strings.Builder
	end := 0
	for _, m := range expr().FindAllStringSubmatchIndex(line, -1) {
		class := ""
		switch text := line[m[0]:m[1]]; {
		case m[2] >= 0:
			class = "kc"
		case m[4] >= 0:
			class = "ks"
		case m[6] >= 0:
			class = "kn"
		case strings.Contains(words, " "+text+" "):
			class = "kw"
		}
		b.WriteString(template.HTMLEscapeString(line[end:m[0]]))
		if end = m[1]; class == "" {
			b.WriteString(template.HTMLEscapeString(line[m[0]:m[1]]))
			continue
		}
		fmt.Fprintf(&b, `<i class="%s">%s</i>`, class, template.HTMLEscapeString(line[m[0]:m[1]]))
	}
	b.WriteString(template.HTMLEscapeString(line[end:]))
	return template.HTML(b.String())
}

// diffLine is a line of a shown diff. Class is add, del, hunk or empty.
type diffLine struct {
	Class string
	Text  template.HTML
}

// fileDiff is what a diff does to a file, for a page.
type fileDiff struct {
	Name           string
	Added, Removed int
	Note           string // instead of lines
	Lines          []diffLine
}

// maxDiffLines is the most lines of a file's diff that a page shows.
const maxDiffLines = 2000

// diffsOf returns the files of a unified diff.
func diffsOf(text string) []fileDiff {
	var all []fileDiff
	for _, f := range diff.Files(text) {
		d := fileDiff{Name: plain(f.Name()), Added: f.Added, Removed: f.Removed}
		switch {
		case f.Binary:
			d.Note = "a binary file"
		case f.New == "":
			d.Note = "removed"
		case f.Old != "" && f.Old != f.New:
			d.Note = "moved from " + plain(f.Old)
		}
		for l := range diff.Lines(f.Text) {
			line := plain(strings.TrimRight(l.Text, "\r\n"))
			switch l.Kind {
			case diff.Hunk, diff.Mark, diff.Broken:
				d.Lines = append(d.Lines, diffLine{"hunk", code("", line)})
			case diff.Added, diff.Removed, diff.Context:
				class := map[diff.Kind]string{diff.Added: "add", diff.Removed: "del"}[l.Kind]
				mark, rest := " ", line
				if line != "" {
					mark, rest = line[:1], line[1:]
				}
				d.Lines = append(d.Lines, diffLine{class, template.HTML(mark) + code(f.Name(), rest)})
			}
			if len(d.Lines) == maxDiffLines {
				d.Lines = append(d.Lines, diffLine{"hunk", "… the rest is in patch.diff"})
				break
			}
		}
		all = append(all, d)
	}
	return all
}

func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
