package telltale

import "strings"

// scriptTokens splits a JavaScript or TypeScript source into tokens, without comments and the content of regular
// expressions. A template becomes its texts, with each inserted expression in parentheses between them.
func scriptTokens(source string) []token {
	l := scriptLexer{source: source, line: 1}
	for l.at < len(l.source) {
		l.next()
	}
	return l.tokens
}

type scriptLexer struct {
	source string
	at     int
	line   int
	tokens []token
	// braces counts the open braces in each template insertion that is being read.
	braces []int
	// before are the tokens before each open parenthesis.
	before []token
	// head is set after the parenthesis that closes the head of a statement, as in "if (x)": a regular expression may
	// follow.
	head bool
	// wasted counts the bytes that were read in search of the end of a regular expression, in vain.
	wasted int
}

func (l *scriptLexer) emit(kind tokenKind, text string, line int) {
	l.tokens = append(l.tokens, token{kind: kind, text: text, line: line})
}

func (l *scriptLexer) rest(prefix string) bool { return strings.HasPrefix(l.source[l.at:], prefix) }

// until skips to after the next occurrence of end, or to the end of the source.
func (l *scriptLexer) until(end string) {
	n := strings.Index(l.source[l.at:], end)
	if n < 0 {
		n = len(l.source) - l.at
	} else {
		n += len(end)
	}
	l.line += strings.Count(l.source[l.at:l.at+n], "\n")
	l.at += n
}

func (l *scriptLexer) next() {
	c := l.source[l.at]
	switch {
	case c == '\n':
		l.line++
		l.at++
	case c <= ' ':
		l.at++
	case l.rest("//"), l.at == 0 && l.rest("#!"):
		l.until("\n")
	case l.rest("/*"):
		l.at += 2
		l.until("*/")
	case isLetter(c) || c == '$' || c == '#':
		from := l.at
		for l.at++; l.at < len(l.source) && (isLetter(l.source[l.at]) || isDigit(l.source[l.at]) || l.source[l.at] == '$'); {
			l.at++
		}
		l.emit(name, l.source[from:l.at], l.line)
	case isDigit(c):
		from := l.at
		for l.at < len(l.source) && (isLetter(l.source[l.at]) || isDigit(l.source[l.at]) || l.source[l.at] == '.') {
			l.at++
		}
		l.emit(number, l.source[from:l.at], l.line)
	case c == '"' || c == '\'':
		l.quoted(c)
	case c == '`':
		l.at++
		l.template()
	case c == '/' && l.regular():
	default:
		l.sign(c)
	}
}

// quoted reads a string; one that is not closed ends with its line.
func (l *scriptLexer) quoted(quote byte) {
	line := l.line
	l.at++
	from := l.at
	for l.at < len(l.source) && l.source[l.at] != quote && l.source[l.at] != '\n' {
		if l.source[l.at] == '\\' && l.at+1 < len(l.source) {
			if l.at++; l.source[l.at] == '\n' {
				l.line++
			}
		}
		l.at++
	}
	l.emit(text, unescaped(l.source[from:min(l.at, len(l.source))]), line)
	if l.at < len(l.source) && l.source[l.at] == quote {
		l.at++
	}
}

// template reads the text of a template up to its end or the next insertion.
func (l *scriptLexer) template() {
	line, from := l.line, l.at
	for l.at < len(l.source) && l.source[l.at] != '`' && !l.rest("${") {
		if l.source[l.at] == '\\' && l.at+1 < len(l.source) {
			l.at++
		}
		if l.source[l.at] == '\n' {
			l.line++
		}
		l.at++
	}
	l.emit(text, unescaped(l.source[from:min(l.at, len(l.source))]), line)
	switch {
	case l.at >= len(l.source):
	case l.source[l.at] == '`':
		l.at++
	default:
		l.at += 2
		l.emit(sign, "(", l.line)
		l.before = append(l.before, token{kind: sign})
		l.braces = append(l.braces, 0)
	}
}

// regular reads a regular expression if there can be one here, and reports whether there was one.
func (l *scriptLexer) regular() bool {
	if n := len(l.tokens); n > 0 {
		switch t := l.tokens[n-1]; t.kind {
		case number, text:
			return false
		case name:
			if !beforeValue[t.text] {
				return false
			}
		case sign:
			if t.text == ")" && !l.head || t.text == "]" || t.text == "}" {
				return false
			}
		}
	}
	if l.wasted > len(l.source) {
		return false // most slashes so far were not regular expressions
	}
	class := false
	i := l.at + 1
	for ; i < len(l.source) && l.source[i] != '\n'; i++ {
		switch l.source[i] {
		case '\\':
			i++
		case '[':
			class = true
		case ']':
			class = false
		case '/':
			if !class {
				l.at = i + 1
				l.emit(number, "/", l.line)
				return true
			}
		}
	}
	l.wasted += i - l.at
	return false
}

func (l *scriptLexer) sign(c byte) {
	s := string(c)
	const long = " === !== **= <<= >>= ... ??= ||= &&= >>> == != => += -= *= /= %= |= &= ^= ?. ?? || && ++ -- <= >= ** "
	for _, n := range []int{3, 2} {
		if l.at+n <= len(l.source) && strings.Contains(long, " "+l.source[l.at:l.at+n]+" ") {
			s = l.source[l.at : l.at+n]
			break
		}
	}
	l.at += len(s)
	l.head = false
	switch s {
	case "(":
		var last token
		if n := len(l.tokens); n > 0 {
			last = l.tokens[n-1]
		}
		l.before = append(l.before, last)
	case ")":
		if n := len(l.before); n > 0 {
			t := l.before[n-1]
			l.head = t.kind == name && (t.text == "if" || t.text == "while" || t.text == "for" || t.text == "with")
			l.before = l.before[:n-1]
		}
	case "{":
		if n := len(l.braces); n > 0 {
			l.braces[n-1]++
		}
	case "}":
		n := len(l.braces)
		if n > 0 && l.braces[n-1] == 0 {
			l.braces = l.braces[:n-1]
			if len(l.before) > 0 {
				l.before = l.before[:len(l.before)-1]
			}
			l.emit(sign, ")", l.line)
			l.template()
			return
		}
		if n > 0 {
			l.braces[n-1]--
		}
	}
	l.emit(sign, s, l.line)
}
