package chatml

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"deepswe/agent"
	"deepswe/agent/tokenizer"
)

// Codec writes conversations in tokens, and reads sampled ones.
type Codec struct {
	Template Template

	tokens *tokenizer.Tokenizer
	ends   []int32
}

// NewCodec joins a template and a tokenizer.
func NewCodec(t *tokenizer.Tokenizer, template Template) (*Codec, error) {
	if _, err := template.Render(nil, Options{}); err != nil {
		return nil, err
	}
	for _, mark := range []string{begin, End} {
		if _, ok := t.ID(mark); !ok {
			return nil, fmt.Errorf("the tokenizer has no token %s, which the chat template %s is made of", mark, template)
		}
	}
	c := &Codec{Template: template, tokens: t}
	for _, mark := range []string{End, endOfText} {
		if id, ok := t.ID(mark); ok {
			c.ends = append(c.ends, id)
		}
	}
	return c, nil
}

// endOfText ends a document. Models may write it instead of End.
const endOfText = "<|endoftext|>"

// Stop are the tokens that end a reply: those at which the models' own generation_config.json stops.
func (c *Codec) Stop() []int32 { return c.ends }

// Prompt returns the ids of a request: those of the whole conversation, or those of the last sample and of the messages
// after it.
func (c *Codec) Prompt(_ context.Context, r agent.Request) ([]int32, error) {
	o := Options{Tools: r.Tools, Reply: true}
	if r.Sampled == nil {
		text, err := c.Template.Render(r.Messages, o)
		if err != nil {
			return nil, err
		}
		return c.tokens.Encode(text), nil
	}
	if r.Fresh < 0 || r.Fresh > len(r.Messages) {
		return nil, errors.New("a request whose fresh messages are not among its messages")
	}
	text, err := c.Template.Next(r.Messages[r.Fresh:], o)
	if err != nil {
		return nil, err
	}
	return Extend(r.Sampled, c.tokens.Encode(text)), nil
}

// Reply reads the ids that were sampled in answer to a request.
func (c *Codec) Reply(ids []int32, r agent.Request) agent.Message {
	if n := len(ids); n > 0 && slices.Contains(c.ends, ids[n-1]) {
		ids = ids[:n-1]
	}
	return Reply(c.tokens.Decode(ids), len(r.Tools) > 0, len(r.Messages))
}

// Extend returns the prompt and the completion of a sample and what follows them, which begins with the end of the
// completion's message. Where the model has written that itself, it is not written again.
func Extend(last *agent.Sample, next []int32) []int32 {
	ids := make([]int32, 0, len(last.PromptIDs)+len(last.CompletionIDs)+len(next))
	ids = append(append(ids, last.PromptIDs...), last.CompletionIDs...)
	if n := len(last.CompletionIDs); n > 0 && len(next) > 0 && last.CompletionIDs[n-1] == next[0] {
		next = next[1:]
	}
	return append(ids, next...)
}
