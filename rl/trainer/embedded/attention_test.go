package embedded

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"deepswe/agent"
	"deepswe/rl"
)

// tinyWords is a policy with attention that is so small that every weight can be checked.
func tinyWords() Options {
	return Options{
		Lexicon:  &Lexicon{Spoken: []string{"1", "2", "go", " ", "\n"}, Read: []string{"file", ":"}},
		Language: Language{Window: 9, Reply: 3}, Hidden: 4, Seed: 7, Workers: 2,
	}
}

// talk returns conversations with a policy with attention as rows.
func talk(t testing.TB, p *Trainer, conversations, turns int) []rl.Row {
	t.Helper()
	var rows []rl.Row
	for i := range conversations {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		messages := []agent.Message{{Role: agent.RoleSystem, Content: "file"}}
		var sampled *agent.Sample
		ro := rl.Rollout{Task: "t", Group: "g", Reward: new(1.0), StopReason: agent.Submitted}
		for k := range turns {
			var text strings.Builder
			for range 2 + r.IntN(7) {
				text.WriteString([]string{"1", "2 ", "go ", "file", "\n", ": ", "other", "\n\n", "third "}[r.IntN(9)])
			}
			messages = append(messages, agent.Message{Role: agent.RoleUser, Content: text.String()})
			reply, err := sampler{p, p.published}.Complete(t.Context(), agent.Request{
				Messages: messages, Tokens: true, Sampling: agent.Sampling{Seed: new(int64(i*100 + k))}, Sampled: sampled,
				Fresh: len(messages) - 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			messages, sampled = append(messages, reply.Message), reply.Tokens
			ro.Turns = append(ro.Turns, rl.Turn{
				PromptIDs: reply.Tokens.PromptIDs, CompletionIDs: reply.Tokens.CompletionIDs, Logprobs: reply.Tokens.Logprobs,
			})
		}
		for _, row := range (rl.Placement{Disposition: rl.Trained}).Rows(ro, 0) {
			row.Advantage = float64(i%3) - 0.8
			row.Scale = 1 / float64(10+i)
			rows = append(rows, row)
		}
	}
	return rows
}

func TestAttentionAgainstFiniteDifferences(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]rl.Objective{"reinforce": {Surrogate: rl.Reinforce}, "entropy": {Entropy: 0.3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPolicy(t, tinyWords())
			shake(p, 0.4)
			p.weights[p.network.(*attention).at.biasGate] = 0 // so that much is copied
			p.publish(1)
			rows := talk(t, p, 3, 2)
			for i := range p.weights {
				p.weights[i] += 1e-3 * math.Sin(float64(i))
			}
			loss := lossOf(t, p, rows, o)
			loss()
			gradient := slices.Clone(p.gradient)
			a := p.network.(*attention)
			if slot := row(gradient, a.at.near, p.tokens.read()-slots, a.width); slices.Max(slot) == slices.Min(slot) {
				t.Error("the first slot has no gradient")
			}
			moved := 0
			for i := range p.weights {
				if gradient[i] == 0 && i%16 != 0 {
					continue // most slots are unused, so only some of their weights are checked
				}
				if checkSlope(t, p, i, gradient[i], loss) {
					moved++
				}
			}
			if moved < len(p.weights)/10 {
				t.Errorf("only %d of %d weights have a gradient", moved, len(p.weights))
			}
		})
	}
}

// A sampled token has exactly the same log-probability when it is read again, and every conversation is one row.
func TestAttentionIsExact(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyWords())
	shake(p, 0.4)
	rows := talk(t, p, 8, 4)
	if len(rows) != 8 {
		t.Errorf("%d rows of 8 conversations", len(rows))
	}
	again, err := p.Forward(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	for k, row := range rows {
		for i, m := range row.Mask {
			if m == 1 && again[k][i] != row.Logprobs[i] {
				t.Fatalf("token %d: sampled with %g, read with %g", i, row.Logprobs[i], again[k][i])
			}
		}
	}
}

