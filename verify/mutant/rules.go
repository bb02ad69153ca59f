package mutant

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"deepswe/env/lexer"
)

// opposites are operators with those that replace them, in all languages that are read as tokens.
var opposites = map[string]string{
	"==": "!=", "!=": "==", "===": "!==", "!==": "===", "<": "<=", "<=": "<", ">": ">=", ">=": ">",
	"&&": "||", "||": "&&", "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*",
	"+=": "-=", "-=": "+=", "*=": "/=", "++": "--", "--": "++",
}

// keywords are words with those that replace them, by language.
var keywords = map[lexer.Kind]map[string]string{
	lexer.Python:     {"True": "False", "False": "True", "and": "or", "or": "and"},
	lexer.JavaScript: {"true": "false", "false": "true"},
	lexer.Rust:       {"true": "false", "false": "true"},
	lexer.Ruby:       {"true": "false", "false": "true", "and": "or", "or": "and"},
	lexer.Braced:     {"true": "false", "false": "true"},
	lexer.Shell: {
		"-eq": "-ne", "-ne": "-eq", "-lt": "-le", "-le": "-lt", "-gt": "-ge", "-ge": "-gt", "-z": "-n", "-n": "-z",
		"true": "false", "false": "true",
	},
}

// noValues are words after which an operator has one operand only.
var noValues = strings.Fields(
	"return in and or not if elif else while for print yield await case typeof is lambda assert elsif unless mut match")

// tokenReader collects the alterations of a file.
type tokenReader struct {
	lexer.Language
	data   []byte
	tokens []lexer.Token
	all    []edit
}

