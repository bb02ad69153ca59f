package trajectory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"
	"unicode/utf8"

	"deepswe/env/disk"
)

// Keys of the extra objects in which a document stores what ATIF has no fields for.
const (
	extraFormat       = "action_format" // agent: Header.Format
	extraTask         = "task"          // document: Header.Task
	extraRun          = "run"           // document: Header.Extra
	extraStop         = "stop"          // document: Stop
	extraCallsInText  = "calls_in_text" // step: the calls are also in the message's text
	extraProblem      = "format_problem"
	extraFinishReason = "finish_reason"
	extraPrompt       = "prompt"        // step: Reply.Prompt
	extraElapsed      = "elapsed_ms"    // step, result
	extraRaw          = "raw_arguments" // call: the model's text, if it differs from the compact form of the arguments
	extraServerID     = "server_id"     // call: the server's ID, if it was empty or not unique
	extraCallID       = "call_id"       // result: an ID that no call of the step has
	extraOutput       = "output"        // result: the tool's own output, if more was sent
	extraAsSent       = "as_sent"       // result: the whole message that carried several results
	extraExitCode     = "exit_code"
	extraFailed       = "failed"
	extraTimedOut     = "timed_out"
	extraOutOfMemory  = "out_of_memory"
	extraOutOfDisk    = "out_of_disk"
	extraReasoning    = "reasoning_tokens" // metrics
	extraVersion      = "policy_version"   // metrics: Sample.PolicyVersion
	extraCompactions  = "compactions"      // step: compactions since the previous step
)

// NewDocument creates an ATIF document from the events of a log. The rollout may still be in progress.
func NewDocument(events []Event) (*Document, error) {
	if len(events) == 0 || events[0].Header == nil {
		return nil, fmt.Errorf("%w: it has no header", ErrLog)
	}
	events = inOrder(events)
	d := documentOf(events[0].Header)
	copied := events[0].Header.Prefix
	var compactions []Compaction // compactions since the last reply
	for _, e := range events[1:] {
		delete(d.Extra, extraStop) // the rollout was continued after its end
		switch e.Kind {
		case KindMessage:
			d.Steps = append(d.Steps, messageStep(e.Time, e.Message, len(d.Steps)+1))
		case KindReply:
			s := replyStep(e.Time, e.Reply, len(d.Steps)+1)
			if len(compactions) > 0 {
				s.Extra[extraCompactions] = compactions
				compactions = nil
			}
			if copied > 0 {
				s.IsCopiedContext, copied = new(true), copied-1
			}
			d.Steps = append(d.Steps, s)
		case KindCompaction:
			compactions = append(compactions, *e.Compaction)
		case KindObservation:
			if len(d.Steps) == 0 || d.Steps[len(d.Steps)-1].Source != SourceAgent {
				return nil, fmt.Errorf("%w: event %d is an observation, but no reply precedes it", ErrLog, e.Seq)
			}
			d.Steps[len(d.Steps)-1].addObservation(e.Observation)
		case KindStop:
			d.Extra[extraStop] = *e.Stop
		}
	}
	for i := range d.Steps {
		d.Steps[i].StepID = i + 1
	}
	d.FinalMetrics = total(d.Steps)
	return d, nil
}

func documentOf(h *Header) *Document {
	d := &Document{
		SchemaVersion: SchemaVersion,
		SessionID:     h.Session,
		TrajectoryID:  h.Trajectory,
		Agent:         Agent{Name: h.Agent, Version: h.AgentVersion, ModelName: h.Model, ToolDefinitions: h.Tools},
		Steps:         []Step{},
		Extra:         map[string]any{},
	}
	if h.Format != "" {
		d.Agent.Extra = map[string]any{extraFormat: h.Format}
	}
	put(d.Extra, extraTask, h.Task)
	if len(h.Extra) > 0 {
		d.Extra[extraRun] = maps.Clone(h.Extra)
	}
	return d
}

