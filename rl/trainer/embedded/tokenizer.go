package embedded

import (
	"errors"
	"fmt"
	"strings"

	"deepswe/agent"
)

// tokenizer turns a conversation into ids and ids into text. The ids of the vocabulary come first, in its order, then
// the end of a message, then what is only read: the marks of the roles and the unknown byte.
type tokenizer struct {
	texts []string
	// first lists, for a byte, the tokens that begin with it.
	first [256][]int32

	end, system, user, assistant, unknown int32
}

const marks = 5

// newTokenizer refuses a vocabulary in which one token begins another: without that, and only without that, text that
// was sampled as ids becomes the same ids when it is read again.
func newTokenizer(vocabulary []string) (*tokenizer, error) {
	if len(vocabulary) == 0 {
		return nil, errors.New("the vocabulary is empty")
	}
	t := &tokenizer{texts: vocabulary}
	for i, s := range vocabulary {
		if s == "" {
			return nil, fmt.Errorf("token %d of the vocabulary is empty", i)
		}
		for _, other := range t.first[s[0]] {
			if o := vocabulary[other]; strings.HasPrefix(s, o) || strings.HasPrefix(o, s) {
				return nil, fmt.Errorf("tokens %q and %q of the vocabulary: one is a prefix of the other", o, s)
			}
		}
		t.first[s[0]] = append(t.first[s[0]], int32(i))
	}
	n := int32(len(vocabulary))
	t.end, t.system, t.user, t.assistant, t.unknown = n, n+1, n+2, n+3, n+4
	return t, nil
}

// read is the number of tokens that can be read, spoken of those that can be sampled.
func (t *tokenizer) read() int   { return len(t.texts) + marks }
func (t *tokenizer) spoken() int { return len(t.texts) + 1 }

// encode appends the ids of a text; a byte that begins no token is unknown.
func (t *tokenizer) encode(ids []int32, text string) []int32 {
	for len(text) > 0 {
		id, size := t.unknown, 1
		for _, c := range t.first[text[0]] {
			if strings.HasPrefix(text, t.texts[c]) {
				id, size = c, len(t.texts[c])
				break
			}
		}
		ids, text = append(ids, id), text[size:]
	}
	return ids
}

// decode is the text of sampled ids; the end of a message has none.
func (t *tokenizer) decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if int(id) < len(t.texts) {
			b.WriteString(t.texts[id])
		}
	}
	return b.String()
}

// render returns the ids of a conversation, up to where the policy replies. Every message is a mark, its text and an
// end mark, so that a longer conversation begins with the shorter one and its reply.
func (t *tokenizer) render(messages []agent.Message) []int32 {
	size := 1
	for _, m := range messages {
		size += 2 + len(m.Content)
	}
	ids := make([]int32, 0, size)
	for _, m := range messages {
		switch m.Role {
		case agent.RoleSystem:
			ids = append(ids, t.system)
		case agent.RoleAssistant:
			ids = append(ids, t.assistant)
		default:
			ids = append(ids, t.user)
		}
		ids = append(t.encode(ids, m.Content), t.end)
	}
	return append(ids, t.assistant)
}

// turn is one reply in a sequence of ids: the ids before it, and its position.
type turn struct {
	context    []int32
	start, end int
}

// turns finds the replies of a sequence. The last one is open and may be empty.
func (t *tokenizer) turns(ids []int32) []turn {
	var out []turn
	open := false
	for i, id := range ids {
		switch id {
		case t.system, t.user, t.assistant:
			if open {
				out[len(out)-1].end, open = i, false
			}
			if id == t.assistant {
				out, open = append(out, turn{context: ids[:i+1], start: i + 1}), true
			}
		}
	}
	if open {
		out[len(out)-1].end = len(ids)
	}
	return out
}

// observation returns the text between the last mark of a user and the assistant's mark at the end of a context.
func (t *tokenizer) observation(context []int32) []int32 {
	last := len(context) - 1
	for user := last - 1; user >= 0; user-- {
		if context[user] != t.user {
			continue
		}
		o := context[user+1 : last]
		if n := len(o); n > 0 && o[n-1] == t.end {
			o = o[:n-1]
		}
		return o
	}
	return nil
}