// tokenEdits returns the alterations of a file; none if it cannot be read.
func tokenEdits(l lexer.Language, data []byte) []edit {
	tokens, ok := l.Lex(data)
	if !ok {
		return nil
	}
	r := &tokenReader{Language: l, data: data, tokens: tokens}
	for from := 0; from < len(tokens); {
		to := from + 1
		for to < len(tokens) && !bytes.ContainsRune(data[tokens[to-1].To:tokens[to].From], '\n') {
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

// is reports whether a token has one of the given texts, and is neither a string nor a template.
func (r *tokenReader) is(i int, texts ...string) bool {
	return i >= 0 && i < len(r.tokens) && strings.IndexByte("st", r.tokens[i].Kind) < 0 &&
		slices.Contains(texts, r.tokens[i].Text)
}

// line reads the tokens of a line.
func (r *tokenReader) line(from, to int) {
	requires := func(t lexer.Token) bool { return t.Text == "require" }
	if r.is(from, "import", "from", "export", "@", "#", "use", "using", "class") ||
		slices.ContainsFunc(r.tokens[from:to], requires) {
		return
	}
	for i := from; i < to; i++ {
		switch r.tokens[i].Kind {
		case 'd':
			r.number(i)
		case 's', 't':
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
	if r.Kind == lexer.Shell && (r.is(i-1, "&") || r.is(i+1, ">", "<", ">>") && r.tokens[i+1].From == t.To) {
		return // a descriptor
	}
	for _, other := range neighbours(t.Text) {
		r.replace(t.From, t.To, other, Boundary)
	}
}

func (r *tokenReader) string(i, from, to int) {
	t := r.tokens[i]
	first := i == from || i == from+1 && r.tokens[from].To == t.From
	if first && i == to-1 && r.Kind == lexer.Python || r.Kind == lexer.Shell && strings.Contains(t.Text, "\n") {
		return // a docstring, or a program in another language
	}
	if r.Kind == lexer.Shell && strings.ContainsAny(t.Text, "$`") && t.Text[0] != '\'' {
		if rest, ok := strings.CutPrefix(t.Text, `"$`); ok {
			for _, other := range neighbours(strings.TrimSuffix(rest, `"`)) {
				r.replace(t.From+2, t.To-1, other, Boundary)
			}
		}
		return
	}
	if (r.Kind == lexer.Rust || r.Kind == lexer.Braced) && t.Text[0] == '\'' && len(t.Text) <= 4 {
		return // a character
	}
	at := t.From + 1 + strings.IndexAny(t.Text, "\"'`")
	if long := strings.Repeat(t.Text[:1], 3); r.Kind == lexer.Python && strings.HasPrefix(t.Text, long) {
		at += 2
	}
	r.replace(at, at, "x", Text)
}

func (r *tokenReader) word(i int) {
	t := r.tokens[i]
	switch other := keywords[r.Kind][t.Text]; {
	case r.Kind == lexer.Shell && (t.Text == "-n" || t.Text == "-z") && !r.is(i-1, "[", "test", "!"):
	case other != "" && (other[0] == '-' || other == "and" || other == "or"):
		r.replace(t.From, t.To, other, Comparison)
	case other != "":
		r.replace(t.From, t.To, other, Literal)
	case r.Kind == lexer.Python && t.Text == "not" && i+1 < len(r.tokens):
		r.replace(t.From, r.tokens[i+1].From, "", Condition)
	case r.Kind == lexer.Python && t.Text == "is" && !r.is(i+1, "not"):
		r.replace(t.From, t.To, "is not", Comparison)
	case r.Kind == lexer.Shell && r.is(i-1, "=") && r.tokens[i-1].To == t.From:
		r.replace(t.From, t.From, "x", Text)
	}
}

func (r *tokenReader) operator(i, first int) {
	t := r.tokens[i]
	spaced := t.To < len(r.data) && t.From > 0 && r.data[t.To] == ' ' && r.data[t.From-1] == ' '
	binary := i > first && (r.tokens[i-1].Kind != 'o' || r.is(i-1, ")", "]", "}") ||
		r.Kind == lexer.Ruby && r.is(i-1, "?")) && !r.is(i-1, noValues...)
	other := opposites[t.Text]
	switch {
	case t.Text == "!" && !binary && i+1 < len(r.tokens):
		r.replace(t.From, r.tokens[i+1].From, "", Condition)
	case r.Kind == lexer.Shell && spaced && t.Text == "=":
		r.replace(t.From, t.To, "!=", Comparison)
	case r.Kind == lexer.Shell && spaced && t.Text == "!=":
		r.replace(t.From, t.To, "=", Comparison)
	case other == "", !binary, strings.Contains(r.spaced(), t.Text) && !spaced:
	case !t.Arith && t.Text != "&&" && t.Text != "||":
	case t.Text == "%" && r.tokens[i-1].Kind == 's': // a format
	case t.Text == ">" && r.is(first, "print", "printf"): // output to a file
	case (t.Text == "++" || t.Text == "--") && r.is(first, "for"): // the loop would not end
	case r.Kind == lexer.Python && (t.Text == "++" || t.Text == "--"): // two signs
	default:
		r.replace(t.From, t.To, other, kindOf(t.Text))
	}
}

// spaced returns what is an operator only with blanks around it, and otherwise perhaps a bracket, a sign or the mark of
// a pointer.
func (r *tokenReader) spaced() string {
	if r.Kind == lexer.Rust || r.Kind == lexer.Ruby || r.Kind == lexer.Braced {
		return "< > + - * / %"
	}
	return "< >"
}

// condition negates the condition of a line.
func (r *tokenReader) condition(from, to int) {
	first, last := r.tokens[from], r.tokens[to-1]
	switch r.Kind {
	case lexer.Python:
		if r.is(from, "if", "elif", "while") && last.Text == ":" && last.Depth == first.Depth && to-from > 2 {
			r.negate(from+1, to-1, "not (")
		}
		return
	case lexer.Rust:
		for r.is(from, "}", "else") {
			from++
		}
		if r.is(from, "if", "while") && !r.is(from+1, "let") && last.Text == "{" && to-from > 2 {
			r.negate(from+1, to-1, "!(")
		}
		return
	case lexer.Ruby:
		for i := from; i < to-1; i++ {
			if r.is(i, "if", "elsif", "unless", "while") && !r.is(to-1, "then", "do") && balance(r.tokens[i:to]) == 0 {
				r.negate(i+1, to, "!(")
			}
		}
		return
	}
	for i := from; i < to-1; i++ {
		switch {
		case !r.is(i, "if", "elif", "while", "until"):
		case r.Kind == lexer.Shell && !r.is(i+1, "!"):
			r.replace(r.tokens[i+1].From, r.tokens[i+1].From, "! ", Condition)
		case r.Kind != lexer.Shell && r.is(i+1, "("):
			end := slices.IndexFunc(r.tokens[i+2:to], func(t lexer.Token) bool {
				return t.Text == ")" && t.Depth == r.tokens[i+1].Depth
			})
			if end > 0 {
				r.negate(i+2, i+2+end, "!(")
			}
		}
	}
}

// negate puts the tokens of a condition into brackets.
func (r *tokenReader) negate(from, to int, open string) {
	at, end := r.tokens[from].From, r.tokens[to-1].To
	r.replace(at, end, open+string(r.data[at:end])+")", Condition)
}

// Words that begin lines that cannot be deleted, by language; in the shell, words that no deleted line contains.
var kept = map[lexer.Kind][]string{
	lexer.Python: strings.Fields("def class if elif else for while try except finally with import from pass async " +
		"global nonlocal match case"),
	lexer.JavaScript: strings.Fields("const let var import export function class case default if for while else do try " +
		"catch finally switch async static get set public private protected readonly type interface"),
	lexer.Shell: strings.Fields("if then else elif fi for while until do done case esac ;; in"),
	lexer.Awk:   strings.Fields("function if for while else do BEGIN END case default"),
	lexer.Rust:  strings.Fields("let use pub mod const static type return extern"),
	lexer.Ruby: strings.Fields("def class module if unless elsif else end while until for case when begin rescue ensure " +
		"require require_relative attr_reader attr_writer attr_accessor alias in then"),
	lexer.Braced: strings.Fields("return const static final var val let auto public private protected case default if " +
		"for while else do try catch switch goto package typedef struct enum namespace extern"),
}

// deletion makes the statement of a line ineffective, if the line is exactly one statement.
func (r *tokenReader) deletion(from, to int) {
	first, last := r.tokens[from], r.tokens[to-1]
	line := r.tokens[from:to]
	if first.Kind != 'w' && !r.is(from, "$") || r.is(from, kept[r.Kind]...) || balance(line) != 0 ||
		r.is(from-1, ",", "&&", "||", "|", "+", "=", ".", "?", ":") && r.Kind != lexer.Python ||
		strings.HasSuffix(strings.TrimRight(string(r.data[:first.From]), " \t"), "\\\n") ||
		strings.HasPrefix(strings.TrimLeft(string(r.data[last.To:]), " \t"), "\\\n") {
		return
	}
	instead := ";"
	switch r.Kind {
	case lexer.Python:
		if first.Depth > 0 || last.Text == ":" {
			return
		}
		instead = "pass"
	case lexer.JavaScript, lexer.Rust, lexer.Braced:
		declares := r.Kind == lexer.Braced && to-from > 1 && !r.is(from, "throw", "delete", "echo") &&
			(r.tokens[from+1].Kind == 'w' || r.is(from+1, "*"))
		if last.Text != ";" || from > 0 && !r.is(from-1, ";", "{", "}") || r.braces(line) || declares {
			return
		}
	case lexer.Ruby:
		if first.Depth > 0 || r.braces(line) || r.is(to-1, "do", ",", "|", "&&", "||", "+", "\\") || r.is(to, ".", "&") {
			return
		}
		instead = "nil"
	case lexer.Shell:
		for i := from; i < to; i++ {
			if r.is(i, kept[lexer.Shell]...) {
				return
			}
		}
		if r.is(to-1, "&&", "||", "|", "{", "}") {
			return
		}
		instead = ":"
	case lexer.Awk:
		if r.is(to-1, ",", "&&", "||") || r.braces(line) {
			return
		}
	}
	r.replace(first.From, last.To, instead, Deletion)
}

func (r *tokenReader) braces(line []lexer.Token) bool {
	return slices.ContainsFunc(line, func(t lexer.Token) bool { return t.Kind == 'o' && (t.Text == "{" || t.Text == "}") })
}

// balance returns how many more brackets a line opens than it closes; len(line) if it closes one that it has not
// opened.
func balance(line []lexer.Token) int {
	n := 0
	for _, t := range line {
		switch {
		case t.Kind != 'o':
		case strings.Contains("([{", t.Text):
			n++
		case strings.Contains(")]}", t.Text):
			if n--; n < 0 {
				return len(line)
			}
		}
	}
	return n
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
