// Package lexer splits sources of several languages into tokens, roughly: whatever the version of a language, and
// without knowing its grammar.
package lexer

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"deepswe/env"
)

// Token is a word, a number, a string, a template, an operator, or a regular expression, at a place in a source.
type Token struct {
	Kind     byte // w, d, s, t, o or r
	From, To int
	Text     string
	Depth    int  // of brackets around it; braces count only in Python
	Arith    bool // operators are those of arithmetic
}

// Language is how a language is read.
type Language struct {
	comment string // begins a comment up to the end of the line
	blocks  bool   // there are comments like /* this */
	quotes  string
	regexps bool // there are regular expressions like /this/
	Kind    Kind
}

// Kind is which language it is.
type Kind byte

// The languages.
const (
	Python Kind = iota
	JavaScript
	Shell
	Awk
	Rust
	Ruby
	Braced // C, Java and other languages with their statements and comments
)

// braced are the extensions of languages that are read as Braced.
const braced = " .c .h .cc .cpp .cxx .hh .hpp .cs .dart .java .kt .php .scala .swift "

// Of returns the language of a file; ok is false if it is none of these.
func Of(name string, data []byte) (l Language, ok bool) {
	switch ext := path.Ext(name); {
	case ext == ".py":
		return Language{comment: "#", quotes: `"'`, Kind: Python}, true
	case strings.Contains(" .js .cjs .mjs .jsx .ts .cts .mts .tsx ", " "+ext+" ") && ext != "":
		return Language{comment: "//", blocks: true, quotes: "\"'`", regexps: true, Kind: JavaScript}, true
	case ext == ".awk":
		return Language{comment: "#", quotes: `"`, regexps: true, Kind: Awk}, true
	case ext == ".sh", ext == ".bash", ext == "" && bytes.HasPrefix(data, []byte("#!")) &&
		bytes.Contains(data[:min(len(data), 40)], []byte("sh\n")):
		return Language{comment: "#", quotes: "\"'`", Kind: Shell}, true
	case ext == ".rs":
		return Language{comment: "//", blocks: true, quotes: `"`, Kind: Rust}, true
	case ext == ".rb":
		return Language{comment: "#", quotes: "\"'`", regexps: true, Kind: Ruby}, true
	case strings.Contains(braced, " "+ext+" ") && ext != "":
		return Language{comment: "//", blocks: true, quotes: `"'`, Kind: Braced}, true
	}
	return Language{}, false
}

// operators are the operators that are longer than a character, longest first.
var operators = []string{
	"===", "!==", "**=", "//=", "<<=", ">>=", "...", "&&=", "||=",
	"==", "!=", "<=", ">=", "&&", "||", "++", "--", "+=", "-=", "*=", "/=", "%=", "->", "=>", "<<", ">>", "**", "//",
	":=", "?.", "??", ";;",
}

