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

// Codec writes conversations in tokens, and reads sampled ones.
type Codec struct {
	template *Template
	tokens   *tokenizer.Tokenizer
	end      string
	ends     []int32
	// now is what all prompts of a run tell as the time, if they tell it.
	now time.Time
	// native says why calls are not read as the template writes them; nil if they are.
	native error
}

// ErrNoExtension means that a template's conversations do not grow at their end.
var ErrNoExtension = errors.New("the chat template's conversations cannot be extended in tokens")

// NewCodec joins a template and a tokenizer. stop are further tokens at which the model ends a reply.
func NewCodec(t *tokenizer.Tokenizer, template *Template, stop ...int32) (*Codec, error) {
	c := &Codec{template: template, tokens: t, now: time.Now()}
	asked := []trajectory.Message{
		{Role: trajectory.RoleUser, Content: "u"}, {Role: trajectory.RoleAssistant, Content: standIn},
	}
	last, err := c.render(asked, Options{})
	if err != nil {
		return nil, err
	}
	later, err := c.render(append(asked, asked[0]), Options{Reply: true})
	if err != nil {
		return nil, err
	}
	if c.end = c.mark(last); c.end == "" || c.mark(later) != c.end {
		return nil, fmt.Errorf("%w: no token of its own ends each reply", ErrNoExtension)
	}
	for _, mark := range []string{c.end, template.special["eos_token"], endOfText} {
		if id, ok := t.ID(mark); ok && !slices.Contains(c.ends, id) {
			c.ends = append(c.ends, id)
		}
	}
	for _, id := range stop {
		if !slices.Contains(c.ends, id) {
			c.ends = append(c.ends, id)
		}
	}
	c.native = c.readsCalls(asked[0])
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

// mark returns the first added token after the stand-in.
func (c *Codec) mark(text string) string {
	_, after, _ := strings.Cut(text, standIn)
	first, at := "", len(after)
	for _, token := range c.tokens.Added() {
		i := strings.Index(after, token)
		if token != "" && i >= 0 && (i < at || i == at && len(token) > len(first)) {
			first, at = token, i
		}
	}
	return first
}

// readsCalls makes sure that Reply reads a call as the template writes it.
func (c *Codec) readsCalls(question trajectory.Message) error {
	call := trajectory.ToolCall{ID: "call_0_0", Name: "probe", Arguments: `{"key": "value"}`}
	reply := trajectory.Message{Role: trajectory.RoleAssistant, Content: standIn, ToolCalls: []trajectory.ToolCall{call}}
	text, err := c.render([]trajectory.Message{question, reply}, Options{})
	if err != nil {
		return err
	}
	_, after, _ := strings.Cut(text, standIn)
	after, _, _ = strings.Cut(after, c.end)
	if read := Reply(after, true, 0).ToolCalls; !slices.Equal(read, reply.ToolCalls) {
		return errors.New("the chat template writes tool calls in a notation that is not known here; to fix: set " +
			"environment.format to xml")
	}
	return nil
}

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
	// The text after the reply is that after a stand-in. It has to be what the conversation itself ends with, too: some
	// templates put results elsewhere.
	messages := slices.Clone(r.Messages)
	messages[r.Fresh-1].Content, messages[r.Fresh-1].Reasoning = standIn, ""
	text, err := c.render(messages, o)
	if err != nil {
		return nil, err
	}
	_, after, _ := strings.Cut(text, standIn)
	at := strings.Index(after, c.end)
	if at < 0 || !strings.HasSuffix(whole, after[at:]) {
		return nil, fmt.Errorf("%w: it writes what follows a reply otherwise, depending on the reply", ErrNoExtension)
	}
	return Extend(r.Sampled, c.tokens.Encode(after[at:])), nil
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
