package jinja

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// token is a piece of a template. The kind of an operator, and of a tag's beginning and end, is its text.
type token struct {
	kind, text string
	line       int
}

// The other kinds of tokens.
const (
	kindData   = "data"
	kindName   = "name"
	kindString = "string"
	kindInt    = "integer"
	kindFloat  = "float"
	kindEnd    = "end of template"

	blockBegin, blockEnd       = "{%", "%}"
	variableBegin, variableEnd = "{{", "}}"
)

var (
	tagBegin   = regexp.MustCompile(`\{[{%#]`)
	rawBegin   = regexp.MustCompile(`^\{%[-+]?\s*raw\s*-?%\}`)
	rawEnd     = regexp.MustCompile(`\{%([-+]?)\s*endraw\s*([-+]?)%\}`)
	commentEnd = regexp.MustCompile(`[-+]?#\}`)
	tagEnds    = map[string]*regexp.Regexp{
		blockBegin: regexp.MustCompile(`^[-+]?%\}`), variableBegin: regexp.MustCompile(`^-?\}\}`),
	}
	tagTokens = []struct {
		kind    string
		pattern *regexp.Regexp
	}{
		{kindFloat, regexp.MustCompile(`^\d+((\.\d+)?[eE][+-]?\d+|\.\d+)`)},
		{kindInt, regexp.MustCompile(`^(0|[1-9]\d*)`)},
		{kindName, regexp.MustCompile(`^[A-Za-z_][A-Za-z_0-9]*`)},
		{kindString, regexp.MustCompile(`(?s)^('[^'\\]*(\\.[^'\\]*)*'|"[^"\\]*(\\.[^"\\]*)*")`)},
		{"", regexp.MustCompile(`^(//|\*\*|==|!=|>=|<=|[-+/*%~\[\](){}><=.:|,;])`)},
	}
)

// lexer cuts a template into tokens, as jinja2's does with trim_blocks and lstrip_blocks.
type lexer struct {
	rest   string
	line   int
	begun  bool // what was read last ends with a line break
	tokens []token
}

func lex(source string) []token {
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	if !utf8.ValidString(source) {
		refuse("the template is not UTF-8")
	}
	l := &lexer{rest: strings.TrimSuffix(source, "\n"), line: 1, begun: true}
	for l.rest != "" {
		l.text()
	}
	l.add(kindEnd, "")
	return l.tokens
}

func (l *lexer) add(kind, text string) { l.tokens = append(l.tokens, token{kind, text, l.line}) }

func (l *lexer) skip(n int) {
	if n > 0 {
		l.line += strings.Count(l.rest[:n], "\n")
		l.begun = l.rest[n-1] == '\n'
		l.rest = l.rest[n:]
	}
}

// text reads up to a tag, and the tag.
func (l *lexer) text() {
	found := tagBegin.FindStringIndex(l.rest)
	if found == nil {
		l.add(kindData, l.rest)
		l.skip(len(l.rest))
		return
	}
	at := found[0]
	tag := l.rest[at : at+2]
	sign := l.rest[at+2 : min(at+3, len(l.rest))]
	l.data(l.rest[:at], sign, tag == variableBegin)
	l.skip(at)
	if begin := rawBegin.FindString(l.rest); begin != "" {
		l.skip(len(begin))
		l.raw(strings.HasSuffix(begin, "-%}"))
		return
	}
	l.skip(2)
	if sign == "-" || sign == "+" {
		l.skip(1)
	}
	if tag == "{#" {
		end := commentEnd.FindStringIndex(l.rest)
		if end == nil {
			refuse("line %d: a comment without its end", l.line)
		}
		sign := l.rest[end[0]]
		l.skip(end[1])
		l.strip(sign == '-', sign == '#')
		return
	}
	l.add(tag, "")
	l.inside(tag)
}

