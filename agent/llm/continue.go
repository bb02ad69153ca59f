package llm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepswe/agent"
)

// Continuation says how the prompts of requests for tokens are built.
type Continuation string

const (
	// Template lets the server's chat template write out the whole conversation for every reply. Where it drops earlier
	// thoughts, or writes a call in another way than the model did, a prompt does not begin with the one before it.
	Template Continuation = "template"
	// Extend sends tokens: those of the last prompt and the last reply, unchanged, and then those of the new messages.
	// So each prompt begins with the previous prompt and reply.
	Extend Continuation = "extend"
	// Auto is Extend, or Template if the server does not support that.
	Auto Continuation = "auto"
)

// Continuations returns all values of a Continuation.
func Continuations() []Continuation { return []Continuation{Auto, Extend, Template} }

// Codec encodes conversations as tokens, and decodes sampled replies. Package chatml has one; without one, the server
// is asked.
type Codec interface {
	// Prompt returns the ids of a request's conversation. They begin with those of r.Sampled, if that is set.
	Prompt(ctx context.Context, r agent.Request) ([]int32, error)
	// Reply reads the ids that were sampled in answer to a request.
	Reply(ids []int32, r agent.Request) agent.Message
	// Stop are the tokens that end a reply.
	Stop() []int32
}

// ownCodec is a Codec. It reads replies from their ids alone, because the server's tokenizer may differ.
type ownCodec struct{ Codec }

func (o ownCodec) read(_ context.Context, _ string, ids []int32, r agent.Request) (agent.Message, error) {
	return o.Reply(ids, r), nil
}

// codec is what encodes a request in tokens and reads its reply.
type codec interface {
	Prompt(ctx context.Context, r agent.Request) ([]int32, error)
	Stop() []int32
	// read reads a reply from its ids and the text that the server gives for them.
	read(ctx context.Context, text string, ids []int32, r agent.Request) (agent.Message, error)
}

func (c *Client) codecFor(ctx context.Context, r agent.Request, model string) (codec, error) {
	if own := c.o.Codec; own != nil {
		return ownCodec{own}, nil
	}
	return c.serverCodec(ctx, c.patience(r), model)
}

// extend asks for a reply to a prompt in tokens.
func (c *Client) extend(ctx context.Context, r agent.Request, model string) (agent.Reply, error) {
	codec, err := c.codecFor(ctx, r, model)
	if err != nil {
		return agent.Reply{}, err
	}
	prompt, err := codec.Prompt(ctx, r)
	if err != nil {
		return agent.Reply{}, err
	}
	room := int(c.context.Load()) - len(prompt)
	if c.context.Load() > 0 && room <= 0 {
		return agent.Reply{}, c.full(len(prompt))
	}
	b := &completionBody{
		Model: model, Prompt: prompt, MaxTokens: r.MaxTokens, Sampling: r.Sampling, Logprobs: new(int), ReturnTokenIDs: true,
		StopTokenIDs: codec.Stop(),
	}
	if room > 0 && (b.MaxTokens == 0 || b.MaxTokens > room) {
		b.MaxTokens = room
	}
	version, err := c.weightVersion(ctx, c.patience(r), model)
	if err != nil {
		return agent.Reply{}, err
	}
	var reply agent.Reply
	var text string
	err = c.retry(ctx, c.patience(r), func(ctx context.Context, _ *dialect) *Error {
		var failed *Error
		reply, text, failed = c.continued(ctx, b, r)
		return failed
	})
	if err != nil {
		return agent.Reply{}, err
	}
	reply.Message, err = codec.read(ctx, text, reply.Tokens.CompletionIDs, r)
	reply.Tokens.PolicyVersion = version
	return reply, err
}

// full is the error of a prompt that leaves no room for a reply.
func (c *Client) full(prompt int) error {
	return &Error{
		Endpoint: c.name, Attempts: 1, sentinel: agent.ErrContextOverflow,
		Message: fmt.Sprintf("the prompt has %d tokens, and the model's context %d", prompt, c.context.Load()),
	}
}

