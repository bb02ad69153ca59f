package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/env/disk"
)

// Endpoint is a judge model. [llm.Client] is one.
type Endpoint interface {
	// Spell completes a conversation. The result includes the most probable tokens at each position, if the endpoint
	// returns them.
	Spell(ctx context.Context, r agent.Request, top int) (llm.Spelling, error)
}

// Judge scores candidates. Endpoint, Model and Pack are required. It is safe for concurrent use.
type Judge struct {
	Endpoint Endpoint
	// Model is the name of the model; scores of another one are not used again.
	Model string
	Pack  Pack
	// Context is how many tokens the model takes: 65536 when 0.
	Context int
	// Samples is the number of answers to sample if the endpoint returns no logprobs; 0 means 8.
	Samples int
}

// The defaults of a Judge.
const (
	DefaultContext = 65536
	DefaultSamples = 8
)

const (
	// topTokens is how many alternatives are asked for, the most that common servers give.
	topTokens = 20
	// longestAnswer is how many tokens are kept free for an answer: a judge that thinks needs many, and one that was
	// trained needs seven.
	longestAnswer = 4096
	// version changes when the same evidence would be asked about in another way.
	version = 1
)

// Method says where a score comes from.
type Method string

// The methods.
const (
	// ByLogprobs: from the probabilities of the token in which the answer begins.
	ByLogprobs Method = "logprobs"
	// ByOpening: the same, in a second request that begins the reply with the answer's tag: the first had no answer.
	ByOpening Method = "logprobs_after_tag"
	// BySamples: the share of YES among sampled answers, because the endpoint gives no logprobs.
	BySamples Method = "samples"
)

// Judgement is the result of asking about a candidate.
type Judgement struct {
	// Score is nil if there is none; Reason says why.
	Score  *float64 `json:"score"`
	Reason string   `json:"reason,omitempty"`
	Bound  Bound    `json:"bound,omitempty"`
	Method Method   `json:"method,omitempty"`
	// Mass is the probability of each answer, or its share of the samples.
	Mass Mass `json:"mass,omitzero"`
	// Position is the token of the completion that the answer begins in, Top how many alternatives were listed there.
	Position int `json:"position,omitempty"`
	Top      int `json:"top,omitempty"`
	// Samples is the number of readable samples.
	Samples   int       `json:"samples,omitempty"`
	Condensed Condensed `json:"condensed,omitzero"`
	// Calls is the number of requests, Tokens the sum of their prompt and completion tokens.
	Calls  int `json:"calls"`
	Tokens int `json:"tokens,omitempty"`
}

// Key identifies a judgement: it changes with the model, its context, the pack, and everything that the judge reads. A
// judgement under the same key may be used again.
func (j *Judge) Key(e Evidence) string {
	return disk.Digest(struct {
		Version          int
		Model            string
		Context, Samples int
		Pack             Pack
		Evidence         Evidence
	}{version, j.Model, j.context(), j.samples(), j.Pack, e})
}

func (j *Judge) context() int { return cmp.Or(j.Context, DefaultContext) }
func (j *Judge) samples() int { return cmp.Or(j.Samples, DefaultSamples) }

// reserve is the number of tokens that are reserved for the answer.
func (j *Judge) reserve() int { return min(longestAnswer, j.context()/8) }

// Budget is how many tokens a conversation may have: the judge's context without what is kept free.
func (j *Judge) Budget() int { return j.context() - j.reserve() - min(spare, j.context()/8) }

// Score asks about a candidate. An error is a failure of the endpoint. If the candidate itself cannot be scored, the
// judgement has no score.
func (j *Judge) Score(ctx context.Context, e Evidence) (Judgement, error) {
	budget := j.Budget()
	for try := 0; ; try++ {
		messages, condensed, err := j.Pack.Conversation(e, budget)
		if err != nil {
			return Judgement{Reason: err.Error(), Condensed: condensed, Calls: try}, nil
		}
		out, err := j.ask(ctx, messages)
		out.Condensed = condensed
		out.Calls += try
		switch {
		case err == nil:
			return out, nil
		case !errors.Is(err, agent.ErrContextOverflow):
			return Judgement{}, fmt.Errorf("ask the judge: %w", err)
		case try == maxShrinks:
			return Judgement{Reason: "the endpoint says that it does not fit: " + err.Error(), Calls: try + 1}, nil
		}
		// The text has more tokens than estimated.
		budget = min(budget, size(messages)) * 4 / 5
	}
}