// put stores a value that is not the zero one.
func put[T comparable](extra map[string]any, key string, value T) {
	var zero T
	if value != zero {
		extra[key] = value
	}
}

func messageStep(at time.Time, m *Message, id int) Step {
	s := Step{Timestamp: stamp(at), Source: SourceUser, Message: Text(m.Content)}
	switch m.Role {
	case RoleSystem:
		s.Source = SourceSystem
	case RoleAssistant: // known from another conversation
		s.Source, s.IsCopiedContext, s.LLMCallCount = SourceAgent, new(true), new(0)
		s.ToolCalls = nativeCalls(m.ToolCalls, id)
	}
	return s
}

func replyStep(at time.Time, r *Reply, id int) Step {
	s := Step{
		Timestamp:        stamp(at),
		Source:           SourceAgent,
		ModelName:        r.Model,
		Message:          Text(r.Message.Content),
		ReasoningContent: r.Message.Reasoning,
		Metrics:          metricsOf(r),
		LLMCallCount:     new(1),
		Extra:            map[string]any{},
	}
	if len(r.Message.ToolCalls) > 0 {
		s.ToolCalls = nativeCalls(r.Message.ToolCalls, id)
	} else if len(r.Calls) > 0 {
		s.Extra[extraCallsInText] = true
		s.ToolCalls = textCalls(r.Calls)
	}
	put(s.Extra, extraFinishReason, r.FinishReason)
	put(s.Extra, extraPrompt, r.Prompt)
	put(s.Extra, extraProblem, r.Problem)
	if r.Elapsed != 0 {
		s.Extra[extraElapsed] = r.Elapsed.Milliseconds()
	}
	return s
}

// nativeCalls gives every call a unique ID, because some servers leave IDs empty or use one for all calls.
func nativeCalls(calls []ToolCall, step int) []StepToolCall {
	seen := make(map[string]bool, len(calls))
	for _, c := range calls {
		seen[c.ID] = true
	}
	used := make(map[string]bool, len(calls))
	out := make([]StepToolCall, 0, len(calls))
	for i, c := range calls {
		call := StepToolCall{ToolCallID: c.ID, FunctionName: c.Name, Arguments: json.RawMessage("{}")}
		extra := map[string]any{}
		if c.ID == "" || used[c.ID] {
			for n := i + 1; call.ToolCallID == "" || seen[call.ToolCallID]; n++ {
				call.ToolCallID = fmt.Sprintf("step_%d_call_%d", step, n)
			}
			seen[call.ToolCallID] = true
			extra[extraServerID] = c.ID
		}
		used[call.ToolCallID] = true
		compact, isObject := compactObject(c.Arguments)
		if isObject {
			call.Arguments = compact
		}
		if string(compact) != c.Arguments {
			extra[extraRaw] = c.Arguments
		}
		if len(extra) > 0 {
			call.Extra = extra
		}
		out = append(out, call)
	}
	return out
}

func textCalls(calls []Call) []StepToolCall {
	out := make([]StepToolCall, 0, len(calls))
	for _, c := range calls {
		args := c.Args
		if args == nil {
			args = map[string]string{}
		}
		object, err := disk.MarshalJSON(args)
		if err != nil {
			panic(err) // cannot happen: a map of strings can be encoded
		}
		out = append(out, StepToolCall{ToolCallID: c.ID, FunctionName: c.Name, Arguments: object})
	}
	return out
}

// compactObject returns the compact form of a JSON object; ok is false for any other text.
func compactObject(text string) (json.RawMessage, bool) {
	var buf bytes.Buffer
	if !utf8.ValidString(text) || json.Compact(&buf, []byte(text)) != nil || !bytes.HasPrefix(buf.Bytes(), []byte("{")) {
		return nil, false
	}
	return buf.Bytes(), true
}

