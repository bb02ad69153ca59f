package mutant

import (
	"bytes"
	"slices"
	"strings"
)

// opposites are operators with those that replace them, in all languages that are read as tokens.
var opposites = map[string]string{
	"==": "!=", "!=": "==", "===": "!==", "!==": "===", "<": "<=", "<=": "<", ">": ">=", ">=": ">",
	"&&": "||", "||": "&&", "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*",
	"+=": "-=", "-=": "+=", "*=": "/=", "++": "--", "--": "++",
}

// noValues are words after which an operator has one operand only.
var noValues = strings.Fields(
	"return in and or not if elif else while for print yield await case typeof is lambda assert")

// tokenReader collects the alterations of a file.
type tokenReader struct {
	language
	data   []byte
	tokens []lexeme
	all    []edit
}

// edits returns the alterations of a file; none if it cannot be read.
func (l language) edits(data []byte) []edit {
	tokens, ok := l.lex(data)
	if !ok {
		return nil
	}
	r := &tokenReader{language: l, data: data, tokens: tokens}
	for from := 0; from < len(tokens); {
		to := from + 1
		for to < len(tokens) && !bytes.ContainsRune(data[tokens[to-1].to:tokens[to].from], '\n') {
			to++
		}
		r.line(from, to)
		from = to
	}
	return r.all
}

func (r *tokenReader) replace(from, to int, text string, o Operator) {
	r.all = append(r.all, edit{from, to, text, o})
}

// is reports whether a token is one of several texts.
func (r *tokenReader) is(i int, texts ...string) bool {
	return i >= 0 && i < len(r.tokens) && r.tokens[i].kind != 's' && slices.Contains(texts, r.tokens[i].text)
}

// line reads the tokens of a line.
func (r *tokenReader) line(from, to int) {
	if r.is(from, "import", "from", "export", "@") || slices.ContainsFunc(r.tokens[from:to], func(t lexeme) bool {
		return t.text == "require"
	}) {
		return
	}
	for i := from; i < to; i++ {
		switch r.tokens[i].kind {
		case 'd':
			r.number(i)
		case 's':
			r.string(i, from, to)
		case 'w':
			r.word(i)
		case 'o':
			r.operator(i, from)
		}
	}
	r.condition(from, to)
	r.deletion(from, to)
}

func (r *tokenReader) number(i int) {
	t := r.tokens[i]
	if r.kind == shell && (r.is(i-1, "&") || r.is(i+1, ">", "<", ">>") && r.tokens[i+1].from == t.to) {
		return // a descriptor
	}
	for _, other := range neighbours(t.text) {
		r.replace(t.from, t.to, other, Boundary)
	}
}

func (r *tokenReader) string(i, from, to int) {
	t := r.tokens[i]
	first := i == from || i == from+1 && r.tokens[from].to == t.from
	if first && i == to-1 && r.kind == python || r.kind == shell && strings.Contains(t.text, "\n") {
		return // a docstring, or a program in another language
	}
	if r.kind == shell && strings.ContainsAny(t.text, "$`") && t.text[0] != '\'' {
		if rest, ok := strings.CutPrefix(t.text, `"$`); ok {
			for _, other := range neighbours(strings.TrimSuffix(rest, `"`)) {
				r.replace(t.from+2, t.to-1, other, Boundary)
			}
		}
		return
	}
	at := t.from + 1
	if long := strings.Repeat(t.text[:1], 3); r.kind == python && strings.HasPrefix(t.text, long) {
		at += 2
	}
	r.replace(at, at, "x", Text)
}

func (r *tokenReader) word(i int) {
	t := r.tokens[i]
	switch other := r.keywords[t.text]; {
	case r.kind == shell && (t.text == "-n" || t.text == "-z") && !r.is(i-1, "[", "test", "!"):
	case other != "" && (other[0] == '-' || other == "and" || other == "or"):
		r.replace(t.from, t.to, other, Comparison)
	case other != "":
		r.replace(t.from, t.to, other, Literal)
	case r.kind == python && t.text == "not" && i+1 < len(r.tokens):
		r.replace(t.from, r.tokens[i+1].from, "", Condition)
	case r.kind == python && t.text == "is" && !r.is(i+1, "not"):
		r.replace(t.from, t.to, "is not", Comparison)
	case r.kind == shell && r.is(i-1, "=") && r.tokens[i-1].to == t.from:
		r.replace(t.from, t.from, "x", Text)
	}
}

