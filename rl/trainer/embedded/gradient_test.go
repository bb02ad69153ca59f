package embedded

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"deepswe/agent"
	"deepswe/rl"
)

// tinyOptions is a network that is so small that every weight can be checked.
func tinyOptions() Options {
	return Options{Language: Language{Vocabulary: []string{"a", "b", "go "}, Window: 5, Reply: 3}, Hidden: 6, Seed: 7,
		Workers: 2}
}

func newPolicy(t testing.TB, o Options) *Trainer {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// shake moves every weight, so that none is zero and none are symmetric as in a fresh policy.
func shake(p *Trainer, size float64) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range p.weights {
		p.weights[i] += size * r.NormFloat64()
	}
	p.publish(p.published.version + 1)
}

// conversation plays some turns with the policy, and returns the rollout that a harness would record.
func conversation(t testing.TB, p *Trainer, turns int, seed int64) rl.Rollout {
	t.Helper()
	var messages []agent.Message
	ro := rl.Rollout{Task: "t", Group: "g", Reward: new(1.0), StopReason: agent.Submitted}
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	for k := range turns {
		var words []string
		for range 1 + r.IntN(4) {
			words = append(words, []string{"a", "b", "go ", "?"}[r.IntN(4)])
		}
		messages = append(messages, agent.Message{Role: agent.RoleUser, Content: strings.Join(words, "")})
		reply, err := sampler{p, p.published}.Complete(t.Context(),
			agent.Request{Messages: messages, Tokens: true, Sampling: agent.Sampling{Seed: new(seed*100 + int64(k))}})
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, reply.Message)
		ro.Turns = append(ro.Turns, rl.Turn{
			PromptIDs: reply.Tokens.PromptIDs, CompletionIDs: reply.Tokens.CompletionIDs, Logprobs: reply.Tokens.Logprobs,
		})
	}
	return ro
}

