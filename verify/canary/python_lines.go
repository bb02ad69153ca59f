package canary

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// pyLine is a logical line: a statement, or the first line of a block.
type pyLine struct {
	start, end int // end is after the line feed
	indent     int // columns
	text       string
}

var errSyntax = errors.New("it is not valid")

// pyLines splits a file into logical lines, leaving out blank lines and comments.
func pyLines(data []byte) ([]pyLine, error) {
	var lines []pyLine
	for at := 0; at < len(data); {
		start, indent := at, 0
	indentation:
		for ; at < len(data); at++ {
			switch data[at] {
			case ' ':
				indent++
			case '\t':
				indent += 8 - indent%8
			case '\f':
				indent = 0
			default:
				break indentation
			}
		}
		if at == len(data) {
			break
		}
		if c := data[at]; c == '#' || c == '\n' || c == '\r' {
			at = lineEnd(data, at)
			continue
		}
		end, err := pyStatement(data, at)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", bytes.Count(data[:start], []byte("\n"))+1, err)
		}
		lines = append(lines, pyLine{start, end, indent, string(data[at:end])})
		at = end
	}
	return lines, nil
}

func lineEnd(data []byte, at int) int {
	if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(data)
}

// pyStatement returns the end of the logical line that begins at an offset.
func pyStatement(data []byte, at int) (end int, err error) {
	depth := 0
	for at < len(data) {
		switch c := data[at]; {
		case c == '\n' && depth == 0:
			return at + 1, nil
		case c == '#':
			if at = lineEnd(data, at); depth == 0 {
				return at, nil
			}
			continue
		case c == '\\':
			at++
			if at < len(data) && data[at] == '\r' {
				at++
			}
		case c == '"' || c == '\'':
			if at, err = pyString(data, at); err != nil {
				return 0, err
			}
			continue
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case strings.IndexByte(")]}", c) >= 0:
			if depth--; depth < 0 {
				return 0, fmt.Errorf("%w: a bracket is closed that was not opened", errSyntax)
			}
		}
		at++
	}
	if depth > 0 {
		return 0, fmt.Errorf("%w: a bracket is not closed", errSyntax)
	}
	return len(data), nil
}

// pyString returns the offset after the string literal whose first quote is at the given offset.
func pyString(data []byte, at int) (end int, err error) {
	quote := data[at : at+1]
	if long := bytes.Repeat(quote, 3); bytes.HasPrefix(data[at:], long) {
		quote = long
	}
	for i := at + len(quote); i < len(data); i++ {
		switch {
		case data[i] == '\\':
			i++
		case data[i] == '\n' && len(quote) == 1:
			return 0, fmt.Errorf("%w: a string does not end on its line", errSyntax)
		case bytes.HasPrefix(data[i:], quote):
			return i + len(quote), nil
		}
	}
	return 0, fmt.Errorf("%w: a string does not end", errSyntax)
}

// splitTop splits an expression at separators outside of brackets and strings.
func splitTop(text, separator string) []string {
	var parts []string
	data, depth, last := []byte(text), 0, 0
	for at := 0; at < len(data); {
		switch c := data[at]; {
		case c == '"' || c == '\'':
			end, err := pyString(data, at)
			if err != nil {
				return []string{text}
			}
			at = end
			continue
		case c == '#':
			at = lineEnd(data, at)
			continue
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case strings.IndexByte(")]}", c) >= 0:
			depth--
		case depth == 0 && strings.HasPrefix(text[at:], separator):
			parts = append(parts, text[last:at])
			at += len(separator)
			last = at
			continue
		}
		at++
	}
	return append(parts, text[last:])
}

// maskTop blanks out everything in brackets, strings and comments, so that the rest can be searched. The length does
// not change.
func maskTop(text string) string {
	data, out, depth := []byte(text), []byte(text), 0
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			out[i] = ' '
		}
	}
	for at := 0; at < len(data); {
		switch c := data[at]; {
		case c == '"' || c == '\'':
			end, err := pyString(data, at)
			if err != nil {
				end = len(data)
			}
			blank(at, end)
			at = end
			continue
		case c == '#':
			end := lineEnd(data, at)
			blank(at, end)
			at = end
			continue
		case strings.IndexByte("([{", c) >= 0:
			depth++
			blank(at, at+1)
		case strings.IndexByte(")]}", c) >= 0:
			depth--
			blank(at, at+1)
		case depth > 0:
			blank(at, at+1)
		}
		at++
	}
	return string(out)
}

// bracketed reports whether an expression begins with a bracket that its last character closes.
func bracketed(expr string) bool {
	if expr == "" || strings.IndexByte("([{", expr[0]) < 0 {
		return false
	}
	data, depth := []byte(expr), 0
	for at := 0; at < len(data); at++ {
		switch c := data[at]; {
		case c == '"' || c == '\'':
			end, err := pyString(data, at)
			if err != nil {
				return false
			}
			at = end - 1
		case c == '#':
			at = lineEnd(data, at) - 1
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case strings.IndexByte(")]}", c) >= 0:
			if depth--; depth == 0 {
				return at == len(data)-1
			}
		}
	}
	return false
}
