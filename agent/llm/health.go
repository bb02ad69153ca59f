package llm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"deepswe/agent"
)

// Health is the result of checking the endpoint.
type Health struct {
	Endpoint string
	// Models are all models that the endpoint lists; Model is the one that requests name.
	Models []ServedModel
	Model  ServedModel
	// Latency is how long the completion of one token took.
	Latency time.Duration
	// TokenIDs is set if the endpoint returns token ids with logprobs, which training needs.
	TokenIDs bool
	// RawLogprobs is set if logprobs are always those at temperature 1, and not those of the distribution that was
	// sampled.
	RawLogprobs bool
	// Untrainable says why samples at temperature 1 cannot be learned from; nil if nothing was found, see [Client.Vet].
	Untrainable error
	// Separates is set if the server separates thoughts from the text, which can fail: the whole reply is a thought
	// then.
	Separates bool
	// Warnings describe what works now and will cause trouble later.
	Warnings []string
}

// Check lists the models, chooses one and asks it for one token. With an error, Health holds what was found before it.
func (c *Client) Check(ctx context.Context) (Health, error) {
	h := Health{Endpoint: c.name}
	var err error
	if h.Models, err = c.Models(ctx); err != nil {
		return h, fmt.Errorf("list models: %w", err)
	}
	if h.Model, err = c.Discover(ctx); err != nil {
		return h, fmt.Errorf("choose a model: %w", err)
	}
	one := agent.Request{
		Messages: []agent.Message{{Role: agent.RoleUser, Content: "Say yes."}}, MaxTokens: 1, Tokens: true,
	}
	reply, err := c.Complete(ctx, one)
	if err != nil {
		return h, fmt.Errorf("complete one token: %w", err)
	}
	h.Latency, h.TokenIDs = reply.Elapsed, reply.Tokens != nil
	h.Separates = reply.Message.Reasoning != ""
	if h.TokenIDs {
		h.RawLogprobs = c.rawLogprobs(ctx)
		if err := c.Vet(ctx, 1); errors.Is(err, ErrUntrainable) {
			h.Untrainable = err
		}
	}
	if h.Model.Server() == Ollama && h.Model.Context == 0 {
		c.Measure(ctx, &h.Model) // the request has loaded it
	}
	if h.Model.Context == 0 {
		h.Warnings = append(h.Warnings, "the endpoint does not report the length of its context: pass --context")
	} else if scarce := h.Model.Scarce(); scarce != "" {
		h.Warnings = append(h.Warnings, scarce)
	}
	return h, nil
}

// rawLogprobs reports whether the endpoint returns logprobs from before the temperature was applied. Near temperature
// 0 the sampled token has all the probability, and a logprob of nearly 0, unless the logprobs are the model's own. If
// the model is that certain of its tokens, both look the same, and the difference does not matter yet.
func (c *Client) rawLogprobs(ctx context.Context) bool {
	const cold, doubt = 0.01, -0.5
	few := agent.Request{
		Messages:  []agent.Message{{Role: agent.RoleUser, Content: "Write a few words that nobody could guess."}},
		MaxTokens: 8, Tokens: true, Sampling: agent.OnPolicy(new(cold)),
	}
	reply, err := c.Complete(ctx, few)
	if err != nil || reply.Tokens == nil {
		return false // it takes other settings, and says so when it is asked to train
	}
	sum := 0.0
	for _, logprob := range reply.Tokens.Logprobs {
		sum += logprob
	}
	return sum < doubt
}
