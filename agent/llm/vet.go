package llm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"deepswe/agent"
)

// ErrUntrainable means that the token ids or logprobs of an endpoint cannot be learned from.
var ErrUntrainable = errors.New("the endpoint's samples cannot be learned from")

// Vet makes sure that token ids and logprobs come with replies, and that the logprobs are those of the distribution
// that is sampled at the temperature. It looks for what would make a difference: logprobs from before the
// temperature, a filter of the server's own (top_k and others, which requests switch off), and at temperature 1 a
// second scoring of the same tokens with another result. A failure of that kind wraps [ErrUntrainable].
func (c *Client) Vet(ctx context.Context, temperature float64) error {
	sampled, err := c.Complete(ctx, vetting(temperature))
	if err != nil {
		return err
	}
	s := sampled.Tokens
	switch {
	case s == nil || len(s.CompletionIDs) == 0:
		return untrainable("it returns no token ids with logprobs; to fix: use vLLM 0.10.2 or newer")
	case temperature != 1 && c.rawLogprobs(ctx):
		return untrainable("its logprobs are those from before the temperature, and the temperature is %g; to fix: start "+
			"vLLM with --logprobs-mode processed_logprobs, or sample at temperature 1", temperature)
	}
	if len(s.Logprobs) > 4 && !slices.ContainsFunc(s.Logprobs, func(v float64) bool { return v != 0 }) {
		return untrainable("all of %d logprobs are 0; to fix: let the server return them", len(s.Logprobs))
	}
	if temperature == 1 {
		if err := c.rescore(ctx, s); err != nil {
			return err
		}
	}
	return c.findFilter(ctx, temperature)
}

func untrainable(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUntrainable}, args...)...)
}

// vetting asks for words that no model is sure about.
func vetting(temperature float64) agent.Request {
	return agent.Request{
		Messages: []agent.Message{
			{Role: agent.RoleUser, Content: "Write a few words that nobody could guess, as unlikely as you can."},
		},
		MaxTokens: 24, Tokens: true, Sampling: agent.OnPolicy(&temperature),
	}
}

// driftAllowed is how much a second scoring may differ on average: at low precision it does, by some hundredths.
const driftAllowed = 0.1

// rescore lets the server score its own sample. A server that cannot do this is accepted.
func (c *Client) rescore(ctx context.Context, s *agent.Sample) error {
	again, err := c.Score(ctx, slices.Concat(s.PromptIDs, s.CompletionIDs))
	if failed, ok := errors.AsType[*Error](err); ok && !failed.gone {
		return nil
	}
	if err != nil {
		return err
	}
	again = again[len(again)-len(s.CompletionIDs):]
	sum := 0.0
	for i, v := range again {
		sum += math.Abs(v - s.Logprobs[i])
	}
	if mean := sum / float64(len(again)); mean > driftAllowed {
		return untrainable("the logprobs of %d sampled tokens and a second scoring of them differ by %.3g in the mean; "+
			"to fix: look for top_k, top_p, min_p or penalties that the server adds (vLLM: --generation-config vllm, "+
			"--override-generation-config), or for samplers with different weights behind one address", len(again), mean)
	}
	return nil
}

// Score returns the logprob of each token after the first, given those before it, as the model has them at temperature
// 1.
func (c *Client) Score(ctx context.Context, ids []int32) ([]float64, error) {
	model, err := c.modelName(ctx)
	if err != nil {
		return nil, err
	}
	b := &completionBody{
		Model: model, Prompt: ids, MaxTokens: 1, PromptLogprobs: new(int),
		Sampling: agent.Sampling{Temperature: new(0.0)},
	}
	var answer textCompletion
	err = c.retry(ctx, c.patience(agent.Request{}), func(ctx context.Context, _ *dialect) *Error {
		return c.askOnce(ctx, wholeAnswer, c.base+"/completions", b, func(raw []byte) error {
			err := decodeInto(raw, &answer)
			if err == nil && (len(answer.Choices) != 1 || len(answer.Choices[0].PromptLogprobs) != len(ids)) {
				err = fmt.Errorf("%w: it does not score prompts", errUnusable)
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	logprobs := make([]float64, len(ids)-1)
	for i := range logprobs {
		scored, ok := answer.Choices[0].PromptLogprobs[i+1][fmt.Sprint(ids[i+1])]
		if !ok || scored.Logprob == nil {
			return nil, fmt.Errorf("%w: token %d of the prompt has no logprob", ErrUntrainable, i+1)
		}
		logprobs[i] = *scored.Logprob
	}
	return logprobs, nil
}

// likeliest is how many alternatives are asked for at each place, and filterTokens how many places are looked at.
const (
	likeliest    = 20
	filterTokens = 192
	// expected is how many samples must be expected outside of a filter for it to be proved if there are none: by
	// chance, that happens once in 3,000 times.
	expected = 8.0
)

// filter is a set of the likeliest tokens at each position, to which a server may restrict its samples. outside
// counts the samples outside of it, and expected is how many there should be without it.
type filter struct {
	name string
	// tokens and mass bound the set by number and by probability; 0 is no bound.
	tokens int
	mass   float64

	outside  int
	expected float64
}

// findFilter looks for a filter that the server applies although requests switch it off: it counts how many samples
// are outside of it, and how many there should be. A server that returns no alternatives is accepted. Where the model
// is certain, a filter cannot be seen, and matters little.
func (c *Client) findFilter(ctx context.Context, temperature float64) error {
	r := vetting(temperature)
	r.Tokens, r.MaxTokens = false, filterTokens
	spelled, err := c.Spell(ctx, r, likeliest)
	if failed, ok := errors.AsType[*Error](err); ok && !failed.gone {
		return nil
	}
	if err != nil {
		return err
	}
	filters := []filter{
		{name: "top_k", tokens: likeliest - 1}, {name: "top_p of 0.8 or less", mass: 0.8},
		{name: "top_p of 0.9 or less", mass: 0.9}, {name: "top_p of 0.95 or less", mass: 0.95},
	}
	for _, f := range filters {
		for _, t := range spelled.Tokens {
			f.count(t)
		}
		if f.outside == 0 && f.expected >= expected {
			return untrainable("of %d sampled tokens none is outside of a %s, and %.0f should be: the server filters what it "+
				"samples, although requests switch that off; to fix: look for %s in its own settings or in a proxy",
				len(spelled.Tokens), f.name, f.expected, strings.Fields(f.name)[0])
		}
	}
	return nil
}

// count adds a sampled token, unless too few alternatives are known.
func (f *filter) count(t Token) {
	known := []float64{t.Logprob}
	listed := false
	for _, o := range t.Top {
		if !listed && o.Text == t.Text && o.Logprob == t.Logprob {
			listed = true
			continue
		}
		known = append(known, o.Logprob)
	}
	if len(known) < likeliest {
		return
	}
	slices.SortFunc(known, func(a, b float64) int { return cmp.Compare(b, a) })
	inside, mass := 0, 0.0
	for _, logprob := range known {
		if f.tokens > 0 && inside == f.tokens || f.mass > 0 && mass >= f.mass {
			break
		}
		inside++
		mass += math.Exp(logprob)
	}
	if f.mass > 0 && mass < f.mass || inside < len(known) && known[inside] == known[inside-1] {
		return // the end of the set is not known, or not which of several equally likely tokens are in it
	}
	f.expected += max(0, 1-mass)
	if t.Logprob < known[inside-1] {
		f.outside++
	}
}
