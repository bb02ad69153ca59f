package llm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"deepswe/agent"
	"deepswe/env"
)

// Alternative is a possible token at a position, with its log-probability.
type Alternative struct {
	Text    string
	Logprob float64
}

// Token is a token of a reply, with the most probable tokens at its place; most servers list the token itself among
// them.
type Token struct {
	Alternative
	Top []Alternative
}

// Spelling is a reply token by token.
type Spelling struct {
	Reply agent.Reply
	// Tokens are those of the whole completion, including thoughts; nil if the endpoint returns no logprobs.
	Tokens []Token
	// Top is the number of requested alternatives, which is lower than wanted if the endpoint allows fewer.
	Top int
}

// Spell asks for one message like [Client.Complete], and for the top most probable tokens at each place. If the
// endpoint allows fewer, it requests fewer; if it returns no logprobs, it returns the reply alone. If the last message
// is the assistant's, the model continues it; servers other than vLLM and SGLang may begin a new one instead.
func (c *Client) Spell(ctx context.Context, r agent.Request, top int) (Spelling, error) {
	model, err := c.modelName(ctx)
	if err != nil {
		return Spelling{}, fmt.Errorf("choose a model: %w", err)
	}
	r.OnText = nil // the answer comes whole
	for {
		if most := c.mostTop.Load(); most != nil {
			top = min(top, *most)
		}
		var s Spelling
		err := c.retry(ctx, c.patience(r), func(ctx context.Context, d *dialect) *Error {
			b := newBody(r, model, d)
			b.Stream, b.StreamOptions = false, nil
			if top > 0 && !d.refuses(logprobs) && !d.refuses(topLogprobs) {
				b.Logprobs, b.TopLogprobs = true, top
			}
			if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == agent.RoleAssistant {
				b.ContinueFinalMessage, b.AddGenerationPrompt = true, new(bool)
			}
			var failed *Error
			s, failed = c.spelling(ctx, b, r)
			return failed
		})
		fewer, refused := fewerTop(err, top)
		if !refused {
			return s, err
		}
		c.mostTop.Store(&fewer)
	}
}

// spelling sends the request once.
func (c *Client) spelling(ctx context.Context, b *body, r agent.Request) (Spelling, *Error) {
	got, reply, failed := c.once(ctx, b, r)
	if failed != nil {
		return Spelling{}, failed
	}
	s := Spelling{Reply: reply, Top: b.TopLogprobs}
	if probs := got.Choices[0].Logprobs; probs != nil && b.Logprobs {
		for _, p := range probs.Content {
			if p.Logprob == nil {
				return s, nil // the server does not really support logprobs: return the reply alone
			}
			t := Token{Alternative: Alternative{p.Token, *p.Logprob}}
			for _, o := range p.Top {
				if o.Logprob != nil {
					t.Top = append(t.Top, Alternative{o.Token, *o.Logprob})
				}
			}
			s.Tokens = append(s.Tokens, t)
		}
	}
	return s, nil
}

// fewTop is the number of alternatives that every server with logprobs can return.
const fewTop = 5

// topBound matches how servers say how many alternatives they give.
var topBound = env.Pattern(`(?i)(?:max(?:imum)?(?: allowed)?|less than or equal to|at most|<=|up to|` +
	`between 0 and)[^0-9]{0,12}(\d+)`)

// fewerTop reports whether a request was refused for the number of alternatives, and returns how many to try next.
func fewerTop(err error, top int) (fewer int, refused bool) {
	failed, ok := errors.AsType[*Error](err)
	if !ok || top == 0 || failed.Status != http.StatusBadRequest && failed.Status != http.StatusUnprocessableEntity ||
		!strings.Contains(strings.ToLower(failed.said.Message+failed.said.Param), "logprobs") {
		return 0, false
	}
	if m := topBound().FindStringSubmatch(failed.said.Message); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil && n < top {
			return n, true
		}
	}
	if top > fewTop {
		return fewTop, true
	}
	return 0, true
}
