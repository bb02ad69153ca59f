package canary

import (
	"bytes"
	"go/scanner"
	"go/token"
	"path"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/lexer"
)

// Comments may say what a test expects in any words: "3 times 12" for 36. No test needs them, so they are taken out of
// all files in which tests are wrong or withheld.

// directive matches comments that runners and compilers read.
var directive = env.Pattern(`^#!|^#[^\n]{0,12}coding[:=][ \t]*[-\w.]+[ \t]*(-\*-)?[ \t]*$|` +
	`^# *frozen_string_literal: (true|false)$|` +
	`^//(go:|export |line )|^// ?\+build|@(jest|vitest|jsx|flow)|sourceMappingURL`)

// checker matches a comment of TypeScript up to the end of the directive.
var checker = env.Pattern(`^(//|/\*)[/*\s]*@ts-[\w-]+`)

var (
	hashComment       = env.Pattern(`#[^\n]*`)
	javaScriptComment = env.Pattern(`(?s)/\*.*?\*/|//[^\n]*`)
	rustComment       = env.Pattern(`(?s)/\*.*\*/|//[^\n]*`) // comments may be within others
)

// short does what quiet does, but leaves a single blank for each text that is blanked, and none at the end of a line.
// It removes lines that held nothing else, and empty lines after them: the length of a text, and its number of lines,
// could reveal what it said. removed are the numbers of these lines.
func short(s Source, ids []string) (data []byte, removed []int, ok bool) {
	after, ok := quiet(s, ids)
	if len(after) != len(s.Data) {
		return after, nil, ok
	}
	var out []byte
	at, blanked := 0, false
	for n, line := range bytes.SplitAfter(after, []byte("\n")) {
		before := s.Data[at : at+len(line)]
		at += len(line)
		if len(bytes.TrimSpace(line)) == 0 && (blanked || len(bytes.TrimSpace(before)) > 0) {
			removed, blanked = append(removed, n+1), true
			continue
		}
		blanked = !bytes.Equal(line, before)
		out = append(out, shortLine(line, before)...)
	}
	return out, removed, ok
}

// shortLine leaves a single blank for each text that was blanked in a line, and none at its end.
func shortLine(line, before []byte) (out []byte) {
	for at := 0; at < len(line); {
		end, blanked := at, false
		for ; end < len(line) && (line[end] == ' ' || line[end] == '\t'); end++ {
			blanked = blanked || line[end] != before[end]
		}
		switch {
		case end == at:
			out = append(out, line[at])
			end++
		case !blanked:
			out = append(out, line[at:end]...)
		case end < len(line) && line[end] != '\n' && line[end] != '\r':
			out = append(out, ' ')
		}
		at = end
	}
	return out
}

// quiet returns a source with blanks in the place of its comments and messages, and of the documentation of Python's
// tests, unless one of the ids contains that. Scripts with here-documents stay as they are, because the lexer takes
// their lines for code. ok is false if the lexer cannot read the source, which then keeps its comments.
func quiet(s Source, ids []string) (data []byte, ok bool) {
	if path.Ext(s.Name) == ".go" {
		return quietGo(s.Data), true
	}
	l, known := lexer.Of(s.Name, s.Data)
	if !known {
		return s.Data, true
	}
	tokens, ok := l.Lex(s.Data)
	document := (l.Kind == lexer.Shell || l.Kind == lexer.Ruby) && bytes.Contains(s.Data, []byte("<<"))
	if !ok || l.Kind == lexer.Awk || document {
		return s.Data, ok
	}
	comment, checks, hide := hashComment, checkers{}, silence
	switch l.Kind {
	case lexer.Python:
		checks = pythonCheckers
	case lexer.JavaScript:
		comment, checks = javaScriptComment, javaScriptCheckers
	case lexer.Rust:
		comment, hide = rustComment, silenceRust
	case lexer.Braced:
		comment = javaScriptComment
		if path.Ext(s.Name) == ".php" {
			hide = silencePHP
		}
	}
	data = slices.Clone(s.Data)
	from := 0
	checks.hushAll(data, tokens)
	hushBraced(s.Name, data, tokens)
	for i, t := range append(tokens, lexer.Token{From: len(data)}) {
		gap := data[from:t.From]
		for _, at := range comment().FindAllIndex(gap, -1) {
			hide(gap[at[0]:at[1]])
		}
		from = t.To
		if said := strings.Trim(t.Text, "\"' \t\n"); l.Kind == lexer.Python && describes(tokens[:i], t) &&
			!strings.Contains(said, ">>>") && (i > 0 || !bytes.Contains(data, []byte("__doc__"))) {
			first, _, _ := strings.Cut(said, "\n")
			if !slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(id, strings.TrimSpace(first)) }) {
				blank(bytes.Trim(data[t.From:t.To], `"'`))
			}
		}
	}
	return data, true
}

