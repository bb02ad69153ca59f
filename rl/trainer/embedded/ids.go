package embedded

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"deepswe/agent"
	"deepswe/rl"
)

// A trainer behind a protocol gets ids, weights and gradients instead of rows. The following is the same policy with
// such an interface.

// Codec turns conversations into ids and back as a policy does, and needs no weights.
type Codec struct{ tokens *tokenizer }

// NewCodec returns an error for the same vocabularies as [New].
func NewCodec(vocabulary []string) (Codec, error) {
	t, err := newPrefixes(vocabulary)
	return Codec{t}, err
}

// Size is the number of ids.
func (c Codec) Size() int { return c.tokens.read() }

// Prompt returns the ids of a request's conversation, up to where the policy replies. If the request contains the last
// sample, they begin with that.
func (c Codec) Prompt(_ context.Context, r agent.Request) ([]int32, error) { return c.tokens.prompt(r) }

// Reply returns an answer as a message.
func (c Codec) Reply(ids []int32, _ agent.Request) agent.Message {
	return agent.Message{Role: agent.RoleAssistant, Content: c.tokens.decode(ids)}
}

// Stop is the end of a message.
func (c Codec) Stop() []int32 { return []int32{c.tokens.end} }

// place plans a pass over any sequence of ids. A token outside the policy's answers counts as the first of an answer
// without a context, and one that the policy cannot write is left out.
func (p *Trainer) place(ids []int32, trains func(t int) bool) pass {
	x := pass{trains: make([]bool, len(ids))}
	inside := make([]*turn, len(ids))
	for _, turn := range p.tokens.turns(ids) {
		if p.network.check(turn.context) != nil {
			continue
		}
		turn.end = min(turn.end, turn.start+p.options.Reply)
		for t := turn.start; t < turn.end; t++ {
			inside[t] = &turn
		}
	}
	var last *turn
	for t, id := range ids {
		if id < 0 || int(id) >= p.tokens.spoken() || !trains(t) {
			continue
		}
		x.trains[t] = true
		if in := inside[t]; in == nil {
			x.turns = append(x.turns, turn{start: t, end: t + 1})
		} else if in != last {
			x.turns, last = append(x.turns, *in), in
		}
	}
	return x
}

// Score returns the log-probability of every id after the ones before it, NaN for one that the policy cannot speak.
func (p *Trainer) Score(ids []int32) ([]float64, error) {
	if err := p.readable(ids); err != nil {
		return nil, fmt.Errorf("embedded policy: %w", err)
	}
	out := make([]float64, len(ids))
	for t := range out {
		out[t] = math.NaN()
	}
	x := p.place(ids, func(int) bool { return true })
	x.forward(p.network, p.weights, ids, out)
	return out, nil
}

// Accumulate adds the gradient of a loss whose derivative with respect to the log-probability of id t is slope[t].
func (p *Trainer) Accumulate(ids []int32, slope []float64) error {
	if err := p.readable(ids); err != nil {
		return fmt.Errorf("embedded policy: %w", err)
	}
	x := p.place(ids, func(t int) bool { return slope[t] != 0 })
	x.forward(p.network, p.weights, ids, make([]float64, len(ids)))
	x.backward(ids, slope, 0, p.gradient)
	p.pending = true
	return nil
}

func (p *Trainer) readable(ids []int32) error {
	for _, id := range ids {
		if id < 0 || int(id) >= p.tokens.read() {
			return fmt.Errorf("id %d is not in the vocabulary of %d", id, p.tokens.read())
		}
	}
	return nil
}

// Generate samples an answer to a prompt from a published policy, up to the end of the message or a number of ids. The
// log-probabilities are those of temperature 1.
func (p *Trainer) Generate(from rl.Policy, prompt []int32, limit int, temperature float64, seed int64,
) (ids []int32, logprobs []float64, err error) {
	m, ok := from.Model.(sampler)
	if !ok || m.p != p {
		return nil, nil, errors.New("embedded policy: generate: this trainer has not published the policy")
	}
	var context []int32
	if turns := p.tokens.turns(prompt); len(turns) > 0 {
		context = turns[len(turns)-1].context
	}
	if err := p.network.check(context); err != nil {
		return nil, nil, fmt.Errorf("embedded policy: %w: %w", err, agent.ErrContextOverflow)
	}
	r := rand.New(rand.NewPCG(uint64(seed), sampleStream))
	d := p.network.beginContext(m.weights.weights, context)
	ids, logprobs = p.sample(d, min(limit, p.options.Reply), temperature, r)
	return ids, logprobs, nil
}

// Restore sets the weights to those of a published policy, and leaves the optimizer as it is.
func (p *Trainer) Restore(from rl.Policy) error {
	m, ok := from.Model.(sampler)
	if !ok || m.p != p {
		return errors.New("embedded policy: restore: this trainer has not published the policy")
	}
	copy(p.weights, m.weights.weights)
	return nil
}
