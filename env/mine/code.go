package mine

import (
	"go/scanner"
	"go/token"
	"path"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/diff"
	"deepswe/env/lexer"
	"deepswe/env/python"
)

// sameCode reports whether a patch with whole files as its context changes nothing in them but layout and comments.
// In languages that it cannot read, a changed comment is a change.
func sameCode(patch string) bool {
	return !slices.ContainsFunc(diff.Files(patch), func(f diff.File) bool {
		var before, after strings.Builder
		for l := range diff.Lines(f.Text) {
			if l.Kind == diff.Removed || l.Kind == diff.Context {
				before.WriteString(l.Text[1:])
			}
			if l.Kind == diff.Added || l.Kind == diff.Context {
				after.WriteString(l.Text[1:])
			}
		}
		return f.Binary || !slices.Equal(code(f.Name(), before.String()), code(f.Name(), after.String()))
	})
}

// code returns the tokens of a source, without a comma before a bracket on the next line. Those of Python have the
// depth of its blocks between them. Of a text that cannot be read, they are what is not white space.
func code(name, text string) []string {
	read := lexed
	switch path.Ext(name) {
	case ".go":
		read = goCode
	case ".py":
		read = pythonCode
	}
	if tokens, ok := read(name, text); ok {
		return tokens
	}
	return []string{strings.Join(strings.Fields(lastComma().ReplaceAllString(text, "$1")), "")}
}

// lastComma matches the comma that formatters write after the last of several lines in brackets.
var lastComma = env.Pattern(`,\s*\n\s*([)\]}])`)

// lexed returns the tokens of a text in one of the lexer's languages.
func lexed(name, text string) (tokens []string, ok bool) {
	language, ok := lexer.Of(name, []byte(text))
	if !ok {
		return nil, false
	}
	all, ok := language.Lex([]byte(text))
	for i, t := range all {
		if t.Text == "," && i+1 < len(all) && lastComma().MatchString(text[t.From:all[i+1].To]) {
			continue
		}
		tokens = append(tokens, t.Text)
	}
	return tokens, ok
}

// pythonCode returns the tokens of Python, with the number of blocks that a logical line is in before it.
func pythonCode(name, text string) (tokens []string, ok bool) {
	lines, err := python.Lines([]byte(text))
	if err != nil {
		return nil, false
	}
	var blocks []int // the indentation of those that a line is in
	for _, l := range lines {
		for len(blocks) > 0 && blocks[len(blocks)-1] > l.Indent {
			blocks = blocks[:len(blocks)-1]
		}
		if len(blocks) == 0 || blocks[len(blocks)-1] < l.Indent {
			blocks = append(blocks, l.Indent)
		}
		some, ok := lexed(name, l.Text)
		if !ok {
			return nil, false
		}
		tokens = append(append(tokens, strings.Repeat(" ", len(blocks))), some...)
	}
	return tokens, true
}

// goCode returns the tokens of Go, and the comments that the compiler or cgo may read.
func goCode(_, text string) (tokens []string, ok bool) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, []byte(text), nil, scanner.ScanComments)
	cgo := strings.Contains(text, `import "C"`)
	for {
		_, t, literal := s.Scan()
		switch {
		case t == token.EOF:
			return tokens, s.ErrorCount == 0
		case t == token.COMMENT && (cgo || strings.HasPrefix(literal, "//go:") || strings.HasPrefix(literal, "// +build")):
			tokens = append(tokens, literal)
		case t == token.COMMENT, t == token.SEMICOLON:
		case t == token.COMMA:
			tokens = append(tokens, ",")
		default:
			if (t == token.RPAREN || t == token.RBRACE || t == token.RBRACK) && len(tokens) > 0 && tokens[len(tokens)-1] == "," {
				tokens = tokens[:len(tokens)-1]
			}
			tokens = append(tokens, t.String()+literal)
		}
	}
}