// Lex splits a file into tokens, without comments and blanks; ok is false if a string or a comment does not end.
func (l Language) Lex(data []byte) (tokens []Token, ok bool) {
	depth, arith := 0, 0
	opening, closing := "([", ")]"
	if l.Kind == Python {
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
		tokens = append(tokens, Token{kind, at, at + n, text, depth, l.Kind != Shell || arith > 0})
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

// blank returns the length of what is not a token: a blank, a comment, the end of a line that continues.
func (l Language) blank(data []byte, at int) int {
	switch rest := data[at:]; {
	case strings.IndexByte(" \t\r\n", rest[0]) >= 0:
		return 1
	case rest[0] == '\\' && l.Kind != JavaScript:
		return 2
	case l.commentAt(data, at), at == 0 && bytes.HasPrefix(rest, []byte("#!")) && !bytes.HasPrefix(rest, []byte("#![")):
		return lineLength(rest)
	case l.blocks && bytes.HasPrefix(rest, []byte("/*")):
		return l.blockLength(rest)
	}
	return 0
}

// blockLength returns the length of the comment at the beginning of data, which in Rust may have others inside; 0 if it
// does not end.
func (l Language) blockLength(data []byte) int {
	for at, open := 2, 1; ; {
		end := bytes.Index(data[at:], []byte("*/"))
		if end < 0 {
			return 0
		}
		if inner := bytes.Index(data[at:at+end], []byte("/*")); inner >= 0 && l.Kind == Rust {
			at, open = at+inner+2, open+1
			continue
		}
		if at, open = at+end+2, open-1; open == 0 {
			return at
		}
	}
}

// nextToken returns the kind and the length of the token at an offset; 0 if it does not end.
func (l Language) nextToken(data []byte, at int, before []Token) (kind byte, n int) {
	rest, n := data[at:], 1
	switch c := rest[0]; {
	case l.Kind == JavaScript && c == '`':
		return 't', templateLength(rest, "${")
	case l.Kind == Ruby && c == '"':
		return 's', templateLength(rest, "#{")
	case l.Kind == Rust && rawString().Match(rest):
		return 's', rawLength(rest)
	case l.Kind == Rust && c == '\'':
		if n := len(character().Find(rest)); n > 0 {
			return 's', n
		}
		return 'w', 1 + len(lifetime().Find(rest[1:]))
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
	case l.Kind == JavaScript && strings.IndexByte("$#@", c) >= 0:
		for n < len(rest) && (wordByte(rest[n]) || rest[n] == '$') {
			n++
		}
		return 'w', n
	case wordByte(c), l.Kind == Shell && c == '-' && len(rest) > 2 && wordByte(rest[1]) && blankBefore(data, at):
		for n < len(rest) && (wordByte(rest[n]) || rest[n] == '$' && l.Kind == JavaScript) {
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

func (l Language) commentAt(data []byte, at int) bool {
	return bytes.HasPrefix(data[at:], []byte(l.comment)) && (l.Kind != Shell || blankBefore(data, at))
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
func (l Language) stringLength(data []byte) int {
	quote := data[:1]
	if long := bytes.Repeat(quote, 3); (l.Kind == Python || l.Kind == Braced) && bytes.HasPrefix(data, long) {
		quote = long
	}
	several := len(quote) == 3 || l.Kind == Shell || l.Kind == Ruby || l.Kind == Rust || quote[0] == '`'
	for i := len(quote); i < len(data); i++ {
		switch {
		case data[i] == '\\' && (l.Kind != Shell || quote[0] != '\''):
			i++
		case data[i] == '\n' && !several && (l.Kind == JavaScript || l.Kind == Braced): // an apostrophe in a text
			return i + 1
		case data[i] == '\n' && !several:
			return 0
		case bytes.HasPrefix(data[i:], quote):
			return i + len(quote)
		}
	}
	return 0
}

// templateLength returns the length of the template at the beginning of data, with the templates in its placeholders,
// which begin with open; 0 if it does not end.
func templateLength(data []byte, open string) int {
	quote := data[0]
	for at := 1; at < len(data); at++ {
		switch {
		case data[at] == '\\':
			at++
		case data[at] == quote:
			return at + 1
		case bytes.HasPrefix(data[at:], []byte(open)):
			at++
			for depth := 1; depth > 0 && at+1 < len(data); {
				switch at++; data[at] {
				case quote:
					n := templateLength(data[at:], open)
					if n == 0 {
						return 0
					}
					at += n - 1
				case '{':
					depth++
				case '}':
					depth--
				}
			}
		}
	}
	return 0
}

// What Rust writes with an apostrophe, and strings in which a backslash stands for itself.
var (
	character = env.Pattern(`^'(\\''|\\[^\n']+'|[^\\'\n]')`)
	lifetime  = env.Pattern(`^\w*`)
	rawString = env.Pattern(`^b?r#*"`)
)

// rawLength returns the length of the raw string at the beginning of data; 0 if it does not end.
func rawLength(data []byte) int {
	begin := rawString().Find(data)
	end := `"` + strings.Repeat("#", bytes.Count(begin, []byte("#")))
	if i := bytes.Index(data[len(begin):], []byte(end)); i >= 0 {
		return len(begin) + i + len(end)
	}
	return 0
}

// beforeValues are the words after which a slash begins a regular expression.
var beforeValues = strings.Fields("return case typeof in of await if elsif unless when and or not")

// regexpAfter reports whether a slash after these tokens begins a regular expression.
func regexpAfter(tokens []Token) bool {
	if len(tokens) == 0 {
		return true
	}
	switch last := tokens[len(tokens)-1]; last.Kind {
	case 'o':
		return !strings.Contains(")]}", last.Text)
	case 'w':
		return slices.Contains(beforeValues, last.Text)
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
			for i++; i < len(data) && wordByte(data[i]); {
				i++
			}
			return i
		}
	}
	return 0
}

func wordByte(c byte) bool {
	return c == '_' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
