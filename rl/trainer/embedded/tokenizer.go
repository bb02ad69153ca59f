package embedded

import (
	"errors"
	"fmt"
	"strings"

	"deepswe/agent"
)

// tokenizer turns conversations into ids and ids into text. The ids of what can be written come first, then the end
// of a message, then what is only read: the marks of the roles, the unknown, further words, and slots.
type tokenizer struct {
	speller
	// vocabulary holds the texts of the tokens that can be written, further those of the tokens that are only read.
	vocabulary, further []string
	// slots is how many words without a token can be told apart in one conversation.
	slots int

	end, system, user, assistant, unknown int32
}

// speller divides a text into tokens.
type speller interface {
	// encode appends the ids of a text. It calls outside for the id of every piece that has no token.
	encode(ids []int32, text string, outside func(piece string) int32) []int32
}

const marks = 5

func newTokenizer(s speller, vocabulary, further []string, slots int) *tokenizer {
	n := int32(len(vocabulary))
	return &tokenizer{
		speller: s, vocabulary: vocabulary, further: further, slots: slots,
		end: n, system: n + 1, user: n + 2, assistant: n + 3, unknown: n + 4,
	}
}

// read is the number of tokens that can be read, spoken of those that can be sampled.
func (t *tokenizer) read() int   { return len(t.vocabulary) + marks + len(t.further) + t.slots }
func (t *tokenizer) spoken() int { return len(t.vocabulary) + 1 }

// text returns the text of a token; the end, the marks, the unknown and slots have none, nor do other numbers.
func (t *tokenizer) text(id int32) string {
	switch after := int(id) - len(t.vocabulary) - marks; {
	case id >= 0 && int(id) < len(t.vocabulary):
		return t.vocabulary[id]
	case after >= 0 && after < len(t.further):
		return t.further[after]
	}
	return ""
}

// decode returns the text of sampled ids.
func (t *tokenizer) decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(t.text(id))
	}
	return b.String()
}

// prompt returns the ids of a request's conversation, up to where the policy replies. If the request contains the
// last sample, they begin with the sample's ids, because several sequences of tokens can have the same text.
func (t *tokenizer) prompt(r agent.Request) ([]int32, error) {
	if len(r.Tools) > 0 {
		return nil, errors.New("this policy has no tools; to fix: use the format xml")
	}
	if r.Sampled == nil {
		return t.render(r.Messages, 0), nil
	}
	if r.Fresh < 1 || r.Fresh > len(r.Messages) {
		return nil, fmt.Errorf("invalid Fresh %d: want 1 to %d, the number of messages", r.Fresh, len(r.Messages))
	}
	fresh := t.render(r.Messages, r.Fresh)
	ids := make([]int32, 0, len(r.Sampled.PromptIDs)+len(r.Sampled.CompletionIDs)+1+len(fresh))
	ids = append(append(ids, r.Sampled.PromptIDs...), r.Sampled.CompletionIDs...)
	if n := len(ids); n == 0 || ids[n-1] != t.end {
		ids = append(ids, t.end)
	}
	return append(ids, fresh...), nil
}

// render returns the ids of the messages from the given one on, up to where the policy replies. Every message is a
// mark, its text and an end mark, so that a longer conversation begins with the shorter one and its reply.
//
// Words without a token are numbered by their first occurrence in what the policy is told: the word with number n has
// slot n wherever it comes again, and the words after the last slot are unknown. The numbers are those of the whole
// conversation, so they do not depend on from. System prompts and the policy's own replies add no numbers: the former
// are the same in all conversations, and the latter consist of the vocabulary.
func (t *tokenizer) render(messages []agent.Message, from int) []int32 {
	size := 1
	for _, m := range messages[from:] {
		size += 2 + len(m.Content)
	}
	ids := make([]int32, 0, size)
	seen := map[string]int32{}
	for i, m := range messages {
		if i < from && t.slots == 0 {
			continue
		}
		mark, outside := t.user, func(word string) int32 { return t.slot(word, seen, true) }
		switch m.Role {
		case agent.RoleSystem:
			mark, outside = t.system, func(string) int32 { return t.unknown }
		case agent.RoleAssistant:
			mark, outside = t.assistant, func(word string) int32 { return t.slot(word, seen, false) }
		}
		if i < from && mark == t.user {
			t.encode(nil, m.Content, outside) // for the numbers of its words
		} else if i >= from {
			ids = append(t.encode(append(ids, mark), m.Content, outside), t.end)
		}
	}
	return append(ids, t.assistant)
}

// slot returns the id of a word without a token. A word that is new gets the next slot if numbered is set.
func (t *tokenizer) slot(word string, seen map[string]int32, numbered bool) int32 {
	id, ok := seen[word]
	if !ok && numbered && len(seen) < t.slots {
		id, ok = int32(t.read()-t.slots+len(seen)), true
		seen[word] = id
	}
	if !ok {
		return t.unknown
	}
	return id
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
