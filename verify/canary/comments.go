package canary

import (
	"bytes"
	"go/scanner"
	"go/token"
	"path"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/verify/lexer"
)

// Comments may say what a test expects in any words: "3 times 12" for 36. No test needs them, so they are taken out of
// all files in which tests are wrong or withheld.

// directive matches comments that runners and compilers read.
var directive = env.Pattern(`^#!|^#[^\n]{0,12}coding[:=][ \t]*[-\w.]+[ \t]*(-\*-)?[ \t]*$|` +
	`^//(go:|export |line )|^// ?\+build|@(jest|vitest|ts|jsx|flow)|sourceMappingURL`)

var (
	pythonComment     = env.Pattern(`#[^\n]*`)
	javaScriptComment = env.Pattern(`(?s)/\*.*?\*/|//[^\n]*`)
)

// quiet returns a source with blanks in the place of its comments, and of what tests of Python say of themselves,
// unless one of the ids is made of that.
func quiet(s Source, ids []string) []byte {
	if path.Ext(s.Name) == ".go" {
		return quietGo(s.Data)
	}
	l, ok := lexer.Of(s.Name, s.Data)
	if !ok || l.Kind != lexer.Python && l.Kind != lexer.JavaScript {
		return s.Data
	}
	tokens, ok := l.Lex(s.Data)
	if !ok {
		return s.Data
	}
	comment := pythonComment
	if l.Kind == lexer.JavaScript {
		comment = javaScriptComment
	}
	data, from := slices.Clone(s.Data), 0
	hushMessages(l, data, tokens)
	for i, t := range append(tokens, lexer.Token{From: len(data)}) {
		gap := data[from:t.From]
		for _, at := range comment().FindAllIndex(gap, -1) {
			if text := gap[at[0]:at[1]]; !directive().Match(text) {
				blank(text)
			}
		}
		from = t.To
		if said := strings.Trim(t.Text, "\"' \t\n"); l.Kind == lexer.Python && describes(tokens[:i], t) &&
			!strings.Contains(said, ">>>") && !bytes.Contains(data, []byte("__doc__")) {
			first, _, _ := strings.Cut(said, "\n")
			if !slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(id, strings.TrimSpace(first)) }) {
				blank(bytes.Trim(data[t.From:t.To], `"'`))
			}
		}
	}
	return data
}

// blank overwrites a text except for the ends of its lines.
func blank(text []byte) {
	for i, c := range text {
		if c != '\n' && c != '\r' {
			text[i] = ' '
		}
	}
}

// describes reports whether a token is the documentation of a file, of a class with tests, or of a test, given those
// before it.
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
			return strings.HasPrefix(before[i].Text, "test")
		case before[i-1].Text == "class":
			return strings.Contains(before[i].Text, "Test")
		case before[i].Text == ":" && before[i].Depth == 0:
			return false
		}
	}
	return false
}

// longestHead is the maximum number of tokens of a function's head.
const longestHead = 40

// messenger matches methods of Go's tests that take a message.
var messenger = env.Pattern(`^(Error|Fatal|Log|Skip)f?$`)

// quietGo does the same for Go, except for the comments that say what an example must print.
func quietGo(source []byte) []byte {
	data, fset := slices.Clone(source), token.NewFileSet()
	file := fset.AddFile("", -1, len(data))
	var s scanner.Scanner
	s.Init(file, source, func(token.Position, string) {}, scanner.ScanComments)
	prints, spoken := false, 0 // 3 after .Errorf(
	for {
		pos, kind, text := s.Scan()
		if kind == token.STRING && spoken == 3 {
			at := file.Offset(pos)
			hush(data[at : at+len(text)])
		}
		spoken = speaking(spoken, kind, text)
		switch {
		case kind == token.EOF:
			return data
		case kind != token.COMMENT:
			prints = false
		default:
			prints = prints || strings.Contains(strings.ToLower(text), "output:")
			if at := file.Offset(pos); !prints && !directive().MatchString(text) {
				blank(data[at : at+len(text)])
			}
		}
	}
}

// speaking returns how many tokens of a call that takes a message have been read: a dot, the method, and the bracket.
func speaking(n int, kind token.Token, text string) int {
	switch {
	case kind == token.PERIOD:
		return 1
	case n == 1 && kind == token.IDENT && messenger().MatchString(text), n == 2 && kind == token.LPAREN:
		return n + 1
	}
	return 0
}
