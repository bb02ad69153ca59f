package canary

import (
	"fmt"
	"strings"

	"deepswe/verify/lexer"
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
	f := &lexed{data: s.Data, tokens: tokens, match: map[int]int{}}
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
