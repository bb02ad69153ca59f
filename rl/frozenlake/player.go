package frozenlake

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"deepswe/agent"
	"deepswe/env/disk"
	"deepswe/rl"
)

// Rendering is how an observation is written for the model.
type Rendering string

const (
	// Chat is for language models: the rules as a system message, then the map as a table with a sentence around it.
	Chat Rendering = "chat"
	// Compact is for a policy without any knowledge: there are no rules, only the map as [Episode.Compact] draws it,
	// without the remaining moves. Before the map is an exclamation mark if the last reply had no valid action,
	// otherwise a dot.
	Compact Rendering = "compact"
)

//go:embed rules.md
var rules string

// Vocabulary lists the texts that make up compact observations and the answers to them: the cells, the marks, the four
// actions in their backticks, and a word that means nothing. The policy has to find out which of them move it.
func Vocabulary() []string {
	words := []string{string(Frozen), string(hole), string(goal), "#", ".", "!", "hm "}
	for a := left; a <= up; a++ {
		words = append(words, fence+a.String()+fence)
	}
	return words
}

// CompactTokens is the length of a compact observation in tokens of [Vocabulary].
func CompactTokens(radius int) int { return compactCells(radius) + 1 }

// Player plays an episode in a chat with a model. Every field but Model has a useful zero value.
type Player struct {
	Model     agent.Model
	Rendering Rendering // [Chat]
	// Radius of the compact rendering [8].
	Radius int
	// MaxTurns ends the episode with agent.MaxSteps [10].
	MaxTurns int
	// Submit is the submit game: an episode ends with a reply without a valid action (agent.Submitted), not on arrival.
	// Only the player's position at the end counts. A player that has arrived stays on the goal.
	Submit bool
	// MaxTokens bounds a reply [unbounded].
	MaxTokens int
	// Temperature of the sampling [1]; everything else is neutral, and set explicitly.
	Temperature *float64
	// Seed makes the seed of the call of the model for a turn, counted from 0; nil lets the model choose.
	Seed func(turn int) int64
}

// Game is an episode that has been played.
type Game struct {
	// Rollout has reward, stop reason and turns; the names are the caller's to fill in. The reward is 1 for arriving
	// and 0 for anything else. A fall is a finished game: agent.Submitted, like an arrival.
	Rollout  rl.Rollout
	Turns    int
	Invalid  int // replies without a valid action
	Messages []agent.Message
	// Model and Environment are the seconds spent in either.
	Model, Environment float64
	sampled            int
	last               *agent.Sample // the last reply's
}

// ThinkPerTurn is the mean number of tokens of a reply beyond the two of a bare answer, an action and the end.
func (g Game) ThinkPerTurn() float64 {
	if len(g.Rollout.Turns) == 0 {
		return 0
	}
	return max(0, float64(g.sampled)/float64(len(g.Rollout.Turns))-2)
}

// Play plays one episode. A full context of the model and the deadline of ctx end the episode without an error; any
// other failure of the model or end of ctx is returned, with the game so far.
func (p Player) Play(ctx context.Context, e *Episode) (Game, error) {
	p = p.withDefaults()
	var g Game
	if p.Rendering == Chat {
		g.Messages = []agent.Message{{Role: agent.RoleSystem, Content: rules}}
	}
	start := time.Now()
	invalid := false
	for g.Turns < p.MaxTurns && !p.over(e) {
		g.Messages = append(g.Messages, p.observation(e, g.Turns, invalid))
		asked := time.Now()
		reply, err := p.Model.Complete(ctx, p.request(g))
		g.Model += time.Since(asked).Seconds()
		if err != nil {
			stop, err := p.failed(ctx, err)
			return p.finish(g, e, stop, start), err
		}
		g.Turns++
		g.Messages = append(g.Messages, reply.Message)
		action := parseAction(reply.Message.Content)
		g.last = reply.Tokens
		if t := reply.Tokens; t != nil {
			turn := *t
			turn.FormatError = action == Invalid && !p.Submit
			g.Rollout.Turns = append(g.Rollout.Turns, turn)
			g.sampled += len(turn.CompletionIDs)
		}
		switch {
		case action == Invalid && p.Submit:
			return p.finish(g, e, agent.Submitted, start), nil
		case action == Invalid:
			g.Invalid++
			invalid = true
			continue
		}
		invalid = false
		e.Step(action)
	}
	stop := agent.Submitted
	if !p.over(e) {
		stop = agent.MaxSteps
	}
	return p.finish(g, e, stop, start), nil
}