// Slots are only read, so a row in which one was sampled comes from another policy.
func TestSlotsAreNotTrained(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyWords())
	row := talk(t, p, 1, 1)[0]
	at := slices.Index(row.Mask, 1)
	row.IDs[at] = int32(p.tokens.read() - slots)
	if err := p.Accepts(&row); err == nil || !strings.Contains(err.Error(), "cannot sample id") {
		t.Errorf("got %v", err)
	}
	if _, err := p.ForwardBackward(t.Context(), []rl.Row{row}, rl.Objective{}); err == nil {
		t.Error("trained on a slot")
	}
}

// A blind policy replies alike to all tool outputs, and one that sees does not.
func TestBlind(t *testing.T) {
	t.Parallel()
	for _, blind := range []bool{true, false} {
		o := tinyWords()
		o.Blind = blind
		p := newPolicy(t, o)
		shake(p, 0.4)
		probability := func(observation string) float64 {
			ids := p.tokens.render([]agent.Message{
				{Role: agent.RoleUser, Content: "go other"}, {Role: agent.RoleAssistant, Content: "go"},
				{Role: agent.RoleUser, Content: observation},
			}, 0)
			logprobs, _ := p.network.beginContext(p.weights, ids).predict(false)
			return logprobs[0]
		}
		if same := probability("file: 1 other") == probability("2\n2 new words"); same != blind {
			t.Errorf("blind %v: same probabilities %v", blind, same)
		}
	}
}

// Rewards alone teach a policy with attention where to look: here, at the line that holds a word.
func TestAttentionLearns(t *testing.T) {
	t.Parallel()
	l := &Lexicon{Spoken: []string{"1", "2", "3"}, Read: []string{"fig", "nut", "\t", "\n"}}
	p := newPolicy(t, Options{Lexicon: l, Language: Language{Reply: 1}, Hidden: 16, Seed: 1})
	r := rand.New(rand.NewPCG(1, 1))
	algorithm, err := rl.Preset(rl.DefaultPreset)
	if err != nil {
		t.Fatal(err)
	}
	algorithm.MaxLength = 32
	var first, last float64
	for step := range 30 {
		var rollouts []rl.Rollout
		mean := 0.0
		for g := range 16 {
			at := r.IntN(3)
			lines := []string{"nut", "nut", "nut"}
			lines[at] = "fig"
			text := fmt.Sprintf("1\t%s\n2\t%s\n3\t%s\n", lines[0], lines[1], lines[2])
			for k := range 8 {
				reply, err := sampler{p, p.published}.Complete(t.Context(), agent.Request{
					Messages: []agent.Message{{Role: agent.RoleUser, Content: text}}, Tokens: true,
					Sampling: agent.Sampling{Seed: new(int64(step*1000 + g*8 + k))},
				})
				if err != nil {
					t.Fatal(err)
				}
				reward := 0.0
				if reply.Message.Content == fmt.Sprint(at+1) {
					reward = 1
				}
				mean += reward / 128
				rollouts = append(rollouts, rl.Rollout{
					Task: fmt.Sprint(g), Group: fmt.Sprint(g), Attempt: k, Reward: &reward, StopReason: agent.Submitted,
					Turns: []rl.Turn{{
						PromptIDs: reply.Tokens.PromptIDs, CompletionIDs: reply.Tokens.CompletionIDs, Logprobs: reply.Tokens.Logprobs,
					}},
				})
			}
		}
		if last = mean; step == 0 {
			first = mean
		}
		rows, _, err := algorithm.Rows(rollouts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.ForwardBackward(t.Context(), rows, algorithm.Objective); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Step(t.Context(), rl.Optimizer{LearningRate: 0.02}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Publish(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if first > 0.5 || last < 0.9 {
		t.Errorf("reward %.2f before and %.2f after", first, last)
	}
}
