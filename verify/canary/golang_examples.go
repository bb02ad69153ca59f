package canary

import (
	"go/ast"
	"strconv"
	"strings"

	"deepswe/env"
)

// goExample is an example of Go that says in its last comment what it prints.
type goExample struct {
	file   *goFile
	decl   *ast.FuncDecl
	output *ast.CommentGroup
}

// goPrints matches how the comment with the output of an example begins.
var goPrints = env.Pattern(`(?i)^//\s*(?:unordered )?output:`)

// output returns the comment that says what a function prints; nil if there is none, or if it is a block comment.
func (f *goFile) output(fn *ast.FuncDecl) (last *ast.CommentGroup) {
	for _, group := range f.parsed.Comments {
		if fn.Body.Lbrace < group.Pos() && group.End() <= fn.Body.Rbrace {
			last = group
		}
	}
	if last == nil || !goPrints().MatchString(last.List[0].Text) {
		return nil
	}
	return last
}

func (e *goExample) name() string { return e.decl.Name.Name }

func (e *goExample) extent() (from, to int) { return e.file.extent(e.decl) }

func (e *goExample) mutations(r *chance) (all []mutation) {
	start, _ := e.extent()
	for i, line := range e.output.List {
		head := len("//")
		if i == 0 {
			head = len(goPrints().FindString(line.Text))
		}
		text := strings.TrimSpace(line.Text[head:])
		from := e.file.offset(line.Pos()) + head + strings.Index(line.Text[head:], text)
		if text != "" {
			all = append(all, replacement(Expectation, strconv.Itoa(from-start), from, from+len(text), otherTexts(text, r)...))
		}
	}
	end := e.file.offset(e.output.End())
	return append(all, replacement(Outright, "end", end, end, "\n\t// and nothing else"))
}

// checks returns a single one: all of what is printed is compared.
func (e *goExample) checks() []check {
	from, to := e.extent()
	return []check{{from: from, to: to}}
}
