package trajectory_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"deepswe/agent/trajectory"
)

func TestValidateNamesEveryBrokenRule(t *testing.T) {
	tests := []struct {
		want  string
		spoil func(d *trajectory.Document)
	}{
		{"schema_version", func(d *trajectory.Document) { d.SchemaVersion = "2.0" }},
		{"agent.name", func(d *trajectory.Document) { d.Agent.Name = "" }},
		{"agent.version", func(d *trajectory.Document) { d.Agent.Version = "" }},
		{"agent.tool_definitions[0]", func(d *trajectory.Document) { d.Agent.ToolDefinitions = []json.RawMessage{[]byte("[]")} }},
		{"steps: is empty", func(d *trajectory.Document) { d.Steps = nil }},
		{"steps[1].step_id", func(d *trajectory.Document) { d.Steps[1].StepID = 1 }},
		{"steps[0].source", func(d *trajectory.Document) { d.Steps[0].Source = "assistant" }},
		{"steps[0].timestamp", func(d *trajectory.Document) { d.Steps[0].Timestamp = "yesterday" }},
		{"steps[0].model_name", func(d *trajectory.Document) { d.Steps[0].ModelName = "m" }},
		{"steps[0].reasoning_content", func(d *trajectory.Document) { d.Steps[0].ReasoningContent = "r" }},
		{"steps[0].tool_calls", func(d *trajectory.Document) { d.Steps[0].ToolCalls = []trajectory.StepToolCall{} }},
		{"steps[0].metrics", func(d *trajectory.Document) { d.Steps[0].Metrics = &trajectory.Metrics{} }},
		{"steps[0].reasoning_effort", func(d *trajectory.Document) { d.Steps[0].ReasoningEffort = "high" }},
		{"steps[2].reasoning_effort", func(d *trajectory.Document) { d.Steps[2].ReasoningEffort = true }},
		{"steps[2].llm_call_count", func(d *trajectory.Document) { d.Steps[2].LLMCallCount = ptr(0) }},
		{"steps[3].tool_calls[0].tool_call_id", func(d *trajectory.Document) { d.Steps[3].ToolCalls[0].ToolCallID = "" }},
		{"steps[3].tool_calls[0].arguments", func(d *trajectory.Document) { d.Steps[3].ToolCalls[0].Arguments = []byte(`"x"`) }},
		{"steps[3].observation.results[0].source_call_id", func(d *trajectory.Document) { d.Steps[3].Observation.Results[0].SourceCallID = "other" }},
		{"steps[3].metrics.logprobs", func(d *trajectory.Document) { d.Steps[3].Metrics.Logprobs = []float64{1} }},
		{"steps[3].metrics.prompt_tokens", func(d *trajectory.Document) { d.Steps[3].Metrics.PromptTokens = ptr(-1) }},
	}
	for _, test := range tests {
		t.Run(test.want, func(t *testing.T) {
			d, err := trajectory.NewDocument(rollout())
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Validate(); err != nil {
				t.Fatalf("it is invalid before it is spoilt: %v", err)
			}
			test.spoil(d)
			err = d.Validate()
			if !errors.Is(err, trajectory.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to name %s", err, test.want)
			}
		})
	}
}
