package pages

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"strconv"

	"deepswe/agent/attempt"
	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/rl"
	"deepswe/rl/train/record"
)

// maxText is the most bytes of a message that a page shows.
const maxText = 20000

// token is a sampled token.
type token struct {
	ID      int32
	Logprob float64
	// Class is the CSS class of the token's probability: from p0, near certain, to p4, very unlikely.
	Class string
}

// turn is a call of the model, with the messages before it.
type turn struct {
	Number int
	// Reply is the policy's reply, New are the messages of the prompt since the previous turn.
	Reply string
	New   []message
	// NewTokens is the number of new tokens in the prompt. Split is set if the prompt does not extend the previous
	// turn.
	NewTokens int
	Split     bool
	Tokens    []token
	Version   string
	Mean      float64
}

// message is a message, as it is shown.
type message struct{ Role, Text string }

// rollout is the data of a rollout's page.
func (h *Handler) rollout(t trained, r *http.Request) (string, any, error) {
	step, err := strconv.Atoi(r.PathValue("step"))
	if err != nil {
		return "", nil, fmt.Errorf("step %s: %w", r.PathValue("step"), errNotFound)
	}
	groups, err := record.ReadStep(t.Dir, step)
	if err != nil {
		return "", nil, err
	}
	algorithm, _ := algorithmOf(t.Dir) // the step's page reports the error
	for _, g := range groups {
		if g[0].Group != r.PathValue("group") {
			continue
		}
		for _, m := range groupOf(g, algorithm).Members {
			if strconv.Itoa(m.Attempt) == r.PathValue("attempt") {
				data := struct {
					Step int
					member
					Turns []turn
				}{step, m, turnsOf(t.Dir, m.Rollout)}
				return fmt.Sprintf("%s: %s #%d", t.Name, m.Task, m.Attempt), data, nil
			}
		}
	}
	return "", nil, fmt.Errorf("rollout %s %s: %w", r.PathValue("group"), r.PathValue("attempt"), errNotFound)
}

// turnsOf returns the turns of a rollout: its tokens, and its conversation if that is known.
func turnsOf(dir string, r rl.Rollout) []turn {
	before, replies := conversation(dir, r)
	turns := make([]turn, 0, max(len(r.Turns), len(replies)))
	var last []int32
	for i, s := range r.Turns {
		t := turn{Number: i + 1}
		shared := 0
		for shared < min(len(last), len(s.PromptIDs)) && last[shared] == s.PromptIDs[shared] {
			shared++
		}
		t.NewTokens, t.Split = len(s.PromptIDs)-shared, i > 0 && shared < len(last)
		last = append(append(last[:0], s.PromptIDs...), s.CompletionIDs...)
		if s.PolicyVersion != nil {
			t.Version = strconv.FormatInt(*s.PolicyVersion, 10)
		}
		for k, id := range s.CompletionIDs {
			x := token{ID: id, Class: "p0"}
			if k < len(s.Logprobs) {
				x.Logprob = s.Logprobs[k]
				t.Mean += x.Logprob / float64(len(s.CompletionIDs))
				x.Class = fmt.Sprintf("p%d", int(min(4, math.Sqrt(max(0, -x.Logprob))*2)))
			}
			t.Tokens = append(t.Tokens, x)
		}
		turns = append(turns, t)
	}
	for i := range replies {
		if i == len(turns) {
			turns = append(turns, turn{Number: i + 1})
		}
		turns[i].New, turns[i].Reply = before[i], replies[i]
	}
	return turns
}

// conversation returns the replies of a rollout, and the messages before each, from its own log or from its line in
// rollouts.jsonl.
func conversation(dir string, r rl.Rollout) (before [][]message, replies []string) {
	var messages []trajectory.Message
	if reader, err := run.Read(dir); err == nil {
		job := run.Job{Task: r.Task, Group: r.Group, Index: r.Attempt}
		if rec, err := trajectory.Open(filepath.Join(reader.AttemptDir(job), attempt.StepsFile)); err == nil {
			messages = rec.Messages
		}
	}
	if messages == nil {
		for _, raw := range r.Messages {
			var m trajectory.Message
			if json.Unmarshal(raw, &m) == nil { // other harnesses write other types
				messages = append(messages, m)
			}
		}
	}
	var heard []message
	for _, m := range messages {
		text := m.Content
		if m.Reasoning != "" {
			text = m.Reasoning + "\n\n" + text
		}
		for _, c := range m.ToolCalls {
			text += "\n" + c.Name + " " + c.Arguments
		}
		if len(text) > maxText {
			text = text[:maxText/2] + "\n…\n" + text[len(text)-maxText/2:]
		}
		if m.Role != trajectory.RoleAssistant {
			heard = append(heard, message{m.Role, text})
			continue
		}
		before, replies, heard = append(before, heard), append(replies, text), nil
	}
	return before, replies
}
