package embedded

import (
	"errors"
	"fmt"
	"strings"
)

// prefixes divides a text into tokens, none of which is a prefix of another. A byte at which no token matches is
// outside the vocabulary.
type prefixes struct {
	texts []string
	// first lists, for a byte, the tokens that begin with it.
	first [256][]int32
}

// newPrefixes refuses a vocabulary in which one token is a prefix of another: text that was sampled as ids could then
// be read as other ids.
func newPrefixes(vocabulary []string) (*tokenizer, error) {
	if len(vocabulary) == 0 {
		return nil, errors.New("the vocabulary is empty")
	}
	p := &prefixes{texts: vocabulary}
	for i, s := range vocabulary {
		if s == "" {
			return nil, fmt.Errorf("token %d of the vocabulary is empty", i)
		}
		for _, other := range p.first[s[0]] {
			if o := vocabulary[other]; strings.HasPrefix(s, o) || strings.HasPrefix(o, s) {
				return nil, fmt.Errorf("tokens %q and %q of the vocabulary: one is a prefix of the other", o, s)
			}
		}
		p.first[s[0]] = append(p.first[s[0]], int32(i))
	}
	return newTokenizer(p, vocabulary, nil, 0), nil
}

func (p *prefixes) encode(ids []int32, text string, outside func(string) int32) []int32 {
	for len(text) > 0 {
		id, size := int32(-1), 1
		for _, c := range p.first[text[0]] {
			if strings.HasPrefix(text, p.texts[c]) {
				id, size = c, len(p.texts[c])
				break
			}
		}
		if id < 0 {
			id = outside(text[:size])
		}
		ids, text = append(ids, id), text[size:]
	}
	return ids
}