func (r *tokenReader) operator(i, first int) {
	t := r.tokens[i]
	spaced := t.to < len(r.data) && t.from > 0 && r.data[t.to] == ' ' && r.data[t.from-1] == ' '
	binary := i > first && (r.tokens[i-1].kind != 'o' || r.is(i-1, ")", "]", "}")) && !r.is(i-1, noValues...)
	other := opposites[t.text]
	switch {
	case t.text == "!" && !binary && i+1 < len(r.tokens):
		r.replace(t.from, r.tokens[i+1].from, "", Condition)
	case r.kind == shell && spaced && t.text == "=":
		r.replace(t.from, t.to, "!=", Comparison)
	case r.kind == shell && spaced && t.text == "!=":
		r.replace(t.from, t.to, "=", Comparison)
	case other == "", !binary, strings.ContainsAny(t.text, "<>") && !spaced && len(t.text) == 1:
	case !t.arith && t.text != "&&" && t.text != "||":
	case t.text == "%" && r.tokens[i-1].kind == 's': // a format
	case t.text == ">" && r.is(first, "print", "printf"): // output to a file
	case (t.text == "++" || t.text == "--") && r.is(first, "for"): // the loop would not end
	case r.kind == python && (t.text == "++" || t.text == "--"): // two signs
	default:
		r.replace(t.from, t.to, other, kindOf(t.text))
	}
}

// condition negates the condition of a line.
func (r *tokenReader) condition(from, to int) {
	first, last := r.tokens[from], r.tokens[to-1]
	if r.kind == python {
		if r.is(from, "if", "elif", "while") && last.text == ":" && last.depth == first.depth && to-from > 2 {
			at, end := r.tokens[from+1].from, r.tokens[to-2].to
			r.replace(at, end, "not ("+string(r.data[at:end])+")", Condition)
		}
		return
	}
	for i := from; i < to-1; i++ {
		switch {
		case !r.is(i, "if", "elif", "while", "until"):
		case r.kind == shell && !r.is(i+1, "!"):
			r.replace(r.tokens[i+1].from, r.tokens[i+1].from, "! ", Condition)
		case r.kind != shell && r.is(i+1, "("):
			end := slices.IndexFunc(r.tokens[i+2:to], func(t lexeme) bool {
				return t.text == ")" && t.depth == r.tokens[i+1].depth
			})
			if end > 0 {
				at, end := r.tokens[i+1].to, r.tokens[i+2+end].from
				r.replace(at, end, "!("+string(r.data[at:end])+")", Condition)
			}
		}
	}
}

// Words that begin lines that cannot be deleted, by language; in the shell, words that no deleted line contains.
var kept = map[languageKind][]string{
	python: strings.Fields("def class if elif else for while try except finally with import from pass async global " +
		"nonlocal match case"),
	javascript: strings.Fields("const let var import export function class case default if for while else do try catch " +
		"finally switch async static get set public private protected readonly type interface"),
	shell: strings.Fields("if then else elif fi for while until do done case esac ;; in"),
	awk:   strings.Fields("function if for while else do BEGIN END case default"),
}

// deletion makes the statement of a line ineffective, if the line is exactly one statement.
func (r *tokenReader) deletion(from, to int) {
	first, last := r.tokens[from], r.tokens[to-1]
	line := r.tokens[from:to]
	if first.kind != 'w' && !r.is(from, "$") || r.is(from, kept[r.kind]...) || balance(line) != 0 ||
		r.is(from-1, ",", "&&", "||", "|", "+", "=", ".", "?", ":") && r.kind != python ||
		strings.HasSuffix(strings.TrimRight(string(r.data[:first.from]), " \t"), "\\\n") ||
		strings.HasPrefix(strings.TrimLeft(string(r.data[last.to:]), " \t"), "\\\n") {
		return
	}
	instead := ";"
	switch r.kind {
	case python:
		if first.depth > 0 || last.text == ":" {
			return
		}
		instead = "pass"
	case javascript:
		if last.text != ";" || from > 0 && !r.is(from-1, ";", "{", "}") || r.braces(line) {
			return
		}
	case shell:
		for i := from; i < to; i++ {
			if r.is(i, kept[shell]...) {
				return
			}
		}
		if r.is(to-1, "&&", "||", "|", "{", "}") {
			return
		}
		instead = ":"
	case awk:
		if r.is(to-1, ",", "&&", "||") || r.braces(line) {
			return
		}
	}
	r.replace(first.from, last.to, instead, Deletion)
}

func (r *tokenReader) braces(line []lexeme) bool {
	return slices.ContainsFunc(line, func(t lexeme) bool { return t.kind == 'o' && (t.text == "{" || t.text == "}") })
}

// balance returns how many more brackets a line opens than it closes; a large number if it closes one that it has not
// opened.
func balance(line []lexeme) int {
	n := 0
	for _, t := range line {
		switch {
		case t.kind != 'o':
		case strings.Contains("([{", t.text):
			n++
		case strings.Contains(")]}", t.text):
			if n--; n < 0 {
				return len(line)
			}
		}
	}
	return n
}
