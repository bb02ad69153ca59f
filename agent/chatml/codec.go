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

// Renderer writes conversations as a model's chat template does.
type Renderer interface {
	Render(messages []trajectory.Message, o Options) (string, error)
}

// Tokens is a model's tokenizer.
type Tokens interface {
	Encode(text string) []int32
	Decode(ids []int32) string
	// ID returns the id of a token by its text.
	ID(token string) (int32, bool)
	// Added returns the tokens that are marks rather than parts of words, at least those that the template writes and
	// those in [Marks].
	Added() []string
}

// Codec encodes conversations as tokens, and decodes sampled replies.
type Codec struct {
	template Renderer
	tokens   Tokens
	// added are the marks by their ids, and ids the ids by the marks.
	added map[int32]string
	ids   map[string]int32
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
	for _, mark := range []string{endOfText, template.special["eos_token"]} {
		if id, ok := t.ID(mark); ok {
			stop = append([]int32{id}, stop...)
		}
	}
	return Learn(t, template, stop...)
}

// Learn is NewCodec for any tokenizer and template, such as those of a server.
func Learn(t Tokens, template Renderer, stop ...int32) (*Codec, error) {
	c := &Codec{template: template, tokens: t, added: map[int32]string{}, ids: map[string]int32{}, now: time.Now()}
	for _, token := range t.Added() {
		if id, ok := t.ID(token); ok && token != "" {
			c.added[id], c.ids[token] = token, id
		}
	}
	if err := c.learnAnswer(); err != nil {
		return nil, err
	}
	c.native = c.learnCalls()
	for _, id := range append([]int32{c.ids[c.answer.stop()], c.ids[c.call.stop()]}, stop...) {
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
	text, _ := c.writtenBy(ids, func(ids []int32) (string, error) { return c.tokens.Decode(ids), nil })
	return text
}

// writtenBy is written for another way to decode what is between added tokens.
func (c *Codec) writtenBy(ids []int32, decode func([]int32) (string, error)) (string, error) {
	var b strings.Builder
	for from := 0; from < len(ids); from++ {
		to := from
		for to < len(ids) && c.added[ids[to]] == "" {
			to++
		}
		if to > from {
			text, err := decode(ids[from:to])
			if err != nil {
				return "", err
			}
			b.WriteString(text)
		}
		if to < len(ids) {
			b.WriteString(tokenMark + c.added[ids[to]])
		}
		from = to
	}
	return b.String(), nil
}

// mark returns a mark in the form of [Codec.written].
func (c *Codec) mark(text string) string { return c.written(c.tokens.Encode(text)) }

// Native returns why calls are not read as the template writes them; nil if they are.
func (c *Codec) Native() error { return c.native }

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
	messages[r.Fresh-1] = CutOff(messages[r.Fresh-1], word)
	text, err := c.render(messages, o)
	if err != nil {
		return nil, err
	}
	end := c.end(messages[r.Fresh-1])
	at := strings.LastIndex(text, word)
	found := strings.Index(text[max(at, 0):], end.next)
	if at < 0 || found < 0 || !strings.HasSuffix(whole, text[at+found:]) {
		return nil, fmt.Errorf("%w: the text after a reply depends on the reply", ErrNoExtension)
	}
	return c.Extend(r, c.tokens.Encode(text[at+found:]))
}

// end returns how the template ends a reply.
func (c *Codec) end(reply trajectory.Message) ending {
	if len(reply.ToolCalls) > 0 {
		return c.call
	}
	return c.answer
}

// Extend returns the ids of a request whose last reply was sampled. after are the ids that the template writes after
// that reply, and perhaps the last ones of the reply itself.
func (c *Codec) Extend(r agent.Request, after []int32) ([]int32, error) {
	end := c.end(r.Messages[r.Fresh-1])
	at := slices.Index(after, c.ids[end.next])
	if at < 0 {
		return nil, fmt.Errorf("%w: the template does not end this reply as it ends others", ErrNoExtension)
	}
	next, completion := after[at:], r.Sampled.CompletionIDs
	if n := len(completion); n > 0 && (completion[n-1] == next[0] || end.closed && c.closes(completion[n-1])) {
		next = next[1:] // the model's own end stays, also if it is the one that the template writes after a last message
	}
	return slices.Concat(r.Sampled.PromptIDs, completion, next), nil
}

// CutOff returns a reply with a word in place of everything that the model wrote. The template writes the word last,
// before the marks at the end of the reply.
func CutOff(m trajectory.Message, word string) trajectory.Message {
	m.Content, m.Reasoning, m.ToolCalls = word, "", slices.Clone(m.ToolCalls)
	if n := len(m.ToolCalls); n > 0 {
		m.ToolCalls[n-1].Arguments = fmt.Sprintf(`{%q: %q}`, word, word)
	}
	return m
}

// Reply reads the ids that were sampled in answer to a request.
func (c *Codec) Reply(ids []int32, r agent.Request) agent.Message {
	return c.hand.read(c.written(c.unended(ids)), len(r.Tools) > 0, len(r.Messages), r.Tools)
}

// unended returns the ids of a reply without the one that ends it.
func (c *Codec) unended(ids []int32) []int32 {
	if n := len(ids); n > 0 && slices.Contains(c.ends, ids[n-1]) {
		ids = ids[:n-1]
	}
	return ids
}

// ReplyText is Reply where the text of the ids is known, without the one that ends them. decode is called where the
// text does not tell which marks are tokens, and which the model has spelled.
func (c *Codec) ReplyText(text string, ids []int32, r agent.Request, decode func([]int32) (string, error),
) (agent.Message, error) {
	ids = c.unended(ids)
	text, certain := c.marked(text, ids)
	if !certain {
		var err error
		if text, err = c.writtenBy(ids, decode); err != nil {
			return agent.Message{}, err
		}
	}
	return c.hand.read(text, len(r.Tools) > 0, len(r.Messages), r.Tools), nil
}

// marked returns the text of ids in the form of [Codec.written]. It is not certain if the text has more marks than the
// ids: the model has spelled some of them.
func (c *Codec) marked(text string, ids []int32) (_ string, certain bool) {
	counts := map[int32]int{}
	for _, id := range ids {
		counts[id]++
	}
	var marks []string
	for id, token := range c.added {
		if n := strings.Count(text, token); n != counts[id] {
			return "", false
		} else if n > 0 {
			marks = append(marks, token, tokenMark+token)
		}
	}
	return strings.NewReplacer(marks...).Replace(text), true
}
