package canary

import (
	"bytes"
	"fmt"
	"strings"
)

// jsToken is a token of JavaScript or TypeScript: a name, a string, a template, a regular expression, a number, or one
// character of punctuation.
type jsToken struct {
	kind     byte // n(ame), s(tring), t(emplate), r(egexp), d(igits), p(unctuation)
	from, to int
}

// jsLex splits a file into tokens, without comments.
func jsLex(data []byte) ([]jsToken, error) {
	var tokens []jsToken
	for at := 0; at < len(data); {
		c, next := data[at], byte(0)
		if at+1 < len(data) {
			next = data[at+1]
		}
		from := at
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			at++
			continue
		case c == '/' && next == '/' || c == '#' && next == '!' && at == 0:
			at = lineEnd(data, at)
			continue
		case c == '/' && next == '*':
			i := strings.Index(string(data[at+2:]), "*/")
			if i < 0 {
				return nil, fmt.Errorf("%w: a comment does not end", errSyntax)
			}
			at += i + 4
			continue
		case c == '"' || c == '\'':
			for at++; at < len(data) && data[at] != c && data[at] != '\n'; at++ {
				if data[at] == '\\' {
					at++
				}
			}
			at++
			tokens = append(tokens, jsToken{'s', from, min(at, len(data))})
		case c == '`':
			end, err := jsTemplate(data, at)
			if err != nil {
				return nil, err
			}
			at = end
			tokens = append(tokens, jsToken{'t', from, at})
		case '0' <= c && c <= '9':
			for at < len(data) && (wordByte(data[at]) || data[at] == '.') {
				at++
			}
			tokens = append(tokens, jsToken{'d', from, at})
		case wordByte(c) || c == '$' || c == '#' || c == '@':
			for at++; at < len(data) && (wordByte(data[at]) || data[at] == '$'); {
				at++
			}
			tokens = append(tokens, jsToken{'n', from, at})
		case c == '/' && jsExpects(data, tokens):
			if end := jsRegexp(data, at); end > 0 {
				at = end
				tokens = append(tokens, jsToken{'r', from, at})
				continue
			}
			fallthrough
		default:
			at++
			tokens = append(tokens, jsToken{'p', from, at})
		}
	}
	return tokens, nil
}

func lineEnd(data []byte, at int) int {
	if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(data)
}

// jsTemplate returns the offset after a template literal.
func jsTemplate(data []byte, at int) (int, error) {
	for at++; at < len(data); at++ {
		switch data[at] {
		case '\\':
			at++
		case '`':
			return at + 1, nil
		case '$':
			if at+1 == len(data) || data[at+1] != '{' {
				continue
			}
			depth := 0
			for at++; at < len(data); at++ {
				if data[at] == '`' {
					end, err := jsTemplate(data, at)
					if err != nil {
						return 0, err
					}
					at = end - 1
				}
				if data[at] == '{' {
					depth++
				}
				if data[at] == '}' {
					if depth--; depth == 0 {
						break
					}
				}
			}
		}
	}
	return 0, fmt.Errorf("%w: a template does not end", errSyntax)
}

// jsExpects reports whether an expression must follow the tokens, so that a slash begins a regular expression.
func jsExpects(data []byte, tokens []jsToken) bool {
	if len(tokens) == 0 {
		return true
	}
	last := tokens[len(tokens)-1]
	text := string(data[last.from:last.to])
	switch last.kind {
	case 'p':
		return !strings.Contains(")]}", text)
	case 'n':
		return text == "return" || text == "typeof" || text == "case" || text == "in" || text == "of" || text == "await"
	}
	return false
}

// jsRegexp returns the offset after a regular expression; 0 if none begins here.
func jsRegexp(data []byte, at int) int {
	class := false
	for i := at + 1; i < len(data) && data[i] != '\n'; i++ {
		switch data[i] {
		case '\\':
			i++
		case '[':
			class = true
		case ']':
			class = false
		case '/':
			if !class {
				for i++; i < len(data) && wordByte(data[i]); {
					i++
				}
				return i
			}
		}
	}
	return 0
}