// addObservation adds to the step the message that answers it.
func (s *Step) addObservation(o *Observation) {
	if s.Observation == nil {
		s.Observation = &StepObservation{Results: []StepResult{}}
	}
	add := func(r StepResult) { s.Observation.Results = append(s.Observation.Results, r) }
	sent := Text(o.Message.Content)
	switch len(o.Results) {
	case 0:
		add(StepResult{Content: &sent})
	case 1:
		r := s.result(o.Results[0])
		r.Content = &sent
		if out := o.Results[0].Output; out != "" && out != sent.Text {
			r.Extra[extraOutput] = out
		}
		add(r)
	default:
		for _, result := range o.Results {
			r := s.result(result)
			out := Text(result.Output)
			r.Content = &out
			add(r)
		}
		add(StepResult{Content: &sent, Extra: map[string]any{extraAsSent: true}})
	}
}

// result creates a StepResult: the call that it answers, and what is known besides its text.
func (s *Step) result(r Result) StepResult {
	out := StepResult{Extra: map[string]any{}}
	if id, ok := s.call(r.CallID); ok {
		out.SourceCallID = id
	} else if r.CallID != "" {
		out.Extra[extraCallID] = r.CallID
	}
	if r.ExitCode != nil {
		out.Extra[extraExitCode] = *r.ExitCode
	}
	put(out.Extra, extraFailed, r.Failed)
	put(out.Extra, extraTimedOut, r.TimedOut)
	put(out.Extra, extraOutOfMemory, r.OutOfMemory)
	put(out.Extra, extraOutOfDisk, r.OutOfDisk)
	if r.Elapsed != 0 {
		out.Extra[extraElapsed] = r.Elapsed.Milliseconds()
	}
	return out
}

// call returns the ID of the call that a result answers. If several calls have the same server ID, each result
// belongs to the next one.
func (s *Step) call(id string) (string, bool) {
	answered := make(map[string]bool)
	for _, r := range s.Observation.Results {
		answered[r.SourceCallID] = true
	}
	for _, c := range s.ToolCalls {
		server, renamed := c.Extra[extraServerID]
		if (c.ToolCallID == id || renamed && server == id) && !answered[c.ToolCallID] {
			return c.ToolCallID, true
		}
	}
	return "", false
}

func metricsOf(r *Reply) *Metrics {
	if r.Usage == (Usage{}) && r.Tokens == nil {
		return nil
	}
	u, t := r.Usage, r.Tokens
	if t != nil && u.Prompt == 0 && u.Completion == 0 {
		u.Prompt, u.Completion = len(t.PromptIDs), len(t.CompletionIDs)
	}
	m := &Metrics{PromptTokens: &u.Prompt, CompletionTokens: &u.Completion}
	if u.Cached > 0 {
		m.CachedTokens = &u.Cached
	}
	extra := map[string]any{}
	put(extra, extraReasoning, u.Reasoning)
	if t != nil {
		m.PromptTokenIDs, m.CompletionTokenIDs, m.Logprobs = t.PromptIDs, t.CompletionIDs, t.Logprobs
		if t.PolicyVersion != nil {
			extra[extraVersion] = *t.PolicyVersion
		}
	}
	if len(extra) > 0 {
		m.Extra = extra
	}
	return m
}

func total(steps []Step) *FinalMetrics {
	var prompt, completion, cached, n int
	for _, s := range steps {
		if s.Metrics == nil {
			continue
		}
		n++
		prompt += deref(s.Metrics.PromptTokens)
		completion += deref(s.Metrics.CompletionTokens)
		cached += deref(s.Metrics.CachedTokens)
	}
	f := &FinalMetrics{TotalSteps: new(len(steps))}
	if n > 0 {
		f.TotalPromptTokens, f.TotalCompletionTokens = &prompt, &completion
	}
	if cached > 0 {
		f.TotalCachedTokens = &cached
	}
	return f
}

func deref(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// stamp formats a time so that every ISO 8601 parser accepts it: UTC, milliseconds, Z.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// atoi reads a number in an extra object: a Go integer in a document created here, a json.Number in one that was
// read.
func atoi(v any) (int, bool) {
	n, err := strconv.Atoi(fmt.Sprint(v))
	return n, err == nil
}
