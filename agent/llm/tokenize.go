package llm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"deepswe/agent"
	"deepswe/agent/chatml"
)

// serverCodec encodes conversations with the server's own chat template and tokenizer, through its /tokenize.
type serverCodec struct {
	c     *Client
	model string
	// end is the token that ends a reply.
	end int32
}

// Stop implements [Codec].
func (s *serverCodec) Stop() []int32 { return []int32{s.end} }

// Prompt implements [Codec].
func (s *serverCodec) Prompt(ctx context.Context, r agent.Request) ([]int32, error) {
	if r.Sampled == nil {
		return s.c.tokenize(ctx, s.c.patience(r), newTokenizeBody(s.model, r.Messages, r.Tools, true))
	}
	if r.Fresh < 1 || r.Fresh > len(r.Messages) {
		return nil, errors.New("a request whose fresh messages are not among its messages")
	}
	next, err := s.nextIDs(ctx, r)
	if err != nil {
		return nil, err
	}
	return chatml.Extend(r.Sampled, next), nil
}

// nextIDs returns the ids after the last reply: the end of its message, the fresh messages, and the beginning of a
// reply. The template never gets the reply, because it might write it in another way than the model did. Instead,
// the conversation is rendered twice, with two different short replies: the ids that both end with are those after the
// reply, whatever the template does with thoughts and earlier messages.
func (s *serverCodec) nextIDs(ctx context.Context, r agent.Request) ([]int32, error) {
	var both [2][]int32
	for i, word := range []string{"a", "b"} {
		// Templates may check that calls and results belong together.
		reply := agent.Message{Role: agent.RoleAssistant, Content: word}
		for _, call := range r.Messages[r.Fresh-1].ToolCalls {
			call.Arguments = "{}"
			reply.ToolCalls = append(reply.ToolCalls, call)
		}
		messages := append([]agent.Message{{Role: agent.RoleUser, Content: "u"}, reply}, r.Messages[r.Fresh:]...)
		ids, err := s.c.tokenize(ctx, s.c.patience(r), newTokenizeBody(s.model, messages, r.Tools, true))
		if err != nil {
			return nil, err
		}
		both[i] = ids
	}
	next := commonEnd(both[0], both[1])
	if len(next) == len(both[0]) {
		return nil, s.c.noExtension("the chat template leaves out the text of a reply with calls, so that nothing shows " +
			"where the reply ends")
	}
	at := slices.Index(next, s.end)
	if at < 0 {
		return nil, s.c.noExtension("the chat template does not end this reply as it ends others")
	}
	return next[at:], nil
}

// commonEnd returns the longest common suffix of two lists.
func commonEnd(a, b []int32) []int32 {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return a[len(a)-n:]
}

// serverCodec learns once how the model's template ends a reply. For native calls it also makes sure that the
// template writes them as chatml reads them, because the server does not parse calls if the prompt is given in
// tokens.
func (c *Client) serverCodec(ctx context.Context, p patience, model string, native bool) (*serverCodec, error) {
	known := c.codec.Load()
	if known == nil || known.model != model {
		var both [2][]int32
		for i, word := range []string{"a", "b"} {
			messages := []agent.Message{{Role: agent.RoleUser, Content: "u"}, {Role: agent.RoleAssistant, Content: word}}
			ids, err := c.tokenize(ctx, p, newTokenizeBody(model, messages, nil, false))
			if err != nil {
				return nil, err
			}
			both[i] = ids
		}
		end := commonEnd(both[0], both[1])
		if len(end) == 0 || len(end) == len(both[0]) {
			return nil, c.noExtension("the chat template does not mark the end of a reply")
		}
		known = &serverCodec{c: c, model: model, end: end[0]}
		c.codec.Store(known)
	}
	if native && !c.hermes.Load() {
		if err := c.checkCalls(ctx, p, model); err != nil {
			return nil, err
		}
		c.hermes.Store(true)
	}
	return known, nil
}

// checkCalls makes sure that the template writes a call as chatml reads one.
func (c *Client) checkCalls(ctx context.Context, p patience, model string) error {
	call := agent.ToolCall{ID: "call_0", Name: "probe", Arguments: `{"key": "value"}`}
	messages := []agent.Message{
		{Role: agent.RoleUser, Content: "u"}, {Role: agent.RoleAssistant, Content: "a", ToolCalls: []agent.ToolCall{call}},
	}
	ids, err := c.tokenize(ctx, p, newTokenizeBody(model, messages, nil, false))
	if err != nil {
		return err
	}
	text, err := c.detokenize(ctx, p, model, ids)
	if err != nil {
		return err
	}
	read := chatml.Reply(text, true, 0).ToolCalls
	if len(read) != 1 || read[0].Name != call.Name || read[0].Arguments != call.Arguments {
		return c.noExtension("the chat template writes tool calls in a notation that is not known here; use --format xml")
	}
	return nil
}