// raw reads a block in which tags are text. A line break after its beginning stays.
func (l *lexer) raw(minus bool) {
	l.strip(minus, false)
	end := rawEnd.FindStringSubmatchIndex(l.rest)
	if end == nil {
		refuse("line %d: a raw block without its end", l.line)
	}
	sign := l.rest[end[4]:end[5]]
	l.data(l.rest[:end[0]], l.rest[end[2]:end[3]], false)
	l.skip(end[1])
	l.strip(sign == "-", sign == "")
}

// data adds the text before a tag, without the spaces that the tag's sign or lstrip_blocks removes.
func (l *lexer) data(text, sign string, variable bool) {
	if sign == "-" {
		text = strings.TrimRightFunc(text, isSpace)
	} else if sign != "+" && !variable {
		at := strings.LastIndexByte(text, '\n') + 1
		if (at > 0 || l.begun) && strings.TrimLeftFunc(text[at:], isSpace) == "" {
			text = text[:at]
		}
	}
	if text != "" {
		l.add(kindData, text)
	}
}

// strip skips what a tag's end removes: all spaces after a minus, or else one line break if trim is set.
func (l *lexer) strip(minus, trim bool) {
	if minus {
		l.skip(len(l.rest) - len(strings.TrimLeftFunc(l.rest, isSpace)))
	} else if trim && strings.HasPrefix(l.rest, "\n") {
		l.skip(1)
	}
}

// inside reads the tokens of a tag up to its end. A tag does not end within brackets.
func (l *lexer) inside(tag string) {
	var open []string
	for {
		l.skip(len(l.rest) - len(strings.TrimLeftFunc(l.rest, isSpace)))
		if l.rest == "" {
			return // the parser reports the missing end
		}
		if end := tagEnds[tag].FindString(l.rest); end != "" && len(open) == 0 {
			l.add(end[len(end)-2:], "")
			l.skip(len(end))
			l.strip(end[0] == '-', end[0] == '%')
			return
		}
		kind, text := l.token()
		switch kind {
		case "":
			open = l.balance(open, text)
			l.add(text, "")
		case kindString:
			l.add(kind, l.unescape(text[1:len(text)-1]))
		default:
			l.add(kind, text)
		}
		l.skip(len(text))
	}
}

// token returns what the rest begins with. An operator has no kind.
func (l *lexer) token() (kind, text string) {
	for _, t := range tagTokens {
		after := l.tokens[len(l.tokens)-1].kind
		if text := t.pattern.FindString(l.rest); text != "" && (t.kind != kindFloat || after != ".") {
			return t.kind, text
		}
	}
	refuse("line %d: %q in a tag", l.line, l.rest[:min(len(l.rest), 10)])
	return "", ""
}

func (l *lexer) balance(open []string, op string) []string {
	if at := strings.Index("([{", op); at >= 0 {
		return append(open, ")]}"[at:at+1])
	} else if !strings.Contains(")]}", op) {
		return open
	}
	if len(open) == 0 || open[len(open)-1] != op {
		refuse("line %d: unexpected %s", l.line, op)
	}
	return open[:len(open)-1]
}

// unescape reads a string literal as Python's codec unicode-escape does.
func (l *lexer) unescape(s string) string {
	var b strings.Builder
	for s != "" {
		at := strings.IndexByte(s, '\\')
		if at < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:at])
		c := s[at+1]
		s = s[at+2:]
		if digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]; digits > 0 {
			r, err := strconv.ParseUint(s[:min(digits, len(s))], 16, 32)
			if len(s) < digits || err != nil || !utf8.ValidRune(rune(r)) {
				refuse("line %d: \\%c without a character's number", l.line, c)
			}
			b.WriteRune(rune(r))
			s = s[digits:]
			continue
		}
		switch i := strings.IndexByte("\n\\'\"abfnrtv", c); {
		case i == 0:
		case i > 0:
			b.WriteByte("\n\\'\"\a\b\f\n\r\t\v"[i])
		case c == 'N' || c >= '0' && c <= '7' || c >= utf8.RuneSelf:
			refuse("line %d: the escape \\%c", l.line, c)
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String()
}
