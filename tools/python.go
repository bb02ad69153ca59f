package tools

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
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

// errNotPython reports that a text cannot be Python, because its brackets, strings or indentation are inconsistent.
var errNotPython = errors.New("not Python")

// pythonFolds returns what a condensed view of Python source leaves out, in order and without overlap. It considers
// only the layout (strings, comments, brackets, continued lines, indentation), which is the same in all versions of
// Python.
func pythonFolds(src []byte) ([]span, error) {
	lines, err := logicalLines(src)
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
		if body == len(lines) || lines[body].indent <= l.indent {
			continue
		}
		switch {
		case l.is("def"):
			end := body
			for end+1 < len(lines) && lines[end+1].indent > l.indent {
				end++
			}
			// Definitions inside a folded body are folded with it.
			if fold := (span{lines[body].first, lines[end].last}); fold.last-fold.first+1 >= shortestBody {
				folds = append(folds, fold)
				i = end
			}
		case l.is("class") && lines[body].onlyString:
			if fold := (span{lines[body].first, lines[body].last}); fold.last-fold.first+1 >= shortestDocstring {
				folds = append(folds, fold)
			}
		}
	}
	return folds, nil
}

// logicalLine is the line of a statement, or several lines joined by brackets, a string or a backslash. Blank lines
// and comment lines are not part of any.
type logicalLine struct {
	span
	indent     int    // in columns; tabs advance to a multiple of eight
	words      string // the first words, up to a character that cannot be in a word
	onlyString bool   // it consists of a string literal
	opens      bool   // it ends with a colon
}

// is reports whether the line starts with the keyword, ignoring async.
func (l logicalLine) is(keyword string) bool {
	words := strings.Fields(l.words)
	if len(words) > 1 && words[0] == "async" {
		words = words[1:]
	}
	return len(words) > 1 && words[0] == keyword
}

// checkIndentation returns errNotPython for an indented block without a colon before it, and for a dedent to a
// column at which no block starts.
func checkIndentation(lines []logicalLine) error {
	var open []int
	for i, l := range lines {
		if i == 0 || l.indent > lines[i-1].indent {
			if i > 0 && !lines[i-1].opens || i == 0 && l.indent > 0 {
				return errNotPython
			}
			open = append(open, l.indent)
			continue
		}
		for open[len(open)-1] > l.indent {
			open = open[:len(open)-1]
		}
		if open[len(open)-1] != l.indent {
			return errNotPython
		}
	}
	return nil
}

// pythonScanner scans Python source text.
type pythonScanner struct {
	src  []byte
	at   int
	line int // line number of src[at], from 1
}

