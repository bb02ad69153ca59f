package mine

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/env"
	history "deepswe/env/mine"
	"deepswe/verify/swe"
)

//go:embed statement.md
var statementText string

// written is what became of the statement that a model was asked for.
type written struct {
	Text string `json:"text,omitempty"`
	// Why says why there is none.
	Why string `json:"why,omitempty"`
}

// readWritten reads the outcome of a job that writes a statement.
func readWritten(o run.Outcome) (t written) {
	if err := json.Unmarshal(o.Detail, &t); o.Failed() || err != nil {
		return written{Why: o.Err}
	}
	return t
}

// statementGroup is the group of the job that writes a statement.
func statementGroup(id string) string { return "statement:" + id }

func statementJob(id string) run.Job { return run.Job{Task: id, Group: statementGroup(id)} }

// writes reports whether the model writes the statement of a task, or has written it before.
func (m *Miner) writes(id string) bool {
	_, known := m.Dir.Find(statementJob(id))
	return known || m.Writer != nil
}

// write lets the model write the statements of sound tasks that no issue gives, and drops those that still have none.
func (m *Miner) write(
	ctx context.Context, mined *Mined, judged []Judged, of map[string]history.Candidate, w swe.Watch,
) error {
	before := map[string]string{}
	for _, j := range judged {
		before[j.Task.ID] = j.Before
	}
	var plan []run.Job
	for _, t := range mined.Tasks {
		if !strings.HasPrefix(t.Labels["statement"], history.FromIssue) && m.writes(t.ID) {
			plan = append(plan, statementJob(t.ID))
		}
	}
	if len(plan) == 0 {
		return nil
	}
	outcomes, err := m.do(ctx, "statements", plan, w, func(ctx context.Context, j run.Job) (any, error) {
		return m.ask(ctx, of[j.Task], before[j.Task])
	})
	if err != nil {
		return err
	}
	texts := map[string]written{}
	for _, o := range outcomes {
		texts[o.Task] = readWritten(o)
	}
	for i := range mined.Tasks {
		t := &mined.Tasks[i]
		text := history.Text{From: history.FromModel, Body: texts[t.ID].Text}
		if s, from, why := of[t.ID].Statement([]history.Text{text}, nil); why == "" {
			t.Statement, t.Labels["statement"] = s, from
		}
	}
	mined.Tasks = slices.DeleteFunc(mined.Tasks, func(t env.Task) bool {
		if t.Statement == "" {
			mined.lose(of[t.ID], history.Unsaid, texts[t.ID].Why)
		}
		return t.Statement == ""
	})
	return nil
}

// The limits of a request for a statement: how often it is asked for, the tokens of an answer with the thoughts before
// it, and the bytes of a patch.
const (
	mostAsked    = 3
	answerTokens = 8192
	longestPatch = 30_000
)

// ask lets the model write a statement until it gives nothing away.
func (m *Miner) ask(ctx context.Context, c history.Candidate, before string) (w written, err error) {
	w.Why, err = askUntil(ctx, m.Writer, request(c, before), "the report", func(text string) string {
		text = strings.TrimSpace(text)
		why := c.Leak(text)
		if why == "" {
			w.Text = text
		}
		return why
	})
	return w, err
}

// askUntil asks a model, and asks it again, up to mostAsked times in all, while refuse says why its answer is not
// what it was asked for. It returns the last of these reasons; empty if an answer was accepted.
func askUntil(
	ctx context.Context, model agent.Model, request, what string, refuse func(text string) (why string),
) (why string, err error) {
	messages := []agent.Message{{Role: agent.RoleUser, Content: request}}
	for range mostAsked {
		reply, err := model.Complete(ctx, agent.Request{Messages: messages, MaxTokens: answerTokens})
		if errors.Is(err, agent.ErrContextOverflow) {
			return err.Error(), nil
		}
		if err != nil {
			return why, err
		}
		text := agent.WithoutThoughts(reply.Message.Content)
		if why = refuse(text); why == "" {
			return "", nil
		}
		messages = append(messages, agent.Message{Role: agent.RoleAssistant, Content: strings.TrimSpace(text)},
			agent.Message{Role: agent.RoleUser, Content: "This cannot be " + what + ": " + why + ". Write it again."})
	}
	return why, nil
}

// request returns what the model is asked.
func request(c history.Candidate, before string) string {
	return filled(statementText, map[string]any{
		"Message": c.Message, "Change": cut(c.Sources), "Tests": cut(c.Tests), "Log": before,
	})
}