// silence blanks a comment, except for what runners and compilers read in it. What follows a directive to the type
// checker may say anything, and is blanked as well.
func silence(comment []byte) {
	if at := checker().FindIndex(comment); at != nil {
		blank(bytes.TrimSuffix(comment[at[1]:], []byte("*/")))
	} else if !directive().Match(comment) {
		blank(comment)
	}
}

// rustDocumentation matches the beginning of documentation in Rust.
var rustDocumentation = env.Pattern(`^(///|//!|/\*\*|/\*!)[^/*]`)

// silenceRust does what silence does, but leaves the marks of documentation: a crate may refuse to be compiled without
// it.
func silenceRust(comment []byte) {
	if rustDocumentation().Match(comment) {
		blank(bytes.TrimSuffix(comment[len("///"):], []byte("*/")))
		return
	}
	silence(comment)
}

// phpAnnotation matches what PHPUnit reads in a comment: that a function is a test, and what it is given.
var phpAnnotation = env.Pattern(`@(test|dataProvider|testWith|depends|requires|before|after|group)\b`)

// silencePHP does what silence does, but leaves the lines with annotations.
func silencePHP(comment []byte) {
	if !bytes.HasPrefix(comment, []byte("/**")) || !phpAnnotation().Match(comment) {
		silence(comment)
		return
	}
	for line := range bytes.Lines(comment[len("/*") : len(comment)-len("*/")]) {
		if !phpAnnotation().Match(line) {
			blank(bytes.TrimPrefix(line, []byte("*")))
		}
	}
}

// blank overwrites a text except for the ends of its lines.
func blank(text []byte) {
	for i, c := range text {
		if c != '\n' && c != '\r' {
			text[i] = ' '
		}
	}
}

// ownNames matches the functions that runners call by their names.
var ownNames = env.Pattern(`^(test|set_?up|tear_?down|setUp|tearDown|async(SetUp|TearDown))`)

// describes reports whether a token is the documentation of a file, of a class, or of a test or what belongs to tests,
// given those before it.
func describes(before []lexer.Token, t lexer.Token) bool {
	last := len(before) - 1
	if t.Kind == 's' && last < 0 {
		return true
	}
	if t.Kind != 's' || t.Depth != 0 || before[last].Text != ":" || before[last].Depth != 0 {
		return false
	}
	for i := last - 1; i > 0 && i > last-longestHead; i-- {
		switch {
		case before[i-1].Text == "def":
			return ownNames().MatchString(before[i].Text) || decorated(before[:i-1], "fixture")
		case before[i-1].Text == "class":
			return true
		case before[i].Text == ":" && before[i].Depth == 0:
			return false
		}
	}
	return false
}

// decorated reports whether the last decorator before a function has a name in it.
func decorated(before []lexer.Token, name string) bool {
	for i := len(before) - 1; i >= 0 && i > len(before)-longestHead; i-- {
		switch {
		case before[i].Text == name:
			return true
		case before[i].Text == "@", before[i].Text == ":" && before[i].Depth == 0:
			return false
		}
	}
	return false
}

// longestHead is the maximum number of tokens of a function's head.
const longestHead = 40

// quietGo is quiet for Go. It leaves the comments that say what an example must print.
func quietGo(source []byte) []byte {
	data, fset := slices.Clone(source), token.NewFileSet()
	file := fset.AddFile("", -1, len(data))
	var s scanner.Scanner
	s.Init(file, source, func(token.Position, string) {}, scanner.ScanComments)
	var tokens []lexer.Token
	prints, example, depth := false, false, 0
	for {
		pos, kind, text := s.Scan()
		at := file.Offset(pos)
		switch kind {
		case token.EOF:
			goCheckers.hushAll(data, tokens)
			return data
		case token.COMMENT:
			prints = prints || example && strings.Contains(strings.ToLower(text), "output:")
			if !prints {
				silence(data[at : at+len(text)])
			}
			continue
		case token.RPAREN, token.RBRACK, token.RBRACE:
			depth--
		}
		prints = false
		if n := len(tokens); n > 0 && tokens[n-1].Text == "func" && depth == 0 {
			example = strings.HasPrefix(text, "Example")
		}
		tokens = append(tokens, goToken(kind, at, text, depth))
		if kind == token.LPAREN || kind == token.LBRACK || kind == token.LBRACE {
			depth++
		}
	}
}

// goToken converts a token of Go to the form that package lexer uses for other languages.
func goToken(kind token.Token, at int, text string, depth int) lexer.Token {
	t := lexer.Token{Kind: 'o', From: at, To: at + len(text), Text: text, Depth: depth}
	switch {
	case kind == token.STRING:
		t.Kind = 's'
	case kind == token.INT, kind == token.FLOAT, kind == token.IMAG:
		t.Kind = 'd'
	case kind == token.IDENT, kind.IsKeyword():
		t.Kind = 'w'
	case text == "" || text == "\n": // the scanner's text for an operator, and for a semicolon that it inserts
		t.Text = kind.String()
	}
	return t
}
