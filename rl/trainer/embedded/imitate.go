package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"deepswe/agent"
	"deepswe/rl"
)

// Demonstration is a conversation to imitate.
type Demonstration struct {
	Task     string
	Messages []agent.Message
	// Imitated says for each message whether it is a reply to imitate.
	Imitated []bool
}

// LongestReply returns the length of the longest imitated reply in tokens of the lexicon, the closing one included.
func (l *Lexicon) LongestReply(all []Demonstration) int {
	t, longest := newWords(l), 0
	for _, d := range all {
		for i, m := range d.Messages {
			if d.Imitated[i] {
				longest = max(longest, 1+len(t.encode(nil, m.Content, func(string) int32 { return t.unknown })))
			}
		}
	}
	return longest
}

// Imitation says how demonstrations are imitated: in Passes over all of them, each in an order of its own, with an
// update for every Batch of them. The learning rate falls linearly from LearningRate to 0.
type Imitation struct {
	Passes, Batch int
	LearningRate  float64
}

// imitationBeta2 is Adam's beta2 for imitation. There are so few updates that with the usual 0.999, the large
// gradients of the first ones would count until the end.
const imitationBeta2 = 0.98

// WarmStart trains the policy on the imitated replies with cross-entropy, and returns the mean loss of each pass, in
// nats per token. It is meant for a policy that has not been trained, and resets the optimizer at the end. It is
// deterministic: the same calls on the same policy result in the same weights.
func (p *Trainer) WarmStart(ctx context.Context, all []Demonstration, o Imitation) (losses []float64, err error) {
	if p.options.Lexicon == nil {
		return nil, errors.New("embedded policy: demonstrations are for a policy with a lexicon")
	}
	if o.Passes < 0 || o.Batch < 1 {
		return nil, fmt.Errorf("embedded policy: invalid imitation: %d passes (at least 0) in batches of %d (at least 1)",
			o.Passes, o.Batch)
	}
	rows := make([]rl.Row, len(all))
	for i, d := range all {
		if rows[i], err = p.demonstrated(d); err != nil {
			return nil, fmt.Errorf("embedded policy: demonstration %d, of task %s: %w", i+1, d.Task, err)
		}
	}
	r := rand.New(rand.NewPCG(p.seed, imitateStream))
	updates := o.Passes * ((len(rows) + o.Batch - 1) / o.Batch)
	done := 0
	for range o.Passes {
		r.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		sum, tokens := 0.0, 0
		for part := range slices.Chunk(rows, o.Batch) {
			loss, n, err := p.imitate(ctx, part, o.LearningRate*float64(updates-done)/float64(updates))
			if err != nil {
				return losses, fmt.Errorf("imitate: %w", err)
			}
			sum, tokens, done = sum+loss*float64(n), tokens+n, done+1
		}
		losses = append(losses, sum/float64(max(tokens, 1)))
	}
	// Gradients from rewards have another scale, so they begin with fresh moments.
	clear(p.first)
	clear(p.second)
	p.steps = 0
	return losses, nil
}

// imitate makes an update on the mean cross-entropy of the rows' trained tokens. It returns that mean and their number.
func (p *Trainer) imitate(ctx context.Context, rows []rl.Row, rate float64) (loss float64, tokens int, err error) {
	for i := range rows {
		tokens += rows[i].TrainedTokens()
	}
	for i := range rows {
		rows[i].Scale = 1 / float64(max(tokens, 1))
	}
	stats, err := p.ForwardBackward(ctx, rows, rl.Objective{Surrogate: rl.CrossEntropy})
	if err != nil {
		return 0, 0, err
	}
	_, err = p.Step(ctx, rl.Optimizer{LearningRate: rate, ClipNorm: 1, Beta2: imitationBeta2})
	return stats.Loss, tokens, err
}

// demonstrated returns a demonstration as a row in which the tokens of the imitated replies are trained.
func (p *Trainer) demonstrated(d Demonstration) (rl.Row, error) {
	row := rl.Row{Task: d.Task, Group: d.Task, Trained: true}
	ids := p.tokens.render(d.Messages, 0)
	row.IDs = ids[:len(ids)-1] // without the mark of a further reply
	row.Mask = make([]uint8, len(row.IDs))
	replies := p.tokens.turns(row.IDs)
	for i, m := range d.Messages {
		if m.Role != agent.RoleAssistant {
			continue
		}
		reply := replies[0]
		replies = replies[1:]
		if !d.Imitated[i] {
			continue
		}
		if n := reply.end - reply.start; n > p.options.Reply {
			return row, fmt.Errorf("message %d has %d tokens, and the longest reply of the policy %d", i+1, n, p.options.Reply)
		}
		for t := reply.start; t < reply.end; t++ {
			if int(row.IDs[t]) >= p.tokens.spoken() {
				return row, fmt.Errorf("message %d has words that are not in the vocabulary", i+1)
			}
			row.Mask[t] = 1
		}
	}
	row.Logprobs = make([]float64, len(row.IDs))
	return row, nil
}
