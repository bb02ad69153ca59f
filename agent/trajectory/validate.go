package trajectory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// knownVersion matches the versions of ATIF whose rules Validate knows.
var knownVersion = regexp.MustCompile(`^ATIF-v1\.[0-8]$`)

// ErrInvalid marks a document that breaks a rule of ATIF.
var ErrInvalid = errors.New("invalid trajectory")

// Validate checks the document against the rules of ATIF for what this package writes: numbered steps, ISO 8601 times,
// fields that only an agent's steps may have, results that answer calls of their own step, aligned logprobs. The error
// names every broken rule.
func (d *Document) Validate() error {
	var p problems
	p.document(d)
	if len(p.errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalid, errors.Join(p.errs...))
}

// problems collects what is wrong, each with its place in the document.
type problems struct{ errs []error }

func (p *problems) check(ok bool, at, format string, args ...any) {
	if !ok {
		p.errs = append(p.errs, fmt.Errorf("%s: "+format, append([]any{at}, args...)...))
	}
}

func (p *problems) document(d *Document) {
	p.check(knownVersion.MatchString(d.SchemaVersion), "schema_version", "unknown version %q; this program writes %s",
		d.SchemaVersion, SchemaVersion)
	p.check(d.Agent.Name != "", "agent.name", "is missing")
	p.check(d.Agent.Version != "", "agent.version", "is missing")
	for i, t := range d.Agent.ToolDefinitions {
		p.check(isObject(t), fmt.Sprintf("agent.tool_definitions[%d]", i), "is not a JSON object")
	}
	p.check(len(d.Steps) > 0, "steps", "is empty")
	for i := range d.Steps {
		s := &d.Steps[i]
		where := fmt.Sprintf("steps[%d].", i)
		p.check(s.StepID == i+1, where+"step_id", "is %d, not %d", s.StepID, i+1)
		p.step(where, s)
	}
}

func (p *problems) step(at string, s *Step) {
	sources := []string{SourceSystem, SourceUser, SourceAgent}
	p.check(slices.Contains(sources, s.Source), at+"source", "%q is not system, user or agent", s.Source)
	if s.Timestamp != "" {
		_, err := parseTime(s.Timestamp)
		p.check(err == nil, at+"timestamp", "%q is not ISO 8601", s.Timestamp)
	}
	if s.Source != SourceAgent {
		const agents = "is for steps of the agent only"
		p.check(s.ModelName == "", at+"model_name", agents)
		p.check(s.ReasoningEffort == nil, at+"reasoning_effort", agents)
		p.check(s.ReasoningContent == "", at+"reasoning_content", agents)
		p.check(s.ToolCalls == nil, at+"tool_calls", agents)
		p.check(s.Metrics == nil, at+"metrics", agents)
	}
	switch s.ReasoningEffort.(type) {
	case nil, string, float64, json.Number:
	default:
		p.check(false, at+"reasoning_effort", "is neither text nor number")
	}
	if s.LLMCallCount != nil {
		p.check(*s.LLMCallCount >= 0, at+"llm_call_count", "is negative")
		p.check(*s.LLMCallCount > 0 || s.Metrics == nil && s.ReasoningContent == "", at+"llm_call_count",
			"is 0, but the step has metrics or reasoning")
	}
	p.calls(at, s)
	if s.Metrics != nil {
		p.metrics(at+"metrics.", s.Metrics)
	}
}

func (p *problems) calls(at string, s *Step) {
	ids := make(map[string]bool)
	for i, c := range s.ToolCalls {
		where := fmt.Sprintf("%stool_calls[%d].", at, i)
		p.check(c.ToolCallID != "" && !ids[c.ToolCallID], where+"tool_call_id",
			"%q is empty or used twice", c.ToolCallID)
		ids[c.ToolCallID] = true
		p.check(isObject(c.Arguments), where+"arguments", "is not a JSON object")
	}
	if s.Observation == nil {
		return
	}
	for i, r := range s.Observation.Results {
		where := fmt.Sprintf("%sobservation.results[%d].", at, i)
		p.check(r.SourceCallID == "" || ids[r.SourceCallID], where+"source_call_id",
			"%q is not a call of this step", r.SourceCallID)
	}
}

func (p *problems) metrics(at string, m *Metrics) {
	p.check(deref(m.PromptTokens) >= 0, at+"prompt_tokens", "is negative")
	p.check(deref(m.CompletionTokens) >= 0, at+"completion_tokens", "is negative")
	p.check(deref(m.CachedTokens) >= 0, at+"cached_tokens", "is negative")
	// The format says that the two align; training depends on it.
	aligned := len(m.Logprobs) == len(m.CompletionTokenIDs)
	p.check(aligned || len(m.Logprobs) == 0 || len(m.CompletionTokenIDs) == 0, at+"logprobs",
		"has %d entries for %d completion tokens", len(m.Logprobs), len(m.CompletionTokenIDs))
}

func isObject(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) && json.Valid(data)
}

// parseTime reads the forms of ISO 8601 that trajectories are found with.
func parseTime(s string) (time.Time, error) {
	var err error
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00",
		"2006-01-02 15:04:05.999999999", time.DateOnly,
	} {
		var t time.Time
		if t, err = time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, err
}
