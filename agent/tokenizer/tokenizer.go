package tokenizer

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Tokenizer turns text into ids and back.
type Tokenizer struct {
	// tokens are the bytes of each id; "" for ids without a token.
	tokens []string
	// single are the ids of single bytes; -1 if there is none.
	single [256]int32
	// words are whole words that are not split by merges; nil where a file does not ask for it.
	words  map[string]int32
	merges mergeTable
	splits []splitter
	nfc    bool
	// verbatim tokens are found in the original text, normal ones in the normalized text.
	verbatim, normal *addedTokens
	added            map[string]int32
}

// Size returns the largest id plus one. A model's own vocabulary may be larger, because it is padded.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// ID returns the id of an added token, such as "<|im_end|>".
func (t *Tokenizer) ID(token string) (id int32, ok bool) {
	id, ok = t.added[token]
	return id, ok
}

// Added returns the added tokens in the order of their ids.
func (t *Tokenizer) Added() []string {
	return slices.SortedFunc(maps.Keys(t.added), func(a, b string) int { return int(t.added[a] - t.added[b]) })
}

// Encode returns the ids of a text. Added tokens are recognised wherever they occur. Invalid UTF-8 is read as U+FFFD.
func (t *Tokenizer) Encode(text string) []int32 {
	e := encoder{t: t, ids: make([]int32, 0, len(text)/4+8)}
	text = strings.ToValidUTF8(text, "\uFFFD")
	t.verbatim.cut(text, e.normalized, e.token)
	return e.ids
}

// encoder is the state of one call of Encode.
type encoder struct {
	t     *Tokenizer
	ids   []int32
	merge merger
}

func (e *encoder) token(id int32) { e.ids = append(e.ids, id) }

// normalized encodes a part of the text without verbatim tokens.
func (e *encoder) normalized(text string) {
	if e.t.nfc {
		text = composed(text)
	}
	e.t.normal.cut(text, func(text string) { cut(text, e.t.splits, e.word) }, e.token)
}

// cut calls word for the words of a text. Each splitter cuts those of the one before.
func cut(text string, splits []splitter, word func(string)) {
	if len(splits) == 0 {
		word(text)
		return
	}
	for len(text) > 0 {
		n := splits[0](text)
		cut(text[:n], splits[1:], word)
		text = text[n:]
	}
}

func (e *encoder) word(w string) {
	if id, ok := e.t.words[w]; ok {
		e.ids = append(e.ids, id)
		return
	}
	e.ids = e.merge.word(e.t, w, e.ids)
}

// Decode returns the text of ids, including special tokens. Ids without a token have no text. Invalid UTF-8, such as
// half of a character, becomes U+FFFD.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if id >= 0 && int(id) < len(t.tokens) {
			b.WriteString(t.tokens[id])
		}
	}
	return lossy(b.String())
}

// lossy replaces invalid UTF-8 as Rust does and Unicode recommends: each longest incomplete character becomes one
// U+FFFD.
func lossy(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			n = beginning(s)
			b.WriteRune(utf8.RuneError)
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// beginning returns the length of the longest incomplete character that s begins with, at least 1. s must not begin
// with a complete one.
func beginning(s string) int {
	low, high, want := byte(0x80), byte(0xBF), 0
	switch c := s[0]; {
	case c >= 0xC2 && c <= 0xDF:
		want = 1
	case c >= 0xE0 && c <= 0xEF:
		want = 2
	case c >= 0xF0 && c <= 0xF4:
		want = 3
	}
	switch s[0] {
	case 0xE0:
		low = 0xA0
	case 0xED:
		high = 0x9F
	case 0xF0:
		low = 0x90
	case 0xF4:
		high = 0x8F
	}
	n := 1
	for n <= want && n < len(s) && s[n] >= low && s[n] <= high {
		low, high = 0x80, 0xBF
		n++
	}
	return n
}