func (p Player) over(e *Episode) bool {
	return e.Outcome() == fell || e.Outcome() == Arrived && !p.Submit
}

func (p Player) withDefaults() Player {
	p.Rendering, p.Radius, p.MaxTurns = cmp.Or(p.Rendering, Chat), cmp.Or(p.Radius, 8), cmp.Or(p.MaxTurns, 10)
	p.Temperature = cmp.Or(p.Temperature, new(1.0))
	return p
}

// observation writes the user's message of a turn.
func (p Player) observation(e *Episode, turn int, invalid bool) agent.Message {
	if p.Rendering == Compact {
		mark := "."
		if invalid {
			mark = "!"
		}
		return agent.Message{Role: agent.RoleUser, Content: mark + e.Compact(p.Radius)}
	}
	var b strings.Builder
	if invalid {
		b.WriteString("Your last reply held no valid action, so the player did not move. " +
			"End with one of Left, Down, Right, Up in triple backticks.\n\n")
	}
	state := "The player P is not on the goal G yet."
	if e.Outcome() == Arrived {
		state = "The player is on the goal."
	}
	if p.Submit {
		state += " A reply without an action ends the game."
	}
	fmt.Fprintf(&b, "Observation %d:\n%s\n\n%s Moves left: %d. What is the next action?",
		turn, e.Grid(), state, p.MaxTurns-turn)
	return agent.Message{Role: agent.RoleUser, Content: b.String()}
}

func (p Player) request(g Game) agent.Request {
	s := agent.OnPolicy(p.Temperature)
	if p.Seed != nil {
		s.Seed = new(p.Seed(g.Turns))
	}
	return agent.Request{
		Messages: g.Messages, Sampling: s, MaxTokens: p.MaxTokens, Tokens: true,
		Sampled: g.last, Fresh: max(0, len(g.Messages)-1), // an observation follows each reply
	}
}

// failed returns the stop reason of a rollout that an error of the model ended, and an error if the rollout has
// failed.
func (p Player) failed(ctx context.Context, err error) (agent.StopReason, error) {
	switch {
	case errors.Is(err, agent.ErrContextOverflow):
		return agent.MaxContext, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return agent.Timeout, nil
	case ctx.Err() != nil:
		return agent.Interrupted, fmt.Errorf("play: %w", err)
	}
	return agent.ModelError, fmt.Errorf("play: %w", err)
}

func (p Player) finish(g Game, e *Episode, stop agent.StopReason, start time.Time) Game {
	reward := 0.0
	if e.Outcome() == Arrived {
		reward = 1
	}
	g.Rollout.Reward = &reward
	g.Rollout.StopReason = stop
	g.Environment = time.Since(start).Seconds() - g.Model
	if p.Rendering == Chat {
		g.Rollout.Messages = transcript(g.Messages)
	}
	return g
}

// transcript is the conversation for fine-tuning on text. A compact one is not worth keeping.
func transcript(messages []agent.Message) []json.RawMessage {
	out := make([]json.RawMessage, len(messages))
	for i, m := range messages {
		// Strings and a boolean always encode.
		out[i], _ = disk.MarshalJSON(struct {
			Role        string `json:"role"`
			Content     string `json:"content"`
			FormatError bool   `json:"format_error,omitempty"`
		}{m.Role, m.Content, m.Role == agent.RoleAssistant && parseAction(m.Content) == Invalid})
	}
	return out
}

// Random is a model without skill: every answer is one of the four moves, each as likely as the others. It belongs to
// one goroutine.
type Random struct{ Rand *rand.Rand }

// Complete answers with a move.
func (r *Random) Complete(context.Context, agent.Request) (agent.Reply, error) {
	move := left + Action(r.Rand.IntN(4))
	return agent.Reply{Message: agent.Message{Role: agent.RoleAssistant, Content: fence + move.String() + fence}}, nil
}
