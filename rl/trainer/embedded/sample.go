package embedded

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"deepswe/agent"
	"deepswe/rl"
)

// sampler is a published policy as a model: it answers with the weights of one Publish.
type sampler struct {
	p       *Trainer
	weights *snapshot
}

// Complete samples an answer. The temperature is 1 unless the request says otherwise, and 0 takes the likeliest token;
// every filter that would bend the distribution (top_p, top_k, min_p, repetition penalty) is refused unless it is
// neutral, because the log-probabilities would be wrong. They are those of the distribution that was sampled from, so
// all zero at temperature 0.
//
// The same request with the same Sampling.Seed and the same weights is answered alike. Without a seed, answers depend
// on the order of the calls.
func (m sampler) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	if err := ctx.Err(); err != nil {
		return agent.Reply{}, err
	}
	p, start := m.p, time.Now()
	temperature, err := rl.Temperature(r.Sampling)
	if err != nil {
		return agent.Reply{}, fmt.Errorf("embedded policy: %w", err)
	}
	prompt, err := p.tokens.prompt(r)
	if err != nil {
		return agent.Reply{}, fmt.Errorf("embedded policy: %w", err)
	}
	if err := p.network.check(prompt); err != nil {
		return agent.Reply{}, fmt.Errorf("embedded policy: %w: %w", err, agent.ErrContextOverflow)
	}
	limit := p.options.Reply
	if r.MaxTokens > 0 {
		limit = min(limit, r.MaxTokens)
	}
	d := p.network.beginContext(m.weights.weights, prompt)
	completion, logprobs := p.sample(d, limit, temperature, p.random(r.Sampling.Seed))
	text := p.tokens.decode(completion)
	finish := "length"
	if completion[len(completion)-1] == p.tokens.end {
		finish = "stop"
	}
	if r.OnText != nil {
		r.OnText(text)
	}
	reply := agent.Reply{
		Message:      agent.Message{Role: agent.RoleAssistant, Content: text},
		FinishReason: finish,
		Usage:        agent.Usage{Prompt: len(prompt), Completion: len(completion)},
		Model:        "embedded-v" + strconv.FormatInt(m.weights.version, 10),
		Elapsed:      time.Since(start),
	}
	if r.Tokens {
		reply.Tokens = &agent.Sample{PromptIDs: prompt, CompletionIDs: completion, Logprobs: logprobs}
	}
	return reply, nil
}

// sample draws tokens until the end of the message or the limit.
func (p *Trainer) sample(d decoder, limit int, temperature float64, r *rand.Rand) (ids []int32, logprobs []float64) {
	for range limit {
		distribution, _ := d.predict(false)
		id, lp := draw(distribution, temperature, r)
		ids, logprobs = append(ids, id), append(logprobs, lp)
		if id == p.tokens.end {
			break
		}
		d.push(id)
	}
	return ids, logprobs
}

// draw takes one token by the inverse of the cumulative distribution. It may change logprobs.
func draw(logprobs []float64, temperature float64, r *rand.Rand) (int32, float64) {
	if temperature == 0 {
		best := 0
		for i, lp := range logprobs {
			if lp > logprobs[best] {
				best = i
			}
		}
		return int32(best), 0
	}
	if temperature != 1 {
		for i := range logprobs {
			logprobs[i] /= temperature
		}
		logSoftmax(logprobs)
	}
	u := r.Float64()
	for i, lp := range logprobs {
		if u -= math.Exp(lp); u < 0 {
			return int32(i), lp
		}
	}
	// The probabilities add up to a little less than u: the rounding belongs to the last token that can occur at all.
	last := len(logprobs) - 1
	for last > 0 && math.IsInf(logprobs[last], -1) {
		last--
	}
	return int32(last), logprobs[last]
}

func (p *Trainer) random(seed *int64) *rand.Rand {
	if seed != nil {
		return rand.New(rand.NewPCG(uint64(*seed), sampleStream))
	}
	return rand.New(rand.NewPCG(p.seed^unseededStream, p.unseeded.Add(1)))
}
