package frozenlake

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/agent"
	"deepswe/env/testkit"
)

func TestParseAction(t *testing.T) {
	t.Parallel()
	tests := map[string]Action{
		"```Left```":                    left,
		"I go down.\n```\ndown\n```":    down,
		"``` 3 ```":                     right,
		"```Left``` no, ```Up```":       up,
		"```UP``` and then ``` nothing": up,
		"Up":                            Invalid,
		"":                              Invalid,
		"```Left":                       Invalid,
		"```Left```Up```":               left,
		"```0```":                       Invalid,
		"```5```":                       Invalid,
		"```Left Right```":              Invalid,
		"```Left``````Jump```":          Invalid,
		"````Left````":                  Invalid,
	}
	for reply, want := range tests {
		if got := parseAction(reply); got != want {
			t.Errorf("%q: %v, want %v", reply, got, want)
		}
	}
}

func FuzzParseAction(f *testing.F) {
	f.Add("```Left```")
	f.Add("`````` ```3")
	f.Fuzz(func(t *testing.T, reply string) {
		a := parseAction(reply)
		if a < Invalid || a > up {
			t.Fatalf("action %d", a)
		}
		if a != Invalid && parseAction(reply+" ```"+a.String()+"```") == Invalid && strings.Count(reply, fence)%2 == 0 {
			t.Fatal("a valid block at the end was not read")
		}
	})
}

// script answers with its lines in turn, and keeps the requests.
type script struct {
	lines []string
	asked []agent.Request
	err   error
}

func (s *script) Complete(_ context.Context, r agent.Request) (agent.Reply, error) {
	n := len(s.asked)
	r.Messages = slices.Clone(r.Messages)
	s.asked = append(s.asked, r)
	if n >= len(s.lines) {
		return agent.Reply{}, s.err
	}
	return agent.Reply{
		Message: agent.Message{Role: agent.RoleAssistant, Content: s.lines[n]},
		Tokens:  &agent.Sample{PromptIDs: []int32{1}, CompletionIDs: []int32{2, 3, 4}, Logprobs: []float64{-1, -2, -3}},
	}, nil
}

func TestPlay(t *testing.T) {
	t.Parallel()
	lake := draw(
		"S_O",
		"_O_",
		"__G")
	broken := errors.New("connection refused")
	tests := []struct {
		name    string
		player  Player
		lines   []string
		err     error
		stop    agent.StopReason
		reward  float64
		turns   int
		invalid int
		fails   error
	}{
		{name: "arrives", lines: []string{"```Down```", "```2```", "```Right```", "```Right```"}, stop: agent.Submitted,
			reward: 1, turns: 4},
		{name: "falls", lines: []string{"```Right```", "```Right```"}, stop: agent.Submitted, turns: 2},
		{name: "walks on the spot", player: Player{MaxTurns: 3}, lines: []string{"```Up```", "```Up```", "```Up```"},
			stop: agent.MaxSteps, turns: 3},
		{name: "arrives with the last turn", player: Player{MaxTurns: 4},
			lines: []string{"```Down```", "```2```", "```Right```", "```Right```"}, stop: agent.Submitted, reward: 1, turns: 4},
		{name: "may mumble", player: Player{MaxTurns: 4}, lines: []string{"hm", "```Up```", "hm", "```Up```"},
			stop: agent.MaxSteps, turns: 4, invalid: 2},
		{name: "fills its context", lines: []string{"```Up```"}, err: fmt.Errorf("too long: %w", agent.ErrContextOverflow),
			stop: agent.MaxContext, turns: 1},
		{name: "loses its model", err: broken, stop: agent.ModelError, fails: broken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &script{lines: tt.lines, err: tt.err}
			tt.player.Model = m
			g, err := tt.player.Play(t.Context(), NewEpisode(lake))
			if !errors.Is(err, tt.fails) {
				t.Fatalf("error %v, want %v", err, tt.fails)
			}
			r := g.Rollout
			if r.StopReason != tt.stop || *r.Reward != tt.reward || g.Turns != tt.turns || g.Invalid != tt.invalid ||
				len(r.Turns) != tt.turns {
				t.Errorf("stopped by %s with %v after %d turns (%d recorded), %d invalid", r.StopReason, *r.Reward, g.Turns,
					len(r.Turns), g.Invalid)
			}
			for i, turn := range r.Turns {
				if turn.FormatError != (parseAction(tt.lines[i]) == Invalid) {
					t.Errorf("turn %d: format error %v after %q", i, turn.FormatError, tt.lines[i])
				}
			}
		})
	}
}

