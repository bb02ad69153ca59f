package canary

import (
	"bytes"
	"fmt"
	"strings"

	"deepswe/env/lexer"
)

// lexed is a source as tokens, with its brackets matched.
type lexed struct {
	data   []byte
	tokens []lexer.Token
	match  map[int]int // for the token of each bracket, the token of its counterpart
}

// lex reads a source. The error says why its tokens or brackets cannot be told.
func lex(s Source) (*lexed, error) {
	l, _ := lexer.Of(s.Name, s.Data)
	tokens, ok := l.Lex(s.Data)
	if !ok {
		return nil, fmt.Errorf("%w: a comment or a string does not end", errSyntax)
	}
	return matchBrackets(s.Data, tokens)
}

// matchBrackets returns a source of which the tokens are known. The error says why its brackets cannot be told.
func matchBrackets(data []byte, tokens []lexer.Token) (*lexed, error) {
	f := &lexed{data: data, tokens: tokens, match: map[int]int{}}
	open := []int{-1}
	for i, t := range tokens {
		if t.Kind != 'o' {
			continue
		}
		switch c := t.Text[0]; c {
		case '(', '[', '{':
			open = append(open, i)
		case ')', ']', '}':
			at := open[len(open)-1]
			if at < 0 || !strings.Contains("() [] {}", string(f.data[tokens[at].From])+string(c)) {
				return nil, fmt.Errorf("%w: the brackets do not match", errSyntax)
			}
			f.match[at], f.match[i] = i, at
			open = open[:len(open)-1]
		}
	}
	if len(open) > 1 {
		return nil, fmt.Errorf("%w: a bracket is not closed", errSyntax)
	}
	return f, nil
}

// text returns the text of a token; empty if there is none.
func (f *lexed) text(i int) string {
	if i < 0 || i >= len(f.tokens) {
		return ""
	}
	return f.tokens[i].Text
}

// kind returns the kind of a token; 0 if there is none.
func (f *lexed) kind(i int) byte {
	if i < 0 || i >= len(f.tokens) {
		return 0
	}
	return f.tokens[i].Kind
}

// arguments returns the arguments between a bracket and its counterpart, each as its first token and the one after its
// last.
func (f *lexed) arguments(open int) (all [][2]int) {
	end, first := f.match[open], open+1
	for j := open + 1; j <= end; j++ {
		if to, ok := f.match[j]; ok && j != end {
			j = to
			continue
		}
		if j == end || f.text(j) == "," {
			if j > first {
				all = append(all, [2]int{first, j})
			}
			first = j + 1
		}
	}
	return all
}

// single reports whether an argument is a single token of a kind.
func (f *lexed) single(a [2]int, kind byte) bool { return a[1] == a[0]+1 && f.kind(a[0]) == kind }

// literals returns the tokens of the literals in an expression that consists of nothing else, apart from names of
// types, these operators, and words that may surround a literal; none if the expression has anything else.
func (f *lexed) literals(a [2]int, operators string, maySurround func(i int) bool) (found []int) {
	for i := a[0]; i < a[1]; i++ {
		switch text := f.text(i); f.kind(i) {
		case 's', 'd':
			found = append(found, i)
		case 'w':
			if capital := text[0] >= 'A' && text[0] <= 'Z'; !capital && !maySurround(i) {
				return nil
			}
			if text == "true" || text == "false" {
				found = append(found, i)
			}
		default:
			if !strings.Contains(operators, text) {
				return nil
			}
		}
	}
	return found
}

// replaceAny returns a random one of some literals, and others in its place; none if no literal has others.
func replaceAny(literals []int, r *chance, others func(i int, r *chance) []string) (at int, texts []string) {
	for _, k := range r.Perm(len(literals)) {
		if texts := others(literals[k], r); len(texts) > 0 {
			return literals[k], texts
		}
	}
	return 0, nil
}

// endsLine reports whether a token is the last one on its line.
func (f *lexed) endsLine(i int) bool {
	return i+1 >= len(f.tokens) || bytes.IndexByte(f.data[f.tokens[i].To:f.tokens[i+1].From], '\n') >= 0
}
