package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"deepswe/agent"
	"deepswe/env"
	"deepswe/rl"
)

// Codec converts conversations to the ids that the model reads, and the ids that it has sampled to messages.
// chatml.Codec is one.
type Codec interface {
	// Prompt returns the ids of a request's conversation, up to where the model replies. If r.Sampled is set, they
	// begin with its ids.
	Prompt(ctx context.Context, r agent.Request) ([]int32, error)
	// Reply decodes the ids that were sampled for a request.
	Reply(ids []int32, r agent.Request) agent.Message
	// Stop returns the ids that end a reply. Some servers stop at no others.
	Stop() []int32
}

// source is a sampling session with its version. whole is set if all weights are trained.
type source struct {
	session string
	version int64
	model   string
	whole   bool
}

// serverSampler samples from the latest published policy, with the server's own asample. Replies contain its version.
// No turn begins while the policy is being replaced.
type serverSampler struct {
	client *Client
	codec  Codec
	length int // maximum length of a sequence in tokens; 0 if it is not known
	gate   *gate

	current atomic.Pointer[source]
	// named is set once sampling by session has failed because the server's engines serve the latest weights under the
	// base model's name only. SkyRL's GPU backends do that if they train all weights and sample on separate engines.
	named   atomic.Bool
	unnamed atomic.Int64 // number of requests so far that named no rollout
}

func newSampler(c *Client, codec Codec, length int) *serverSampler {
	s := &serverSampler{client: c, codec: codec, length: length, gate: newGate()}
	s.current.Store(&source{})
	return s
}

func (s *serverSampler) close()                      { s.gate.close() }
func (s *serverSampler) servers() (ready, aside int) { return 1, 0 }

// publish makes the model's current weights the policy.
func (s *serverSampler) publish(ctx context.Context, m *Model, number, version int64) (agent.Model, error) {
	session, err := m.publish(ctx, number)
	if err != nil {
		return nil, err
	}
	if session == s.current.Load().session {
		return nil, fmt.Errorf("%w: the server gave the sampling session of the last publication again", rl.ErrApart)
	}
	s.current.Store(&source{session: session, version: version, model: m.options.Base, whole: m.options.Rank == 0})
	return s, nil
}

// check samples sequences while no turn is sampled.
func (s *serverSampler) check(ctx context.Context, seed int64, tokens int) ([]rl.Row, error) {
	prompt, err := s.codec.Prompt(ctx, agent.Request{
		Messages: []agent.Message{{Role: agent.RoleUser, Content: "check"}},
	})
	if err != nil {
		return nil, err
	}
	n := min(checkSequences, tokens)
	length := (tokens + n - 1) / n
	if s.length > 0 {
		length = min(length, s.length-len(prompt))
	}
	sequences, err := s.draw(ctx, *s.current.Load(), 0, sampleRequest{
		Prompt: inputOf(prompt), Samples: n,
		Params: samplingParams{MaxTokens: length, Seed: &seed, Temperature: 1, TopK: -1, TopP: 1},
	})
	if err != nil {
		return nil, err
	}
	rows := make([]rl.Row, len(sequences))
	for i, q := range sequences {
		rows[i] = rowOf(checkTask, i, &agent.Sample{PromptIDs: prompt, CompletionIDs: q.Tokens, Logprobs: q.Logprobs})
	}
	return rows, nil
}

// defaultReply limits a reply if neither the request nor the server's context does.
const defaultReply = 4096

// Complete samples a reply. It refuses settings that would change the distribution, except for the temperature. Servers
// return the log-probabilities of temperature 1 whatever the temperature is, so replies at another one have no tokens.
func (s *serverSampler) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	start := time.Now()
	temperature, err := rl.Temperature(r.Sampling)
	if err != nil {
		return agent.Reply{}, invalidf("asample", "%v", err)
	}
	prompt, err := s.codec.Prompt(ctx, r)
	if err != nil {
		return agent.Reply{}, fmt.Errorf("render the conversation: %w", err)
	}
	limit, err := s.limit(len(prompt), r.MaxTokens)
	if err != nil {
		return agent.Reply{}, err
	}
	if err := s.enter(ctx, r); err != nil {
		return agent.Reply{}, err
	}
	defer s.gate.leave()
	from := *s.current.Load()
	sequences, err := s.draw(ctx, from, s.route(r.Rollout), sampleRequest{
		Prompt: inputOf(prompt), Samples: 1,
		Params: samplingParams{
			MaxTokens: limit, Seed: shortSeed(r.Sampling.Seed), Temperature: temperature, TopK: -1, TopP: 1,
			Stop: s.codec.Stop(),
		},
	})
	if err != nil {
		return agent.Reply{}, err
	}
	return s.reply(r, prompt, sequences[0], from, temperature, start), nil
}