// batch returns the rows of several conversations, with advantages of both signs.
func batch(t testing.TB, p *Trainer, conversations, turns int) []rl.Row {
	t.Helper()
	var rows []rl.Row
	for i := range conversations {
		for _, row := range (rl.Placement{Disposition: rl.Trained}).Rows(conversation(t, p, turns, int64(i+1)), 0) {
			row.Advantage = float64(i%3) - 0.8
			row.Scale = 1 / float64(10+i)
			if i%2 == 1 {
				row.Advantages = make([]float64, len(row.IDs))
				for k := range row.Advantages {
					row.Advantages[k] = float64(k%4) - 1.4
				}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// lossOf returns a function that computes the loss with the current weights.
func lossOf(t *testing.T, p *Trainer, rows []rl.Row, o rl.Objective) func() float64 {
	return func() float64 {
		s, err := p.ForwardBackward(t.Context(), rows, o)
		if err != nil {
			t.Fatal(err)
		}
		return s.Loss
	}
}

// checkSlope compares the gradient of a weight with a finite difference, and reports whether that is not 0.
func checkSlope(t *testing.T, p *Trainer, i int, gradient float64, loss func() float64) bool {
	t.Helper()
	const h = 1e-6
	w := p.weights[i]
	p.weights[i] = w + h
	up := loss()
	p.weights[i] = w - h
	down := loss()
	p.weights[i] = w
	numeric := (up - down) / (2 * h)
	if math.Abs(numeric-gradient) > 1e-7+1e-5*math.Abs(numeric) {
		t.Fatalf("weight %d: gradient %.10g, by differences %.10g", i, gradient, numeric)
	}
	return numeric != 0
}

func TestGradientAgainstFiniteDifferences(t *testing.T) {
	t.Parallel()
	objectives := map[string]rl.Objective{
		"ppo":       {},
		"reinforce": {Surrogate: rl.Reinforce},
		"entropy":   {Entropy: 0.3},
		"decoupled": {Decoupled: true, Corrections: rl.Corrections{TruncateToken: 2}},
	}
	for name, o := range objectives {
		t.Run(name, func(t *testing.T) {
			p := newPolicy(t, tinyOptions())
			shake(p, 0.3)
			rows := batch(t, p, 12, 4)
			// The weights have moved on, so that the ratios differ from 1, all within the clip.
			for i := range p.weights {
				p.weights[i] += 1e-3 * math.Sin(float64(i))
			}
			loss := lossOf(t, p, rows, o)
			loss()
			gradient := append([]float64(nil), p.gradient...)
			moved := 0
			for i := range p.weights {
				if checkSlope(t, p, i, gradient[i], loss) {
					moved++
				}
			}
			if moved < len(p.weights)/3 {
				t.Errorf("only %d of %d weights have a gradient: want at least a third", moved, len(p.weights))
			}
		})
	}
}

// With the same weights, the trainer's log-probabilities equal the sampler's to the last bit.
func TestSamplerAndTrainerAgreeExactly(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyOptions())
	shake(p, 0.5)
	rows := batch(t, p, 20, 4)
	s, err := p.ForwardBackward(t.Context(), rows, rl.Objective{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Tokens == 0 || s.RatioMin != 1 || s.RatioMax != 1 || s.KL3 != 0 {
		t.Errorf("%d tokens, ratios %v to %v, kl %v: want ratios of exactly 1", s.Tokens, s.RatioMin, s.RatioMax, s.KL3)
	}
	logprobs, err := p.Forward(t.Context(), rows)
	if err != nil || !reflect.DeepEqual(s.Logprobs, logprobs) {
		t.Errorf("the gradient was computed from other logprobs than those of Forward: %v", err)
	}
	if s.EntropyTokens != s.Tokens || s.Entropy <= 0 {
		t.Errorf("entropy %v over %d of %d tokens", s.Entropy, s.EntropyTokens, s.Tokens)
	}
}

func TestGradientsAddUp(t *testing.T) {
	t.Parallel()
	p, q := newPolicy(t, tinyOptions()), newPolicy(t, tinyOptions())
	shake(p, 0.3)
	shake(q, 0.3)
	rows := batch(t, p, 6, 2)
	if _, err := p.ForwardBackward(t.Context(), rows, rl.Objective{}); err != nil {
		t.Fatal(err)
	}
	for _, part := range [][]rl.Row{rows[:2], rows[2:]} {
		if _, err := q.ForwardBackward(t.Context(), part, rl.Objective{}); err != nil {
			t.Fatal(err)
		}
	}
	for i, g := range p.gradient {
		if math.Abs(g-q.gradient[i]) > 1e-12 {
			t.Fatalf("weight %d: %v at once, %v in parts", i, g, q.gradient[i])
		}
	}
}

func TestWorkersDoNotChangeTheGradient(t *testing.T) {
	t.Parallel()
	var want []float64
	for _, workers := range []int{1, 2, 7} {
		o := tinyOptions()
		o.Workers = workers
		p := newPolicy(t, o)
		shake(p, 0.3)
		if _, err := p.ForwardBackward(t.Context(), batch(t, p, 21, 3), rl.Objective{}); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = p.gradient
		}
		for i, g := range p.gradient {
			if math.Float64bits(g) != math.Float64bits(want[i]) {
				t.Fatalf("%d workers: weight %d has gradient %v, not %v", workers, i, g, want[i])
			}
		}
	}
}

func TestRowsThatWereNotSampledHere(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyOptions())
	good := batch(t, p, 1, 2)[0]
	train := func(r rl.Row, at int) rl.Row {
		r.Mask = append([]uint8(nil), r.Mask...)
		r.Mask[at] = 1
		return r
	}
	foreign := good
	foreign.IDs = append([]int32(nil), good.IDs...)
	foreign.IDs[0] = 99
	long := rl.Row{IDs: []int32{p.tokens.user, 0, 0, 0, 0, 0, 0, p.tokens.end, p.tokens.assistant, 1}}
	long.Mask, long.Logprobs = make([]uint8, len(long.IDs)), make([]float64, len(long.IDs))
	late := rl.Row{IDs: []int32{p.tokens.user, 0, p.tokens.end, p.tokens.assistant, 1, 1, 1, 1}}
	late.Mask, late.Logprobs = make([]uint8, len(late.IDs)), make([]float64, len(late.IDs))
	for name, r := range map[string]rl.Row{
		"an id beyond the vocabulary":  foreign,
		"a trained role mark":          train(good, 0),
		"a trained user's token":       train(good, 1),
		"a message beyond the window":  train(long, 9),
		"an answer beyond its windows": train(late, 7),
	} {
		if _, err := p.ForwardBackward(t.Context(), []rl.Row{r}, rl.Objective{}); err == nil {
			t.Errorf("%s: no error", name)
		} else if p.pending {
			t.Errorf("%s: left a gradient", name)
		}
	}
}

func BenchmarkTrainingStep(b *testing.B) {
	for _, rows := range []int{64, 256} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			p := newPolicy(b, Options{Language: Language{Vocabulary: []string{"a", "b", "go ", "?"}, Window: 64, Reply: 4},
				Hidden: 64})
			data := batch(b, p, rows, 6)
			for b.Loop() {
				if _, err := p.ForwardBackward(b.Context(), data, rl.Objective{}); err != nil {
					b.Fatal(err)
				}
				if _, err := p.Step(b.Context(), rl.Optimizer{LearningRate: 1e-3, ClipNorm: 1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