func logicalLines(src []byte) ([]logicalLine, error) {
	s := &pythonScanner{src: bytes.TrimPrefix(src, []byte(byteOrderMark)), line: 1}
	var lines []logicalLine
	for s.at < len(s.src) {
		l, ok, err := s.logicalLine()
		if err != nil {
			return nil, err
		}
		if ok {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// logicalLine reads to the end of the next logical line. It returns false for a line without code.
func (s *pythonScanner) logicalLine() (logicalLine, bool, error) {
	l := logicalLine{indent: s.indentation(), onlyString: true}
	l.first = s.line
	begin := s.at
	var brackets []byte
	code := false
	for s.at < len(s.src) {
		c := s.src[s.at]
		switch {
		case c == '\n' && len(brackets) == 0:
			s.newline()
			return l.finish(s.src[begin:], code, s.line-1), code, nil
		case c == '\n':
			s.newline()
		case c == ' ' || c == '\t' || c == '\f' || c == '\r':
			s.at++
		case c == '#':
			s.comment()
		case c == '\\':
			if !s.continuation() {
				return l, false, errNotPython
			}
		case c == '"' || c == '\'':
			if err := s.str(); err != nil {
				return l, false, err
			}
			code, l.opens = true, false
		default:
			prefix := s.stringPrefix()
			s.at += max(1, prefix)
			if prefix == 0 && !match(&brackets, c) {
				return l, false, errNotPython
			}
			code = true
			l.onlyString = l.onlyString && prefix > 0
			l.opens = c == ':' && len(brackets) == 0
		}
	}
	if len(brackets) > 0 {
		return l, false, errNotPython
	}
	return l.finish(s.src[begin:], code, s.line), code, nil
}

// finish completes a logical line whose text starts at text.
func (l logicalLine) finish(text []byte, code bool, last int) logicalLine {
	l.last = last
	l.onlyString = l.onlyString && code
	end := 0
	for end < min(len(text), 80) && (wordByte(text[end]) || text[end] == ' ' || text[end] == '\t') {
		end++
	}
	l.words = string(text[:end])
	return l
}

func (s *pythonScanner) newline() {
	s.at++
	s.line++
}

// indentation skips white space at the start of a line and returns the resulting column.
func (s *pythonScanner) indentation() int {
	column := 0
	for ; s.at < len(s.src); s.at++ {
		switch s.src[s.at] {
		case ' ':
			column++
		case '\t':
			column = (column/8 + 1) * 8
		case '\f':
			column = 0
		default:
			return column
		}
	}
	return column
}

func (s *pythonScanner) comment() {
	for s.at < len(s.src) && s.src[s.at] != '\n' {
		s.at++
	}
}

// continuation skips a backslash and the end of its line. It returns false if anything else follows.
func (s *pythonScanner) continuation() bool {
	rest := bytes.TrimPrefix(s.src[s.at+1:], []byte("\r"))
	if !bytes.HasPrefix(rest, []byte("\n")) {
		return false
	}
	s.at = len(s.src) - len(rest)
	s.newline()
	return true
}

// stringPrefix returns the length of the letters before a string's quote (r, b, f, u, t and their combinations).
func (s *pythonScanner) stringPrefix() int {
	if s.at > 0 && wordByte(s.src[s.at-1]) {
		return 0
	}
	for n := 0; n <= 2 && s.at+n < len(s.src); n++ {
		switch c := s.src[s.at+n]; {
		case c == '"' || c == '\'':
			return n
		case !bytes.ContainsRune([]byte("rbfutRBFUT"), rune(c)):
			return 0
		}
	}
	return 0
}

func wordByte(c byte) bool {
	return c == '_' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// str skips a string literal, from its first quote to its last.
func (s *pythonScanner) str() error {
	q := s.src[s.at]
	triple := bytes.HasPrefix(s.src[s.at:], []byte{q, q, q})
	if triple {
		s.at += 3
	} else {
		s.at++
	}
	for s.at < len(s.src) {
		switch c := s.src[s.at]; {
		case c == '\\' && s.at+1 < len(s.src):
			// In raw strings too, a quote after a backslash does not end the string.
			s.at++
			if s.src[s.at] == '\r' && s.at+1 < len(s.src) && s.src[s.at+1] == '\n' {
				s.at++
			}
			if s.src[s.at] == '\n' {
				s.line++
			}
			s.at++
		case c == '\n' && !triple:
			return errNotPython
		case c == '\n':
			s.newline()
		case triple && bytes.HasPrefix(s.src[s.at:], []byte{q, q, q}):
			s.at += 3
			return nil
		case !triple && c == q:
			s.at++
			return nil
		default:
			s.at++
		}
	}
	return errNotPython
}

// match maintains the stack of open brackets. It returns false for a bracket that closes none, or the wrong one.
func match(open *[]byte, c byte) bool {
	var opener byte
	switch c {
	case '(', '[', '{':
		*open = append(*open, c)
		return true
	case ')':
		opener = '('
	case ']':
		opener = '['
	case '}':
		opener = '{'
	default:
		return true
	}
	n := len(*open)
	if n == 0 || (*open)[n-1] != opener {
		return false
	}
	*open = (*open)[:n-1]
	return true
}
