package mutant

import (
	"bytes"
	"path"
	"strconv"
	"strings"
)

// lexeme is a word, a number, a string, an operator, or a regular expression.
type lexeme struct {
	kind     byte // w, d, s, o or r
	from, to int
	text     string
	depth    int  // of brackets around it; in languages with blocks in braces, without those
	arith    bool // operators are those of arithmetic
}

// language is how a language is read.
type language struct {
	comment  string // begins a comment up to the end of the line
	blocks   bool   // there are comments like /* this */
	quotes   string
	regexps  bool // there are regular expressions like /this/
	kind     languageKind
	keywords map[string]string // words with those that replace them
}

type languageKind byte

const (
	python languageKind = iota
	javascript
	shell
	awk
)

// languageOf returns the language of a file.
func languageOf(name string, data []byte) (language, bool) {
	switch ext := path.Ext(name); {
	case ext == ".py":
		return language{comment: "#", quotes: `"'`, kind: python, keywords: map[string]string{
			"True": "False", "False": "True", "and": "or", "or": "and",
		}}, true
	case strings.Contains(" .js .cjs .mjs .jsx .ts .cts .mts .tsx ", " "+ext+" ") && ext != "":
		return language{comment: "//", blocks: true, quotes: "\"'`", regexps: true, kind: javascript,
			keywords: map[string]string{"true": "false", "false": "true"}}, true
	case ext == ".awk":
		return language{comment: "#", quotes: `"`, regexps: true, kind: awk}, true
	case ext == ".sh", ext == ".bash", ext == "" && bytes.HasPrefix(data, []byte("#!")) &&
		bytes.Contains(data[:min(len(data), 40)], []byte("sh\n")):
		return language{comment: "#", quotes: "\"'`", kind: shell, keywords: map[string]string{
			"-eq": "-ne", "-ne": "-eq", "-lt": "-le", "-le": "-lt", "-gt": "-ge", "-ge": "-gt", "-z": "-n", "-n": "-z",
			"true": "false", "false": "true",
		}}, true
	}
	return language{}, false
}

// operators are the operators that are longer than a character, longest first.
var operators = []string{
	"===", "!==", "**=", "//=", "<<=", ">>=", "...", "&&=", "||=",
	"==", "!=", "<=", ">=", "&&", "||", "++", "--", "+=", "-=", "*=", "/=", "%=", "->", "=>", "<<", ">>", "**", "//",
	":=", "?.", "??", ";;",
}

// lex splits a file into tokens, without comments and blanks; ok is false if a string or a comment does not end.
func (l language) lex(data []byte) (tokens []lexeme, ok bool) {
	depth, arith := 0, 0
	opening, closing := "([", ")]"
	if l.kind == python {
		opening, closing = "([{", ")]}"
	}
	for at := 0; at < len(data); {
		if n := l.blank(data, at); n > 0 {
			at += n
			continue
		}
		kind, n := l.nextToken(data, at, tokens)
		if n == 0 {
			return nil, false
		}
		text := string(data[at : at+n])
		if kind == 'o' && strings.Contains(closing, text) {
			depth, arith = depth-1, max(0, arith-1)
		}
		tokens = append(tokens, lexeme{kind, at, at + n, text, depth, l.kind != shell || arith > 0})
		if kind == 'o' && strings.Contains(opening, text) {
			depth++
			if arith > 0 || bytes.HasPrefix(data[at:], []byte("((")) {
				arith++
			}
		}
		at += n
	}
	return tokens, true
}

// blank returns the length of what is no token: a blank, a comment, the end of a line that continues.
func (l language) blank(data []byte, at int) int {
	switch rest := data[at:]; {
	case strings.IndexByte(" \t\r\n", rest[0]) >= 0:
		return 1
	case rest[0] == '\\' && l.kind != javascript:
		return 2
	case l.commentAt(data, at):
		return lineLength(rest)
	case l.blocks && bytes.HasPrefix(rest, []byte("/*")):
		if i := bytes.Index(rest, []byte("*/")); i >= 0 {
			return i + 2
		}
	}
	return 0
}

// nextToken returns the kind and the length of the token at an offset; 0 if it does not end.
func (l language) nextToken(data []byte, at int, before []lexeme) (kind byte, n int) {
	rest, n := data[at:], 1
	switch c := rest[0]; {
	case strings.IndexByte(l.quotes, c) >= 0:
		return 's', l.stringLength(rest)
	case l.blocks && bytes.HasPrefix(rest, []byte("/*")): // without an end
		return 'o', 0
	case l.regexps && c == '/' && regexpAfter(before) && regexpLength(rest) > 0:
		return 'r', regexpLength(rest)
	case '0' <= c && c <= '9':
		for n < len(rest) && (wordByte(rest[n]) || rest[n] == '.') {
			n++
		}
		return 'd', n
	case wordByte(c), l.kind == shell && c == '-' && len(rest) > 2 && wordByte(rest[1]) && blankBefore(data, at):
		for n < len(rest) && wordByte(rest[n]) {
			n++
		}
		return 'w', n
	}
	for _, op := range operators {
		if bytes.HasPrefix(rest, []byte(op)) {
			return 'o', len(op)
		}
	}
	return 'o', 1
}

func (l language) commentAt(data []byte, at int) bool {
	return bytes.HasPrefix(data[at:], []byte(l.comment)) && (l.kind != shell || blankBefore(data, at))
}

func blankBefore(data []byte, at int) bool {
	return at == 0 || strings.IndexByte(" \t\n;", data[at-1]) >= 0
}

func lineLength(data []byte) int {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i
	}
	return len(data)
}

// stringLength returns the length of the string at the beginning of data; 0 if it does not end.
func (l language) stringLength(data []byte) int {
	quote := data[:1]
	if long := bytes.Repeat(quote, 3); l.kind == python && bytes.HasPrefix(data, long) {
		quote = long
	}
	several := len(quote) == 3 || l.kind == shell || quote[0] == '`'
	for i := len(quote); i < len(data); i++ {
		switch {
		case data[i] == '\\' && (l.kind != shell || quote[0] != '\''):
			i++
		case data[i] == '\n' && !several:
			return 0
		case bytes.HasPrefix(data[i:], quote):
			return i + len(quote)
		}
	}
	return 0
}

// regexpAfter reports whether a slash after these tokens begins a regular expression.
func regexpAfter(tokens []lexeme) bool {
	if len(tokens) == 0 {
		return true
	}
	switch last := tokens[len(tokens)-1]; last.kind {
	case 'o':
		return !strings.Contains(")]}", last.text)
	case 'w':
		return last.text == "return" || last.text == "case" || last.text == "typeof"
	}
	return false
}

// regexpLength returns the length of the regular expression at the beginning of data; 0 if it does not end.
func regexpLength(data []byte) int {
	class := false
	for i := 1; i < len(data) && data[i] != '\n'; i++ {
		switch {
		case data[i] == '\\':
			i++
		case data[i] == '[':
			class = true
		case data[i] == ']':
			class = false
		case data[i] == '/' && !class:
			return i + 1
		}
	}
	return 0
}

func wordByte(c byte) bool {
	return c == '_' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// neighbours returns the decimal numbers that are one more and one less, without a sign.
func neighbours(number string) []string {
	whole, fraction, point := strings.Cut(number, ".")
	n, err := strconv.Atoi(whole)
	if err != nil || len(whole) > 1 && whole[0] == '0' {
		return nil
	}
	if point {
		fraction = "." + fraction
	}
	others := []string{strconv.Itoa(n+1) + fraction}
	if n > 0 {
		others = append(others, strconv.Itoa(n-1)+fraction)
	}
	return others
}