func TestConversation(t *testing.T) {
	t.Parallel()
	lake := draw(
		"S_O",
		"_O_",
		"__G")
	for _, r := range []Rendering{Chat, Compact} {
		t.Run(string(r), func(t *testing.T) {
			m := &script{lines: []string{"Let me see.\n```Down```", "hm", "```Down```", "```Right```", "```Right```"}}
			p := Player{Model: m, Rendering: r, Radius: 2, Seed: func(turn int) int64 { return int64(100 + turn) }}
			g, err := p.Play(t.Context(), NewEpisode(lake))
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, m := range g.Messages {
				fmt.Fprintf(&b, "[%s]\n%s\n\n", m.Role, m.Content)
			}
			testkit.Golden(t, "testdata/"+string(r)+".txt", b.String())
			switch recorded := g.Rollout.Messages; {
			case r == Compact && recorded != nil:
				t.Errorf("recorded %s", recorded)
			case r == Chat && (len(recorded) != len(g.Messages) ||
				string(recorded[4]) != `{"role":"assistant","content":"hm","format_error":true}`):
				t.Errorf("recorded %s", recorded)
			}
			for i, q := range m.asked {
				s := q.Sampling
				if *s.Temperature != 1 || *s.TopP != 1 || *s.TopK != -1 || *s.MinP != 0 || *s.RepetitionPenalty != 1 ||
					*s.Seed != int64(100+i) || !q.Tokens {
					t.Errorf("turn %d was not sampled as said: %+v", i, s)
				}
				// Each conversation extends the one before: history is never rewritten.
				if i > 0 && !slices.EqualFunc(m.asked[i-1].Messages, q.Messages[:len(m.asked[i-1].Messages)], sameMessage) {
					t.Errorf("turn %d rewrites the history", i)
				}
			}
		})
	}
}

func sameMessage(a, b agent.Message) bool { return a.Role == b.Role && a.Content == b.Content }

// blocked is a model that answers only when the context ends.
type blocked struct{}

func (blocked) Complete(ctx context.Context, _ agent.Request) (agent.Reply, error) {
	<-ctx.Done()
	return agent.Reply{}, ctx.Err()
}

func TestDeadlineIsATimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		g, err := Player{Model: blocked{}}.Play(ctx, NewEpisode(Generate(1, Options{})))
		if err != nil || g.Rollout.StopReason != agent.Timeout || *g.Rollout.Reward != 0 {
			t.Errorf("%s, %v", g.Rollout.StopReason, err)
		}
		if g.Model != 60 {
			t.Errorf("%v seconds in the model, want 60", g.Model)
		}
	})
}

func TestCancelIsAnInterrupt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g, err := Player{Model: blocked{}}.Play(ctx, NewEpisode(Generate(1, Options{})))
	if !errors.Is(err, context.Canceled) || g.Rollout.StopReason != agent.Interrupted {
		t.Errorf("%s, %v", g.Rollout.StopReason, err)
	}
}

func TestRandomPlaysValidMoves(t *testing.T) {
	t.Parallel()
	m := &Random{Rand: rand.New(rand.NewPCG(1, 1))}
	arrived := 0
	for seed := range uint64(300) {
		g, err := Player{Model: m}.Play(t.Context(), NewEpisode(Generate(seed, Options{})))
		if err != nil || g.Invalid > 0 {
			t.Fatalf("%d invalid replies, %v", g.Invalid, err)
		}
		if *g.Rollout.Reward == 1 {
			arrived++
		}
	}
	if arrived < 30 || arrived > 110 {
		t.Errorf("random moves reach the goal %d of 300 times, want 30 to 110", arrived)
	}
}
