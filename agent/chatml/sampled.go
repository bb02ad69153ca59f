package chatml

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"deepswe/agent/trajectory"
)

// Sampled returns the reply at a place of a conversation as a sampler would have given it: the ids of what comes before
// it, and its own up to the mark at its end. It is for learning from conversations of which only the text is known.
//
// Conversations with native calls are refused, because they do not say which tools the model was offered.
func (c *Codec) Sampled(messages []trajectory.Message, at int) (prompt, completion []int32, err error) {
	if at < 0 || at >= len(messages) || messages[at].Role != trajectory.RoleAssistant {
		return nil, nil, fmt.Errorf("message %d is not a reply of the assistant", at)
	}
	for i, m := range messages[:at+1] {
		if len(m.ToolCalls) > 0 || m.Role == trajectory.RoleTool {
			return nil, nil, fmt.Errorf("message %d is of a native call, and the tools that the model was told of are not "+
				"known", i)
		}
	}
	before, err := c.render(messages[:at], Options{Reply: true})
	if err != nil {
		return nil, nil, err
	}
	text, err := c.render(messages[:at+1], Options{})
	if err != nil {
		return nil, nil, err
	}
	reply, ok := strings.CutPrefix(text, before)
	end := len(reply)
	if c.answer.last != "" {
		end = strings.LastIndex(reply, c.answer.last)
	}
	if !ok || end < 0 {
		return nil, nil, fmt.Errorf("the chat template writes what comes before message %d otherwise after it", at)
	}
	return c.tokens.Encode(before), c.tokens.Encode(reply[:end] + c.answer.stop()), nil
}

// errNotASCII reports a reply in which the offsets of tokens in the text are not certain.
var errNotASCII = errors.New("the reply has characters beyond ASCII")

// Find returns the range of a reply's tokens that contain the last occurrence of a word.
func (c *Codec) Find(completion []int32, word string) (from, to int, err error) {
	text := c.tokens.Decode(completion)
	if strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) {
		return 0, 0, errNotASCII
	}
	begin := strings.LastIndex(text, word)
	if word == "" || begin < 0 {
		return 0, 0, fmt.Errorf("the reply has no %q", word)
	}
	at := 0
	for i, id := range completion {
		end := at + len(c.tokens.Decode([]int32{id}))
		if end <= begin {
			from = i + 1
		}
		if at < begin+len(word) {
			to = i + 1
		}
		at = end
	}
	return from, to, nil
}
