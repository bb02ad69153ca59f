package trajectory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"deepswe/env/disk"
)

// Recording restores the conversation from a document. For deepswe's own documents, the messages are exactly those
// that were sent. For other agents' documents, results become tool messages, which is as close as possible.
func (d *Document) Recording() (*Recording, error) {
	r := &Recording{Header: d.header()}
	if v, ok := d.Extra[extraStop]; ok {
		// extra.stop is a Stop if this process created the document, and decoded JSON if the document was read from a
		// file.
		r.Stop = new(Stop)
		data, err := disk.MarshalJSON(v)
		if err == nil {
			err = json.Unmarshal(data, r.Stop)
		}
		if err != nil {
			return nil, fmt.Errorf("read trajectory: extra.stop: %w", err)
		}
	}
	for i := range d.Steps {
		s := &d.Steps[i]
		if r.Started.IsZero() {
			r.Started = s.time()
		}
		switch s.Source {
		case SourceSystem:
			r.Messages = append(r.Messages, Message{Role: RoleSystem, Content: s.Message.String()})
		case SourceUser:
			r.Messages = append(r.Messages, Message{Role: RoleUser, Content: s.Message.String()})
		case SourceAgent:
			t := s.turn()
			r.Messages = append(r.Messages, t.Reply.Message)
			for _, o := range t.Observations {
				r.Messages = append(r.Messages, o.Message)
			}
			// What was copied from an earlier trajectory is context and not a turn of this one.
			if s.IsCopiedContext == nil || !*s.IsCopiedContext {
				r.Turns = append(r.Turns, t)
			}
		default:
			return nil, fmt.Errorf("read trajectory: step %d has the unknown source %q", s.StepID, s.Source)
		}
	}
	return r, nil
}

func (d *Document) header() Header {
	h := Header{
		Version: LogVersion, Session: d.SessionID, Trajectory: d.TrajectoryID, Agent: d.Agent.Name,
		AgentVersion: d.Agent.Version, Model: d.Agent.ModelName, Tools: d.Agent.ToolDefinitions,
	}
	h.Format, _ = d.Agent.Extra[extraFormat].(string)
	h.Task, _ = d.Extra[extraTask].(string)
	h.Extra, _ = d.Extra[extraRun].(map[string]any)
	return h
}

// time parses the ISO 8601 variants that occur in trajectories; zero for anything else.
func (s *Step) time() time.Time {
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00",
		"2006-01-02 15:04:05.999999999", time.DateOnly,
	} {
		if t, err := time.Parse(layout, s.Timestamp); err == nil {
			return t
		}
	}
	return time.Time{}
}

func (s *Step) turn() Turn {
	reply := Reply{
		Message: Message{Role: RoleAssistant, Content: s.Message.String(), Reasoning: s.ReasoningContent},
		Model:   s.ModelName,
	}
	reply.FinishReason, _ = s.Extra[extraFinishReason].(string)
	reply.Problem, _ = s.Extra[extraProblem].(string)
	reply.Prompt, _ = s.Extra[extraPrompt].(string)
	reply.Elapsed = milliseconds(s.Extra)
	inText, _ := s.Extra[extraCallsInText].(bool)
	for _, c := range s.ToolCalls {
		reply.Calls = append(reply.Calls, Call{ID: c.ToolCallID, Name: c.FunctionName, Args: c.args()})
		if !inText {
			reply.Message.ToolCalls = append(reply.Message.ToolCalls, c.native())
		}
	}
	if m := s.Metrics; m != nil {
		reply.Usage = Usage{
			Prompt: deref(m.PromptTokens), Completion: deref(m.CompletionTokens), Cached: deref(m.CachedTokens),
		}
		reply.Usage.Reasoning, _ = atoi(m.Extra[extraReasoning])
		if len(m.CompletionTokenIDs) > 0 {
			reply.Tokens = &Sample{PromptIDs: m.PromptTokenIDs, CompletionIDs: m.CompletionTokenIDs, Logprobs: m.Logprobs}
			if version, ok := atoi(m.Extra[extraVersion]); ok {
				reply.Tokens.PolicyVersion = new(int64(version))
			}
		}
	}
	return Turn{Reply: reply, Observations: s.observations(inText)}
}

// native returns the call as the server returned it.
func (c *StepToolCall) native() ToolCall {
	t := ToolCall{ID: c.ToolCallID, Name: c.FunctionName}
	if id, ok := c.Extra[extraServerID].(string); ok {
		t.ID = id
	}
	if raw, ok := c.Extra[extraRaw].(string); ok {
		t.Arguments = raw
	} else if compact, ok := compactObject(string(c.Arguments)); ok {
		t.Arguments = string(compact)
	}
	return t
}

// args returns every argument as text: a string's value, or any other value in JSON form.
func (c *StepToolCall) args() map[string]string {
	var object map[string]json.RawMessage
	if json.Unmarshal(c.Arguments, &object) != nil {
		return nil
	}
	args := make(map[string]string, len(object))
	for key, value := range object {
		var text string
		if bytes.HasPrefix(value, []byte(`"`)) && json.Unmarshal(value, &text) == nil {
			args[key] = text
		} else {
			args[key] = string(value)
		}
	}
	return args
}

func (s *Step) observations(inText bool) []Observation {
	if s.Observation == nil {
		return nil
	}
	var out []Observation
	var together []Result // results that were in one message
	for _, r := range s.Observation.Results {
		var sent string
		if r.Content != nil {
			sent = r.Content.String()
		}
		if asSent, _ := r.Extra[extraAsSent].(bool); asSent {
			// The results before this one were split up only for the document.
			n := len(out) - len(together)
			out = append(out[:n], Observation{Message: Message{Role: RoleUser, Content: sent}, Results: together})
			together = nil
			continue
		}
		o := Observation{Message: Message{Role: RoleUser, Content: sent}}
		if r.SourceCallID != "" || r.Extra[extraCallID] != nil {
			result := r.result(sent)
			o.Results = []Result{result}
			together = append(together, result)
			if !inText {
				s.address(&o.Message, r.SourceCallID)
			}
		}
		out = append(out, o)
	}
	return out
}

// address turns the message into the answer to a native call.
func (s *Step) address(m *Message, id string) {
	for i := range s.ToolCalls {
		if c := &s.ToolCalls[i]; c.ToolCallID == id {
			m.Role, m.ToolCallID, m.Name = RoleTool, c.native().ID, c.FunctionName
		}
	}
}

func (r *StepResult) result(sent string) Result {
	out := Result{CallID: r.SourceCallID, Output: sent, Elapsed: milliseconds(r.Extra)}
	if id, ok := r.Extra[extraCallID].(string); ok {
		out.CallID = id
	}
	if text, ok := r.Extra[extraOutput].(string); ok {
		out.Output = text
	}
	if code, ok := atoi(r.Extra[extraExitCode]); ok {
		out.ExitCode = &code
	}
	out.Failed, _ = r.Extra[extraFailed].(bool)
	out.TimedOut, _ = r.Extra[extraTimedOut].(bool)
	out.OutOfMemory, _ = r.Extra[extraOutOfMemory].(bool)
	out.OutOfDisk, _ = r.Extra[extraOutOfDisk].(bool)
	return out
}

func milliseconds(extra map[string]any) time.Duration {
	n, _ := atoi(extra[extraElapsed])
	return time.Duration(n) * time.Millisecond
}