// continued sends the request once. The text is the whole reply.
func (c *Client) continued(ctx context.Context, b *completionBody, r agent.Request) (_ agent.Reply, text string,
	_ *Error) {
	start := time.Now()
	var got completion
	var reply agent.Reply
	failed := c.askOnce(ctx, wholeAnswer, c.base+"/completions", b, func(raw []byte) (err error) {
		if got, err = decodeText(raw); err == nil {
			err = got.usable()
		}
		if err == nil {
			reply, err = got.reply(r, c.o.Log)
		}
		if err == nil {
			err = exact(reply.Tokens, b.Prompt)
		}
		return err
	})
	if failed != nil {
		failed.exact = true
		return agent.Reply{}, "", failed
	}
	reply.Elapsed = time.Since(start)
	return reply, got.text(), nil
}

// exact refuses a reply to another prompt, and one whose tokens are not known.
func exact(s *agent.Sample, prompt []int32) error {
	switch {
	case s == nil:
		return fmt.Errorf("%w: it has no token ids or no logprobs, and tokens were asked for; vLLM gives both", errUnusable)
	case len(s.CompletionIDs) == 0:
		return fmt.Errorf("%w: it has no token at all", errUnusable)
	case !slices.Equal(s.PromptIDs, prompt):
		return fmt.Errorf("%w: the server read another prompt (%d tokens) than it was sent (%d)", errUnusable,
			len(s.PromptIDs), len(prompt))
	}
	return nil
}

// completionBody is a request for the continuation of a prompt in tokens, see [body].
type completionBody struct {
	Model     string  `json:"model"`
	Prompt    []int32 `json:"prompt"`
	MaxTokens int     `json:"max_tokens,omitempty"`

	agent.Sampling

	// Logprobs is the number of alternatives to return for each token.
	Logprobs       *int    `json:"logprobs,omitempty"`
	PromptLogprobs *int    `json:"prompt_logprobs,omitempty"`
	ReturnTokenIDs bool    `json:"return_token_ids,omitempty"`
	StopTokenIDs   []int32 `json:"stop_token_ids,omitempty"`
	// SkipSpecialTokens is always false: tags of thoughts and calls are special tokens of some models.
	SkipSpecialTokens bool `json:"skip_special_tokens"`
}

// textCompletion is the response. Servers put the prompt's ids either inside the choice or next to it.
type textCompletion struct {
	Model   string `json:"model"`
	Choices []struct {
		Text           string  `json:"text"`
		FinishReason   string  `json:"finish_reason"`
		TokenIDs       []int32 `json:"token_ids"`
		PromptTokenIDs []int32 `json:"prompt_token_ids"`
		Logprobs       *struct {
			TokenLogprobs []*float64 `json:"token_logprobs"`
		} `json:"logprobs"`
		PromptLogprobs []map[string]struct {
			Logprob *float64 `json:"logprob"`
		} `json:"prompt_logprobs"`
	} `json:"choices"`
	PromptTokenIDs []int32 `json:"prompt_token_ids"`
	Usage          *usage  `json:"usage"`
}

// decodeText reads a continuation as a completion whose message is the text as it is.
func decodeText(raw []byte) (completion, error) {
	var answer textCompletion
	if err := decodeInto(raw, &answer); err != nil {
		return completion{}, err
	}
	got := completion{Model: answer.Model, Usage: answer.Usage, PromptTokenIDs: answer.PromptTokenIDs}
	for _, t := range answer.Choices {
		one := choice{Message: message{Content: text(t.Text)}, FinishReason: t.FinishReason, TokenIDs: t.TokenIDs}
		if len(t.PromptTokenIDs) > 0 {
			got.PromptTokenIDs = t.PromptTokenIDs
		}
		if t.Logprobs != nil {
			one.Logprobs = new(logprobList)
			for _, p := range t.Logprobs.TokenLogprobs {
				one.Logprobs.Content = append(one.Logprobs.Content, tokenLogprob{alternative: alternative{Logprob: p}})
			}
		}
		got.Choices = append(got.Choices, one)
	}
	return got, nil
}

// root returns the address of endpoints that are not part of OpenAI's interface: the base URL without /v1.
func (c *Client) root() string { return strings.TrimSuffix(c.base, "/v1") }
