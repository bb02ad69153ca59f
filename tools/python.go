package tools

import (
	"fmt"
	"regexp"
	"strings"

	"deepswe/env/python"
)

// span is a range of lines from 1, both ends included.
type span struct{ first, last int }

func (s span) String() string {
	if s.first == s.last {
		return fmt.Sprintf("line %d", s.first)
	}
	return fmt.Sprintf("lines %d-%d", s.first, s.last)
}

// What a condensed view leaves out: bodies of functions with at least three lines, and docstrings of classes with
// at least four.
const (
	shortestBody      = 3
	shortestDocstring = 4
)

// The first words of definitions.
var (
	definition = regexp.MustCompile(`^(?:async[ \t]+)?def[ \t]+[\pL_]`)
	class      = regexp.MustCompile(`^class[ \t]+[\pL_]`)
)

// pythonFolds returns what a condensed view of Python source leaves out, in order and without overlap. It considers
// only the layout.
func pythonFolds(src []byte) ([]span, error) {
	lines, err := python.Lines(src)
	if err != nil {
		return nil, err
	}
	if err := checkIndentation(lines); err != nil {
		return nil, err
	}
	var folds []span
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		body := i + 1
		if body == len(lines) || lines[body].Indent <= l.Indent {
			continue
		}
		switch {
		case definition.MatchString(l.Text):
			end := body
			for end+1 < len(lines) && lines[end+1].Indent > l.Indent {
				end++
			}
			// Definitions inside a folded body are folded with it.
			if fold := (span{lines[body].First, lines[end].Last}); fold.last-fold.first+1 >= shortestBody {
				folds = append(folds, fold)
				i = end
			}
		case class.MatchString(l.Text) && isString(lines[body].Text):
			if fold := (span{lines[body].First, lines[body].Last}); fold.last-fold.first+1 >= shortestDocstring {
				folds = append(folds, fold)
			}
		}
	}
	return folds, nil
}

// isString reports whether a line consists of a string literal, or of several.
func isString(text string) bool {
	if !literal.MatchString(text) {
		return false
	}
	for at := range python.Code(text) {
		if strings.IndexByte("rbfutRBFUT \t\f\r\n\\#", text[at]) < 0 {
			return false
		}
	}
	return true
}

var literal = regexp.MustCompile(`^[rbfutRBFUT]{0,2}["']`)

// checkIndentation returns ErrSyntax for an indented block without a colon before it, and for a dedent to a
// column at which no block starts.
func checkIndentation(lines []python.Line) error {
	var open []int
	for i, l := range lines {
		if i == 0 || l.Indent > lines[i-1].Indent {
			if i > 0 && !lines[i-1].Opens || i == 0 && l.Indent > 0 {
				return python.ErrSyntax
			}
			open = append(open, l.Indent)
			continue
		}
		for open[len(open)-1] > l.Indent {
			open = open[:len(open)-1]
		}
		if open[len(open)-1] != l.Indent {
			return python.ErrSyntax
		}
	}
	return nil
}