// enter waits until turns may begin. Waiting for a publication does not count towards the rollout's time limit.
func (s *serverSampler) enter(ctx context.Context, r agent.Request) error {
	if s.gate.tryEnter() {
		return nil
	}
	if r.Waiting != nil {
		defer r.Waiting()()
	}
	return s.gate.enter(ctx)
}

// limit returns how many tokens the reply to a prompt may have, at most asked if that is not 0.
func (s *serverSampler) limit(prompt, asked int) (int, error) {
	if s.length == 0 {
		return cmp.Or(asked, defaultReply), nil
	}
	left := s.length - prompt
	if left < 1 {
		return 0, fmt.Errorf("the conversation has %d tokens and the context %d: %w", prompt, s.length,
			agent.ErrContextOverflow)
	}
	return min(cmp.Or(asked, left), left), nil
}

// route returns the number by which servers send the turns of a rollout to the same engine.
func (s *serverSampler) route(rollout string) int64 {
	if rollout != "" {
		h := fnv.New32a()
		h.Write([]byte(rollout))
		return int64(h.Sum32() >> 1)
	}
	return s.unnamed.Add(1)
}

// shortSeed returns 31 bits of a seed, because servers add to it and must not overflow.
func shortSeed(seed *int64) *int64 {
	if seed == nil {
		return nil
	}
	return new(*seed & 0x7fffffff)
}

// reply returns the reply of a turn from the sampled sequence.
func (s *serverSampler) reply(r agent.Request, prompt []int32, q Sequence, from source, temperature float64,
	start time.Time) agent.Reply {
	message := s.codec.Reply(q.Tokens, r)
	if r.OnText != nil {
		r.OnText(message.Content)
	}
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
	return reply
}

// unforwarded is in SkyRL's error for a session that its engines do not know.
const unforwarded = "/v1/completions returned 404"

// withoutEngines matches SkyRL's errors if it has no engines to sample from, as after a restart. It starts them when a
// model is created.
var withoutEngines = env.Pattern(`Cannot connect to host|inference engine not ready`)

// draw samples a sequence. If the server has dropped the result, it is sampled again, with the same result because the
// seed is the same.
func (s *serverSampler) draw(ctx context.Context, from source, route int64, q sampleRequest) ([]Sequence, error) {
	q.Sequence, q.Type = route, "sample"
	for n := 1; ; n++ {
		named := s.named.Load()
		if q.Session, q.Base = from.session, ""; named {
			q.Session, q.Base = "", from.model
		}
		sequences, err := s.drawn(ctx, q)
		if from.whole && !named && errors.Is(err, ErrOperation) && strings.Contains(err.Error(), unforwarded) {
			s.named.Store(true)
			continue
		}
		forgotten := errors.Is(err, ErrExpired) || errors.Is(err, ErrUnknown) && !errors.Is(err, rl.ErrTrainerLost)
		if forgotten && n < 3 {
			continue
		}
		if errors.Is(err, ErrUnknown) {
			err = lost(err) // the session no longer exists
		}
		return sequences, err
	}
}

func (s *serverSampler) drawn(ctx context.Context, q sampleRequest) ([]Sequence, error) {
	const operation = "asample"
	var out sampleOutput
	err := s.client.repeatable(ctx, operation, q, &out)
	if errors.Is(err, errUnavailable) || errors.Is(err, ErrOperation) && withoutEngines().MatchString(err.Error()) {
		err = lost(err) // the model is not available either
	}
	if err != nil {
		return nil, err
	}
	if len(out.Sequences) != q.Samples {
		return nil, faultf(operation, "%d sequences for %d", len(out.Sequences), q.Samples)
	}
	for _, seq := range out.Sequences {
		switch {
		case len(seq.Tokens) == 0:
			return nil, faultf(operation, "an empty sequence")
		case len(seq.Logprobs) != len(seq.Tokens):
			return nil, faultf(operation, "%d logprobs for %d tokens", len(seq.Logprobs), len(seq.Tokens))
		case slices.ContainsFunc(seq.Logprobs, infinite):
			return nil, lost(faultf(operation, "a logprob is not finite; to fix: restart the server, whose weights are broken"))
		}
	}
	return out.Sequences, nil
}