// maxShrinks is how often more is condensed because the endpoint refuses the length.
const maxShrinks = 6

func size(messages []agent.Message) int {
	n := 0
	for _, m := range messages {
		n += len(m.Content)
	}
	return tokens(n)
}

// ask makes a judgement of a conversation that fits.
func (j *Judge) ask(ctx context.Context, messages []agent.Message) (Judgement, error) {
	zero := 0.0
	request := agent.Request{
		Messages: messages, MaxTokens: j.reserve(), Sampling: agent.Sampling{Temperature: &zero},
	}
	s, err := j.Endpoint.Spell(ctx, request, topTokens)
	out := Judgement{Calls: 1, Method: ByLogprobs, Top: s.Top, Tokens: used(s)}
	if err != nil {
		return out, err
	}
	if s.Tokens == nil {
		return j.sample(ctx, request, out)
	}
	at, inPieces, found := locate(s.Tokens)
	if !found {
		return j.open(ctx, request, out)
	}
	out.Position = at
	out.settle(weigh(s.Tokens[at], inPieces))
	return out, nil
}

// settle computes the score.
func (out *Judgement) settle(m Mass) {
	out.Mass = m
	s, bound, ok := m.score()
	if !ok {
		out.Reason = fmt.Sprintf("neither YES nor NO is among the %d most probable tokens where the answer should stand",
			out.Top)
		return
	}
	out.Score, out.Bound = &s, bound
}

// open asks a judge that has not answered once more, with a reply that begins with the answer's tag.
func (j *Judge) open(ctx context.Context, r agent.Request, out Judgement) (Judgement, error) {
	r.Messages = append(r.Messages[:len(r.Messages):len(r.Messages)],
		agent.Message{Role: agent.RoleAssistant, Content: answerTag})
	r.MaxTokens = 1
	s, err := j.Endpoint.Spell(ctx, r, topTokens)
	out.Calls++
	out.Tokens += used(s)
	refused := (*llm.Error)(nil)
	switch {
	case errors.As(err, &refused) && refused.Status/100 == 4 && !errors.Is(err, agent.ErrContextOverflow):
		out.Method, out.Reason = "", "its reply has no YES or NO, and the endpoint does not continue a reply begun for it"
		return out, nil
	case err != nil:
		return out, err
	case len(s.Tokens) == 0:
		out.Method, out.Reason = "", "its reply has no YES or NO"
		return out, nil
	}
	out.Method = ByOpening
	out.settle(weigh(s.Tokens[0], false))
	return out, nil
}

// sample draws answers.
func (j *Judge) sample(ctx context.Context, r agent.Request, out Judgement) (Judgement, error) {
	out.Method, out.Top = BySamples, 0
	one := 1.0
	r.Sampling = agent.Sampling{Temperature: &one, TopP: &one}
	yeses, total := 0, 0
	for i := range j.samples() {
		seed := int64(i + 1)
		r.Sampling.Seed = &seed
		s, err := j.Endpoint.Spell(ctx, r, 0)
		if err != nil {
			return out, err
		}
		out.Calls++
		out.Tokens += used(s)
		// A server that separates thoughts may take a reply without any for one.
		if _, word, ok := find(cmp.Or(s.Reply.Message.Content, s.Reply.Message.Reasoning)); ok {
			total++
			if word == yes {
				yeses++
			}
		}
	}
	if out.Samples = total; total == 0 {
		out.Reason = fmt.Sprintf("none of %d sampled replies has a YES or NO", j.samples())
		return out, nil
	}
	share := float64(yeses) / float64(total)
	out.Score, out.Mass = &share, Mass{Yes: share, No: 1 - share}
	return out, nil
}

func used(s llm.Spelling) int { return s.Reply.Usage.Prompt + s.Reply.Usage.Completion }

// Valid reports whether a recorded score can be one.
func Valid(score float64) bool { return !math.IsNaN(score) && score >= 0 && score <= 1 }
