package chatml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepswe/agent"
	"deepswe/agent/tokenizer"
	"deepswe/agent/trajectory"
)

// Codec encodes conversations as tokens, and decodes sampled replies.
type Codec struct {
	template *Template
	tokens   *tokenizer.Tokenizer
	added    map[int32]string
	// answer and call are how replies without and with calls end.
	answer, call ending
	ends         []int32
	hand         *hand
	// now is the time in all prompts of a run, if the template renders one.
	now time.Time
	// native says why calls are not read as the template writes them; nil if they are.
	native error
}

// ErrNoExtension means that the tokens of a template's conversations cannot be extended at their end.
var ErrNoExtension = errors.New("the chat template's conversations cannot be extended in tokens")

// NewCodec returns a codec for a template and a tokenizer. stop are further tokens at which the model ends a reply.
func NewCodec(t *tokenizer.Tokenizer, template *Template, stop ...int32) (*Codec, error) {
	c := &Codec{template: template, tokens: t, added: map[int32]string{}, now: time.Now()}
	for _, token := range t.Added() {
		if id, ok := t.ID(token); ok && token != "" {
			c.added[id] = token
		}
	}
	if err := c.learnAnswer(); err != nil {
		return nil, err
	}
	c.native = c.learnCalls()
	for _, mark := range []string{c.answer.stop(), c.call.stop(), template.special["eos_token"], endOfText} {
		if id, ok := t.ID(mark); ok && !slices.Contains(c.ends, id) {
			c.ends = append(c.ends, id)
		}
	}
	for _, id := range stop {
		if !slices.Contains(c.ends, id) {
			c.ends = append(c.ends, id)
		}
	}
	return c, nil
}

const (
	// standIn is written in place of a reply where only what follows it is of interest.
	standIn = "reply-that-is-cut-off"
	// endOfText ends a document. Models may write it instead of the template's mark.
	endOfText = "<|endoftext|>"
)

func (c *Codec) render(messages []trajectory.Message, o Options) (string, error) {
	o.Now = c.now
	return c.template.Render(messages, o)
}

// written returns the text of ids, with [tokenMark] in front of each added token.
func (c *Codec) written(ids []int32) string {
	var b strings.Builder
	from := 0
	for i, id := range ids {
		if token, ok := c.added[id]; ok {
			b.WriteString(c.tokens.Decode(ids[from:i]) + tokenMark + token)
			from = i + 1
		}
	}
	return b.String() + c.tokens.Decode(ids[from:])
}

// mark returns a mark in the form of [Codec.written].
func (c *Codec) mark(text string) string { return c.written(c.tokens.Encode(text)) }

// Stop are the tokens that end a reply.
func (c *Codec) Stop() []int32 { return c.ends }

// Prompt returns the ids of a request: those of the whole conversation, or those of the last sample and of the messages
// after it.
func (c *Codec) Prompt(_ context.Context, r agent.Request) ([]int32, error) {
	if len(r.Tools) > 0 && c.native != nil {
		return nil, c.native
	}
	o := Options{Tools: r.Tools, Reply: true}
	whole, err := c.render(r.Messages, o)
	if err != nil {
		return nil, err
	}
	if r.Sampled == nil {
		return c.tokens.Encode(whole), nil
	}
	if r.Fresh < 1 || r.Fresh > len(r.Messages) {
		return nil, errors.New("a request whose fresh messages are not among its messages")
	}
	// A word stands in for the reply, and the text after it is what follows the reply. The whole conversation has to end
	// with that text as well: some templates put results elsewhere.
	word := standIn
	for strings.Contains(whole, word) {
		word += "."
	}
	messages := slices.Clone(r.Messages)
	messages[r.Fresh-1] = cutOff(messages[r.Fresh-1], word)
	text, err := c.render(messages, o)
	if err != nil {
		return nil, err
	}
	end := c.answer
	if len(messages[r.Fresh-1].ToolCalls) > 0 {
		end = c.call
	}
	at := strings.LastIndex(text, word)
	found := strings.Index(text[max(at, 0):], end.next)
	if at < 0 || found < 0 || !strings.HasSuffix(whole, text[at+found:]) {
		return nil, fmt.Errorf("%w: the text after a reply depends on the reply", ErrNoExtension)
	}
	next := c.tokens.Encode(text[at+found:])
	if ids := r.Sampled.CompletionIDs; len(ids) > 0 && end.closed && c.closes(ids[len(ids)-1]) {
		next[0] = ids[len(ids)-1] // keep the model's own end, which the template writes after a last message
	}
	return Extend(r.Sampled, next), nil
}

// cutOff returns a reply with a word in place of everything that the model wrote. The template writes the word last,
// before the marks at the end of the reply.
func cutOff(m trajectory.Message, word string) trajectory.Message {
	m.Content, m.Reasoning, m.ToolCalls = word, "", slices.Clone(m.ToolCalls)
	if n := len(m.ToolCalls); n > 0 {
		m.ToolCalls[n-1].Arguments = fmt.Sprintf(`{%q: %q}`, word, word)
	}
	return m
}

// Reply reads the ids that were sampled in answer to a request.
func (c *Codec) Reply(ids []int32, r agent.Request) agent.Message {
	if n := len(ids); n > 0 && slices.Contains(c.ends, ids[n-1]) {
		ids = ids[:n-1]
	}
	return c.hand.read(c.written(ids), len(r.Tools) > 0, len(r.Messages), r.Tools)
}

// Extend returns the prompt and the completion of a sample, followed by next, which begins with the token that ends
// the completion's message. If the model sampled that token itself, it is not repeated.
func Extend(last *agent.Sample, next []int32) []int32 {
	ids := make([]int32, 0, len(last.PromptIDs)+len(last.CompletionIDs)+len(next))
	ids = append(append(ids, last.PromptIDs...), last.CompletionIDs...)
	if n := len(last.CompletionIDs); n > 0 && len(next) > 0 && last.CompletionIDs[n-1] == next[0] {
		next = next[1:]
	}
	return append(ids, next...)
}
