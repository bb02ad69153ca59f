package llm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"deepswe/agent"
)

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
	return c.encode(ctx, p, served.ID, text)
}

func (c *Client) encode(ctx context.Context, p patience, model, text string) ([]int32, error) {
	var answer struct {
		Tokens []int32 `json:"tokens"`
	}
	err := c.ask(ctx, p, "/tokenize", &textBody{Model: model, Prompt: text}, &answer)
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
