package telltale

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// pythonTokens splits a Python source into tokens, without comments. A logical line ends with a newline token, whose
// text is a semicolon if the line ends with one. Invalid sources are split as well.
func pythonTokens(source string) []token {
	l := pythonLexer{source: source, line: 1, fresh: true}
	for l.at < len(l.source) {
		l.next()
	}
	l.end()
	return l.tokens
}

type pythonLexer struct {
	source string
	at     int
	line   int
	start  int // start of the physical line
	depth  int // of brackets: lines do not end inside them
	fresh  bool
	tokens []token
}

func (l *pythonLexer) emit(kind tokenKind, text string, at, line int) {
	l.tokens = append(l.tokens, token{kind, text, line, at - l.start})
	l.fresh = false
}

func (l *pythonLexer) end() {
	if !l.fresh {
		l.emit(newline, "", l.at, l.line)
		l.fresh = true
	}
}

func (l *pythonLexer) next() {
	c := l.source[l.at]
	switch {
	case c == '\n':
		if l.depth == 0 {
			l.end()
		}
		l.at++
		l.line++
		l.start = l.at
	case c == ' ' || c == '\t' || c == '\r' || c == '\f':
		l.at++
	case c == '\\':
		if l.at++; strings.HasPrefix(l.source[l.at:], "\r") {
			l.at++
		}
		if strings.HasPrefix(l.source[l.at:], "\n") {
			l.at++
			l.line++
			l.start = l.at
		}
	case c == '#':
		if n := strings.IndexByte(l.source[l.at:], '\n'); n >= 0 {
			l.at += n
		} else {
			l.at = len(l.source)
		}
	case isLetter(c):
		l.word()
	case '0' <= c && c <= '9':
		from := l.at
		for l.at < len(l.source) && (isLetter(l.source[l.at]) || isDigit(l.source[l.at]) || l.source[l.at] == '.') {
			l.at++
		}
		l.emit(number, l.source[from:l.at], from, l.line)
	case c == '"' || c == '\'':
		l.quoted(l.at, "")
	default:
		l.sign()
	}
}

func isLetter(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= utf8.RuneSelf
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// word reads a name or a string with a prefix.
func (l *pythonLexer) word() {
	from := l.at
	for l.at < len(l.source) && (isLetter(l.source[l.at]) || isDigit(l.source[l.at])) {
		l.at++
	}
	word := l.source[from:l.at]
	if l.at < len(l.source) && (l.source[l.at] == '"' || l.source[l.at] == '\'') && len(word) <= 2 &&
		strings.Trim(word, "rRbBuUfFtT") == "" {
		l.quoted(from, strings.ToLower(word))
		return
	}
	l.emit(name, word, from, l.line)
}

// quoted reads a string; one that is not closed ends with its line.
func (l *pythonLexer) quoted(from int, prefix string) {
	line := l.line
	quote := l.source[l.at : l.at+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(l.source[l.at:], triple) {
		quote = triple
	}
	l.at += len(quote)
	body := l.at
	column := from - l.start
	for l.at < len(l.source) && !strings.HasPrefix(l.source[l.at:], quote) {
		if l.source[l.at] == '\\' && l.at+1 < len(l.source) {
			l.at++
		}
		if l.source[l.at] == '\n' {
			if len(quote) == 1 && l.source[l.at-1] != '\\' && !strings.HasSuffix(l.source[body:l.at], "\\\r") {
				break
			}
			l.line++
			l.start = l.at + 1
		}
		l.at++
	}
	value := l.source[body:min(l.at, len(l.source))]
	if strings.HasPrefix(l.source[min(l.at, len(l.source)):], quote) {
		l.at += len(quote)
	}
	if !strings.Contains(prefix, "r") {
		value = unescaped(value)
	}
	l.tokens = append(l.tokens, token{text, value, line, column})
	l.fresh = false
}

func (l *pythonLexer) sign() {
	from := l.at
	n := 1
	for _, long := range []string{"**=", "//=", ">>=", "<<=", "..."} {
		if strings.HasPrefix(l.source[from:], long) {
			n = 3
		}
	}
	if n == 1 {
		const long = "== != <= >= += -= *= /= %= |= &= ^= @= := -> ** // "
		if rest := l.source[from:]; len(rest) > 1 && strings.Contains(long, rest[:2]+" ") && rest[1] != ' ' {
			n = 2
		}
	}
	l.at += n
	s := l.source[from:l.at]
	switch s {
	case "(", "[", "{":
		l.depth++
	case ")", "]", "}":
		l.depth = max(l.depth-1, 0)
	case ";":
		if l.depth == 0 {
			l.emit(newline, s, from, l.line)
			l.fresh = true
			return
		}
	}
	l.emit(sign, s, from, l.line)
}

// unescaped replaces the escape sequences that Python and JavaScript share, and keeps others.
func unescaped(s string) string {
	if !strings.Contains(s, "\\") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		digits := 0
		switch s[i] {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case '\n':
		case '\\', '\'', '"', '`':
			b.WriteByte(s[i])
		case 'x':
			digits = 2
		case 'u':
			digits = 4
		case 'U':
			digits = 8
		default:
			b.WriteString(s[i-1 : i+1])
		}
		if digits == 0 {
			continue
		}
		if n, err := strconv.ParseUint(s[i+1:min(i+1+digits, len(s))], 16, 32); err == nil && i+digits < len(s) {
			b.WriteRune(rune(n))
			i += digits
		} else {
			b.WriteByte('\\')
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