// ErrNoExtension means that prompts cannot be built from tokens with this endpoint.
var ErrNoExtension = errors.New("prompts cannot be extended in tokens")

func (c *Client) noExtension(why string) error {
	return &Error{
		Endpoint: c.name, Attempts: 1, Message: why, sentinel: agent.ErrModelUnavailable, cause: ErrNoExtension,
		Hint: "to let the chat template write every prompt, set --tokens template (trainer.tokens in a training " +
			"configuration)",
	}
}

// tokenizeBody asks for the ids of a conversation.
type tokenizeBody struct {
	Model               string        `json:"model"`
	Messages            []wireMessage `json:"messages"`
	Tools               []wireTool    `json:"tools,omitempty"`
	AddGenerationPrompt bool          `json:"add_generation_prompt"`
}

// textBody asks for the ids of a text.
type textBody struct {
	Model            string `json:"model"`
	Prompt           string `json:"prompt"`
	AddSpecialTokens bool   `json:"add_special_tokens"`
}

// Tokenize returns the ids of a text, without special tokens. The error wraps [ErrNoExtension] if the server has no
// /tokenize.
func (c *Client) Tokenize(ctx context.Context, text string) ([]int32, error) {
	p := c.patience(agent.Request{})
	served, err := c.discover(ctx, p)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Tokens []int32 `json:"tokens"`
	}
	err = c.ask(ctx, p, "/tokenize", &textBody{Model: served.ID, Prompt: text}, &answer)
	return answer.Tokens, err
}

// ErrOtherTokenizer reports that a server has other ids for a text than a model does.
var ErrOtherTokenizer = errors.New("the tokenizers differ")

// SameTokenizer returns an error that wraps [ErrOtherTokenizer] unless the server decodes the ids to a text that
// contains the passage, and encodes that text as the same ids. The ids are a prompt, marks included.
func (c *Client) SameTokenizer(ctx context.Context, ids []int32, passage string) error {
	served, err := c.discover(ctx, c.patience(agent.Request{}))
	if err != nil {
		return err
	}
	text, err := c.detokenize(ctx, c.patience(agent.Request{}), served.ID, ids)
	if failed, ok := errors.AsType[*Error](err); ok && failed.Status == http.StatusBadRequest {
		return fmt.Errorf("%w: %w", ErrOtherTokenizer, err) // an id beyond the vocabulary
	}
	if err != nil {
		return err
	}
	if !strings.Contains(text, passage) {
		return fmt.Errorf("%w: %s decodes the ids of a prompt to another text", ErrOtherTokenizer, c.name)
	}
	again, err := c.Tokenize(ctx, text)
	if err == nil && !slices.Equal(again, ids) {
		err = fmt.Errorf("%w: %s encodes a prompt to other ids (%d, want %d)", ErrOtherTokenizer, c.name,
			len(again), len(ids))
	}
	return err
}

type detokenizeBody struct {
	Model  string  `json:"model"`
	Tokens []int32 `json:"tokens"`
}

// tokenize asks the server for ids, and learns the length of the context.
func (c *Client) tokenize(ctx context.Context, p patience, b *tokenizeBody) ([]int32, error) {
	var answer struct {
		Tokens  []int32 `json:"tokens"`
		Context int64   `json:"max_model_len"`
	}
	if err := c.ask(ctx, p, "/tokenize", b, &answer); err != nil {
		return nil, err
	}
	if answer.Context > 0 {
		c.context.Store(answer.Context)
	}
	return answer.Tokens, nil
}

func (c *Client) detokenize(ctx context.Context, p patience, model string, ids []int32) (string, error) {
	var answer struct {
		Prompt string `json:"prompt"`
	}
	err := c.ask(ctx, p, "/detokenize", &detokenizeBody{Model: model, Tokens: ids}, &answer)
	return answer.Prompt, err
}

// ask posts to a path outside /v1.
func (c *Client) ask(ctx context.Context, p patience, path string, body, into any) error {
	err := c.query(ctx, p, firstByte, c.root()+path, body, into)
	failed, ok := errors.AsType[*Error](err)
	switch {
	case !ok || failed.Status != http.StatusNotFound && failed.Status != http.StatusMethodNotAllowed:
		return err
	case strings.Contains(failed.said.Message, "model"): // vLLM says so of one that it does not serve
		failed.Hint = c.notServed(ctx, *c.model.Load())
		return err
	}
	return c.noExtension("the endpoint has no " + path)
}
