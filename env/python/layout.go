// Package python reads the layout of Python source (strings, comments, brackets, continued lines, indentation), which
// is the same in all versions of Python.
package python

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strings"
)

// ErrSyntax reports that a text cannot be Python, because its brackets, strings or indentation are inconsistent.
var ErrSyntax = errors.New("it is not valid")

// Line is a logical line: one line, or several joined by brackets, a string or a backslash. Blank lines and lines with
// only a comment are not part of any.
type Line struct {
	Start, End  int    // offsets; a line break belongs to the line
	First, Last int    // numbers of its lines, from 1
	Indent      int    // in columns; tabs advance to a multiple of eight
	Text        string // without the indentation
	Opens       bool   // it ends with a colon
}

const (
	opening       = "([{"
	closing       = ")]}"
	byteOrderMark = "\ufeff"
)

// Lines splits source into logical lines.
func Lines(src []byte) ([]Line, error) {
	var lines []Line
	number := 1
	for at := len(src) - len(bytes.TrimPrefix(src, []byte(byteOrderMark))); at < len(src); {
		l := Line{Start: at, First: number, Last: number}
		at = l.indent(src)
		code := at < len(src) && !bytes.ContainsRune([]byte("#\r\n"), rune(src[at]))
		if err := l.statement(src, at); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		l.Text = string(src[at:l.End])
		at = l.End
		number += strings.Count(l.Text, "\n")
		l.Last += strings.Count(strings.TrimSuffix(l.Text, "\n"), "\n")
		if code {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// indent measures the indentation, and returns the offset after it.
func (l *Line) indent(src []byte) int {
	for at := l.Start; at < len(src); at++ {
		switch src[at] {
		case ' ':
			l.Indent++
		case '\t':
			l.Indent += 8 - l.Indent%8
		case '\f':
			l.Indent = 0
		default:
			return at
		}
	}
	return len(src)
}

// statement finds the end of the line whose text begins at an offset.
func (l *Line) statement(src []byte, at int) error {
	var open []byte // the brackets that must be closed
	for at < len(src) {
		switch c := src[at]; {
		case c == '\n' && len(open) == 0:
			l.End = at + 1
			return nil
		case strings.IndexByte(" \t\f\r\n", c) >= 0:
			at++
		case c == '#':
			at = commentEnd(src, at)
		case c == '\\':
			rest := bytes.TrimPrefix(src[at+1:], []byte("\r"))
			if !bytes.HasPrefix(rest, []byte("\n")) {
				return fmt.Errorf("%w: something follows a backslash", ErrSyntax)
			}
			at = len(src) - len(rest) + 1
		case c == '"' || c == '\'':
			var err error
			if at, err = stringEnd(src, at); err != nil {
				return err
			}
			l.Opens = false
		default:
			at++
			if i := strings.IndexByte(opening, c); i >= 0 {
				open = append(open, closing[i])
			} else if strings.IndexByte(closing, c) >= 0 {
				if len(open) == 0 {
					return fmt.Errorf("%w: a bracket is closed that was not opened", ErrSyntax)
				} else if open[len(open)-1] != c {
					return fmt.Errorf("%w: the brackets do not match", ErrSyntax)
				}
				open = open[:len(open)-1]
			}
			l.Opens = c == ':' && len(open) == 0
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%w: a bracket is not closed", ErrSyntax)
	}
	l.End = len(src)
	return nil
}

// commentEnd returns the offset of the line break after a comment.
func commentEnd(src []byte, at int) int {
	if i := bytes.IndexByte(src[at:], '\n'); i >= 0 {
		return at + i
	}
	return len(src)
}

// stringEnd returns the offset after the string literal whose first quote is at an offset.
func stringEnd(src []byte, at int) (int, error) {
	quote := src[at : at+1]
	if long := bytes.Repeat(quote, 3); bytes.HasPrefix(src[at:], long) {
		quote = long
	}
	for i := at + len(quote); i < len(src); i++ {
		switch {
		case bytes.HasPrefix(src[i:], []byte("\\\r\n")):
			i += 2
		case src[i] == '\\': // in raw strings too, a quote after a backslash does not end the string
			i++
		case src[i] == '\n' && len(quote) == 1:
			return 0, fmt.Errorf("%w: a string does not end on its line", ErrSyntax)
		case bytes.HasPrefix(src[i:], quote):
			return i + len(quote), nil
		}
	}
	return 0, fmt.Errorf("%w: a string does not end", ErrSyntax)
}

// Code yields the offsets of a text that are outside of strings and comments, each with the number of brackets around
// it; a bracket is inside itself. Of a comment, it yields the "#". It stops at a string without an end.
func Code(text string) iter.Seq2[int, int] {
	return func(yield func(at, depth int) bool) {
		src, depth := []byte(text), 0
		for at := 0; at < len(src); {
			around, next := depth, at+1
			switch c := src[at]; {
			case c == '"' || c == '\'':
				var err error
				if at, err = stringEnd(src, at); err != nil {
					return
				}
				continue
			case c == '#':
				next = commentEnd(src, at)
			case strings.IndexByte(opening, c) >= 0:
				depth++
				around = depth
			case strings.IndexByte(closing, c) >= 0:
				depth--
			}
			if !yield(at, around) {
				return
			}
			at = next
		}
	}
}
