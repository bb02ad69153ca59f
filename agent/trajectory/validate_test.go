package trajectory_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"deepswe/agent/trajectory"
)

func TestValidateNamesEveryBrokenRule(t *testing.T) {
	t.Parallel()
	tests := []struct {
		want  string
		spoil func(d *trajectory.Document)
	}{
		{"schema_version", func(d *trajectory.Document) { d.SchemaVersion = "2.0" }},
		{"agent.name", func(d *trajectory.Document) { d.Agent.Name = "" }},
		{"agent.version", func(d *trajectory.Document) { d.Agent.Version = "" }},
		{"agent.tool_definitions[0]",
			func(d *trajectory.Document) { d.Agent.ToolDefinitions = []json.RawMessage{[]byte("[]")} }},
		{"steps: is empty", func(d *trajectory.Document) { d.Steps = nil }},
		{"steps[1].step_id", func(d *trajectory.Document) { d.Steps[1].StepID = 1 }},
		{"steps[0].source", func(d *trajectory.Document) { d.Steps[0].Source = "assistant" }},
		{"steps[0].timestamp", func(d *trajectory.Document) { d.Steps[0].Timestamp = "yesterday" }},
		{"steps[0].model_name", func(d *trajectory.Document) { d.Steps[0].ModelName = "m" }},
		{"steps[0].reasoning_content", func(d *trajectory.Document) { d.Steps[0].ReasoningContent = "r" }},
		{"steps[0].tool_calls", func(d *trajectory.Document) { d.Steps[0].ToolCalls = []trajectory.StepToolCall{} }},
		{"steps[0].metrics", func(d *trajectory.Document) { d.Steps[0].Metrics = &trajectory.Metrics{} }},
		{"steps[2].llm_call_count", func(d *trajectory.Document) { d.Steps[2].LLMCallCount = ptr(0) }},
		{"steps[3].tool_calls[0].tool_call_id", func(d *trajectory.Document) { d.Steps[3].ToolCalls[0].ToolCallID = "" }},
		{"steps[3].tool_calls[0].arguments",
			func(d *trajectory.Document) { d.Steps[3].ToolCalls[0].Arguments = []byte(`"x"`) }},
		{"steps[3].observation.results[0].source_call_id",
			func(d *trajectory.Document) { d.Steps[3].Observation.Results[0].SourceCallID = "other" }},
		{"steps[3].metrics.logprobs", func(d *trajectory.Document) { d.Steps[3].Metrics.Logprobs = []float64{1} }},
		{"steps[3].metrics.prompt_tokens", func(d *trajectory.Document) { d.Steps[3].Metrics.PromptTokens = ptr(-1) }},
	}
	for _, test := range tests {
		t.Run(test.want, func(t *testing.T) {
			d, err := trajectory.NewDocument(rollout())
			if err != nil {
				t.Fatal(err)
			}
			if err := validate(d); err != nil {
				t.Fatalf("it is invalid before it is spoilt: %v", err)
			}
			test.spoil(d)
			err = validate(d)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to name %s", err, test.want)
			}
		})
	}
}

// knownVersion matches the versions of ATIF whose rules validate knows.
var knownVersion = regexp.MustCompile(`^ATIF-v1\.[0-8]$`)

// validate checks a document against the rules of ATIF for what this package writes: numbered steps, ISO 8601 times,
// fields that only an agent's steps may have, results that answer calls of their own step, aligned logprobs. The error
// names every broken rule.
func validate(d *trajectory.Document) error {
	var p problems
	p.document(d)
	return errors.Join(p.errs...)
}

// problems collects the broken rules, each with its place in the document.
type problems struct{ errs []error }

func (p *problems) check(ok bool, at, format string, args ...any) {
	if !ok {
		p.errs = append(p.errs, fmt.Errorf("%s: "+format, append([]any{at}, args...)...))
	}
}

func (p *problems) document(d *trajectory.Document) {
	p.check(knownVersion.MatchString(d.SchemaVersion), "schema_version", "unknown version %q; this program writes %s",
		d.SchemaVersion, trajectory.SchemaVersion)
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

func (p *problems) step(at string, s *trajectory.Step) {
	sources := []string{trajectory.SourceSystem, trajectory.SourceUser, trajectory.SourceAgent}
	p.check(slices.Contains(sources, s.Source), at+"source", "%q is not system, user or agent", s.Source)
	if s.Timestamp != "" {
		_, err := time.Parse(time.RFC3339Nano, s.Timestamp)
		p.check(err == nil, at+"timestamp", "%q is not ISO 8601", s.Timestamp)
	}
	if s.Source != trajectory.SourceAgent {
		const agents = "is for steps of the agent only"
		p.check(s.ModelName == "", at+"model_name", agents)
		p.check(s.ReasoningContent == "", at+"reasoning_content", agents)
		p.check(s.ToolCalls == nil, at+"tool_calls", agents)
		p.check(s.Metrics == nil, at+"metrics", agents)
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

func (p *problems) calls(at string, s *trajectory.Step) {
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

func (p *problems) metrics(at string, m *trajectory.Metrics) {
	p.check(m.PromptTokens == nil || *m.PromptTokens >= 0, at+"prompt_tokens", "is negative")
	p.check(m.CompletionTokens == nil || *m.CompletionTokens >= 0, at+"completion_tokens", "is negative")
	p.check(m.CachedTokens == nil || *m.CachedTokens >= 0, at+"cached_tokens", "is negative")
	// The format requires the two to align, and training relies on it.
	aligned := len(m.Logprobs) == len(m.CompletionTokenIDs)
	p.check(aligned || len(m.Logprobs) == 0 || len(m.CompletionTokenIDs) == 0, at+"logprobs",
		"has %d entries for %d completion tokens", len(m.Logprobs), len(m.CompletionTokenIDs))
}

func isObject(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) && json.Valid(data)
}
