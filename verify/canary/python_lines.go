package canary

import (
	"bytes"
	"errors"
	"strings"

	"deepswe/env/python"
)

var errSyntax = errors.New("it is not valid")

// pyCode returns a logical line without surrounding spaces and without the comment at its end.
func pyCode(text string) string {
	for at, depth := range python.Code(text) {
		if text[at] == '#' && depth == 0 {
			return strings.TrimSpace(text[:at])
		}
	}
	return strings.TrimSpace(text)
}

// splitTop splits an expression at separators outside of brackets and strings.
func splitTop(text, separator string) []string {
	var parts []string
	last := 0
	for at, depth := range python.Code(text) {
		if depth == 0 && at >= last && strings.HasPrefix(text[at:], separator) {
			parts = append(parts, text[last:at])
			last = at + len(separator)
		}
	}
	return append(parts, text[last:])
}

// maskTop blanks out everything in brackets, strings and comments, so that the rest can be searched. The length does
// not change.
func maskTop(text string) string {
	out := bytes.Repeat([]byte(" "), len(text))
	for at, depth := range python.Code(text) {
		if depth == 0 && text[at] != '#' {
			out[at] = text[at]
		}
	}
	return string(out)
}

// bracketed reports whether an expression begins with a bracket that its last character closes.
func bracketed(expr string) bool {
	if expr == "" || !strings.ContainsRune("([{", rune(expr[0])) {
		return false
	}
	for at, depth := range python.Code(expr) {
		if depth == 1 && strings.IndexByte(")]}", expr[at]) >= 0 {
			return at == len(expr)-1
		}
	}
	return false
}
