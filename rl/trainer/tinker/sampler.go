package tinker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"deepswe/agent"
	"deepswe/rl"
)

// Renderer speaks a model's language: conversations as the ids that the model reads, and ids that it wrote as messages.
type Renderer interface {
	// Render returns a request's conversation up to the place where the model is to answer.
	Render(r agent.Request) ([]int32, error)
	// Continue returns what follows the ids of an answer, as it was sampled, up to the place where the model is to answer
	// again: the end of the answer, where it was cut off, and the messages that came after it.
	Continue(answer []int32, after agent.Request) ([]int32, error)
	// Parse turns a sampled answer into a message.
	Parse(answer []int32) (agent.Message, error)
	// Stop lists the ids that end an answer. Some servers stop at no other.
	Stop() []int32
}

// source is what is sampled from.
type source struct {
	session string
	version int64
	model   string
}

// Sampler samples from what its trainer has published last, through the server's own asample. Replies say which version
// that was. Turns begin only while that policy is not being replaced.
type Sampler struct {
	client   *Client
	renderer Renderer
	length   int // of the longest sequence, 0 for unknown
	gate     *gate

	mu      sync.Mutex
	current source
	known   conversations
}

func newSampler(c *Client, r Renderer, length int) *Sampler {
	return &Sampler{client: c, renderer: r, length: length, gate: newGate()}
}

func (s *Sampler) set(to source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = to
}

func (s *Sampler) source() source {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// defaultReply bounds a reply where neither the request nor the server's context does.
const defaultReply = 4096

// Complete samples an answer. What would bend the distribution is refused, except for the temperature: servers return
// the log-probabilities of temperature 1 at any other, so such a reply has no tokens.
func (s *Sampler) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	start := time.Now()
	temperature, err := temperatureOf(r.Sampling)
	if err != nil {
		return agent.Reply{}, err
	}
	prompt, conversation, err := s.prompt(r)
	if err != nil {
		return agent.Reply{}, fmt.Errorf("render the conversation: %w", err)
	}
	limit := r.MaxTokens
	if s.length > 0 {
		left := s.length - len(prompt)
		if left < 1 {
			return agent.Reply{}, fmt.Errorf("the conversation has %d tokens and the context %d: %w", len(prompt), s.length,
				agent.ErrContextOverflow)
		}
		if limit == 0 || limit > left {
			limit = left
		}
	}
	if limit == 0 {
		limit = defaultReply
	}
	if err := s.gate.enter(ctx); err != nil {
		return agent.Reply{}, err
	}
	defer s.gate.leave()
	from := s.source()
	sequences, err := s.draw(ctx, from, conversation, sampleRequest{
		Prompt: inputOf(prompt), Samples: 1,
		Params: samplingParams{
			MaxTokens: limit, Seed: shortSeed(r.Sampling.Seed), Temperature: temperature, TopK: -1, TopP: 1,
			Stop: s.renderer.Stop(),
		},
	})
	if err != nil {
		return agent.Reply{}, err
	}
	return s.reply(r, prompt, conversation, sequences[0], from, temperature, start)
}

// shortSeed keeps 31 bits of a seed: what servers add to it must not overflow.
func shortSeed(seed *int64) *int64 {
	if seed == nil {
		return nil
	}
	return new(*seed & 0x7fffffff)
}

// reply makes the answer of a turn from what was sampled.
func (s *Sampler) reply(r agent.Request, prompt []int32, conversation int64, q Sequence, from source,
	temperature float64, start time.Time) (agent.Reply, error) {
	message, err := s.renderer.Parse(q.Tokens)
	if err != nil {
		return agent.Reply{}, fmt.Errorf("read the answer: %w", err)
	}
	if r.OnText != nil {
		r.OnText(message.Content)
	}
	s.remember(r, message, prompt, q.Tokens, conversation)
	reply := agent.Reply{
		Message: message, FinishReason: q.StopReason, Model: from.model,
		Usage:   agent.Usage{Prompt: len(prompt), Completion: len(q.Tokens)},
		Elapsed: time.Since(start),
	}
	if r.Tokens && temperature == 1 {
		reply.Tokens = &agent.Sample{
			PromptIDs: prompt, CompletionIDs: q.Tokens, Logprobs: q.Logprobs, PolicyVersion: &from.version,
		}
	}
	return reply, nil
}

// draw samples. A result that the server has dropped is sampled again: with the same seed it is the same.
func (s *Sampler) draw(ctx context.Context, from source, conversation int64, q sampleRequest) ([]Sequence, error) {
	q.Session, q.Sequence, q.Type = from.session, conversation, "sample"
	for n := 1; ; n++ {
		sequences, err := s.drawn(ctx, q)
		forgotten := errors.Is(err, ErrExpired) || errors.Is(err, ErrUnknown) && !errors.Is(err, rl.ErrTrainerLost)
		if forgotten && n < 3 {
			continue
		}
		if errors.Is(err, ErrUnknown) {
			err = lost(err) // the session is gone
		}
		return sequences, err
	}
}

func (s *Sampler) drawn(ctx context.Context, q sampleRequest) ([]Sequence, error) {
	var reply accepted
	if err := s.client.call(ctx, "asample", q, &reply, true); err != nil {
		return nil, unreachable(err)
	}
	var out struct {
		Sequences []Sequence `json:"sequences"`
	}
	if err := s.client.wait(ctx, promise{operation: "asample", request: reply.Request}, &out); err != nil {
		return nil, unreachable(err)
	}
	broken := func(format string, args ...any) error {
		return &Error{Operation: "asample", Kind: ErrServer, Detail: fmt.Sprintf(format, args...)}
	}
	if len(out.Sequences) != q.Samples {
		return nil, broken("%d sequences for %d", len(out.Sequences), q.Samples)
	}
	for _, seq := range out.Sequences {
		switch {
		case len(seq.Tokens) == 0:
			return nil, broken("an empty sequence")
		case len(seq.Logprobs) != len(seq.Tokens):
			return nil, broken("%d logprobs for %d tokens", len(seq.Logprobs), len(seq.Tokens))
		case !seq.Logprobs.finite():
			return nil, lost(broken("a logprob is not finite; to fix: restart the server, whose weights are broken"))
		}
	}
	return out.Sequences, nil
}

// unreachable marks a server that has gone away: with it went the model.
func unreachable(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return lost(err)
	}
	return err
}

// temperatureOf refuses what the server cannot do or would not report the probabilities of.
func temperatureOf(s agent.Sampling) (float64, error) {
	invalid := func(format string, args ...any) (float64, error) {
		return 0, &Error{Operation: "asample", Kind: ErrInvalid, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case s.TopP != nil && *s.TopP != 1:
		return invalid("top_p %g: want 1", *s.TopP)
	case s.TopK != nil && *s.TopK > 0:
		return invalid("top_k %d: want 0 or -1", *s.TopK)
	case s.MinP != nil && *s.MinP != 0:
		return invalid("min_p %g: want 0", *s.MinP)
	case s.RepetitionPenalty != nil && *s.RepetitionPenalty != 1:
		return invalid("repetition_penalty %g: want 1", *s.RepetitionPenalty)
	case s.Temperature == nil:
		return 1, nil
	case !(*s.Temperature >= 0) || math.IsInf(*s.Temperature, 1):
		return invalid("temperature %g: want a number from 0", *s.Temperature)
	}
	return *s.Temperature, nil
}
