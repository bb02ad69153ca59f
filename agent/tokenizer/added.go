package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is found in the text before anything else is done.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
}

// addedTokens are tokens by the first byte of their content, the longest first.
type addedTokens [256][]addedToken

func newAddedTokens(all []addedToken) *addedTokens {
	a := new(addedTokens)
	for _, t := range all {
		if t.Content != "" {
			a[t.Content[0]] = append(a[t.Content[0]], t)
		}
	}
	for _, list := range a {
		slices.SortStableFunc(list, func(x, y addedToken) int { return len(y.Content) - len(x.Content) })
	}
	return a
}

// cut calls text and token for the parts of s, in order. Of several tokens that begin at the same offset, the longest
// one counts, and the search continues after it.
func (a *addedTokens) cut(s string, text func(string), token func(int32)) {
	from, at := 0, 0 // from is after the last token and its white space
	for at < len(s) {
		t, n := a.at(s, at)
		if n == 0 {
			at++
			continue
		}
		start, end := at, at+n
		at = end
		if t.SingleWord && (endsWithWord(s[:start]) || beginsWithWord(s[end:])) {
			continue
		}
		if t.LStrip {
			start = max(from, len(strings.TrimRightFunc(s[:start], unicode.IsSpace)))
		}
		if t.RStrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
		}
		if from < start {
			text(s[from:start])
		}
		token(t.ID)
		from, at = end, max(at, end)
	}
	if from < len(s) {
		text(s[from:])
	}
}

// at returns the token that begins at a place, and the length of its content; 0 is none.
func (a *addedTokens) at(s string, at int) (*addedToken, int) {
	list := a[s[at]]
	for i := range list {
		if c := list[i].Content; strings.HasPrefix(s[at:], c) {
			return &list[i], len(c)
		}
	}
	return nil, 0
}

func endsWithWord(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

func beginsWithWord(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}

// isWord is \w of Unicode's regular expressions.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic,
		unicode.Join_Control, newUpper, newLower, newCaseless, newNumbers)
}
