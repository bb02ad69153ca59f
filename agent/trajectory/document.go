package trajectory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"deepswe/env/disk"
)

// SchemaVersion is the version of ATIF that this package writes.
const SchemaVersion = "ATIF-v1.7"

// Document is an ATIF trajectory. The field names are those of the format; absent is a nil pointer or an empty value.
type Document struct {
	SchemaVersion string `json:"schema_version"`
	// SessionID names the run and may be shared; TrajectoryID names this document.
	SessionID    string `json:"session_id,omitempty"`
	TrajectoryID string `json:"trajectory_id,omitempty"`
	Agent        Agent  `json:"agent"`
	Steps        []Step `json:"steps"`
	Notes        string `json:"notes,omitempty"`

	FinalMetrics *FinalMetrics `json:"final_metrics,omitempty"`
	// ContinuedTrajectoryRef points to the file that goes on where this one ends.
	ContinuedTrajectoryRef string         `json:"continued_trajectory_ref,omitempty"`
	Extra                  map[string]any `json:"extra,omitempty"`
	// SubagentTrajectories are whole documents, each with a TrajectoryID of its own.
	SubagentTrajectories []Document `json:"subagent_trajectories,omitempty"`
}

// Agent is the program that acted.
type Agent struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// ModelName is the model of every step that does not name its own.
	ModelName       string            `json:"model_name,omitempty"`
	ToolDefinitions []json.RawMessage `json:"tool_definitions,omitempty"`
	Extra           map[string]any    `json:"extra,omitempty"`
}

// The sources of a step.
const (
	SourceSystem = "system"
	SourceUser   = "user"
	SourceAgent  = "agent"
)

// Step is one turn: a system prompt, a user's message, or a reply of the model with what became of it. ModelName,
// ReasoningEffort, ReasoningContent, ToolCalls and Metrics belong to steps of the agent alone.
type Step struct {
	// StepID counts from 1 without gaps.
	StepID int `json:"step_id"`
	// Timestamp is ISO 8601.
	Timestamp string `json:"timestamp,omitempty"`
	Source    string `json:"source"`
	ModelName string `json:"model_name,omitempty"`
	// ReasoningEffort is a string or a number.
	ReasoningEffort  any            `json:"reasoning_effort,omitempty"`
	Message          Content        `json:"message"`
	ReasoningContent string         `json:"reasoning_content,omitempty"`
	ToolCalls        []StepToolCall `json:"tool_calls,omitempty"`

	Observation *StepObservation `json:"observation,omitempty"`
	Metrics     *Metrics         `json:"metrics,omitempty"`
	Extra       map[string]any   `json:"extra,omitempty"`
	// LLMCallCount is 0 where no model was asked for the step, which then has neither metrics nor reasoning.
	LLMCallCount *int `json:"llm_call_count,omitempty"`
	// IsCopiedContext marks a step that was copied from an earlier trajectory and must not be trained on.
	IsCopiedContext *bool `json:"is_copied_context,omitempty"`
}

// StepToolCall is one action of a step. Arguments is a JSON object.
type StepToolCall struct {
	ToolCallID   string          `json:"tool_call_id"`
	FunctionName string          `json:"function_name"`
	Arguments    json.RawMessage `json:"arguments"`
	Extra        map[string]any  `json:"extra,omitempty"`
}

// StepObservation is what the environment answered.
type StepObservation struct {
	Results []StepResult `json:"results"`
}

// StepResult is one answer. SourceCallID names a call of the same step, or is empty where no call was answered.
type StepResult struct {
	SourceCallID          string         `json:"source_call_id,omitempty"`
	Content               *Content       `json:"content,omitempty"`
	SubagentTrajectoryRef []SubagentRef  `json:"subagent_trajectory_ref,omitempty"`
	Extra                 map[string]any `json:"extra,omitempty"`
}

// SubagentRef points to the trajectory of a subagent: one in this document by its id, or a file by its path.
type SubagentRef struct {
	TrajectoryID   string         `json:"trajectory_id,omitempty"`
	TrajectoryPath string         `json:"trajectory_path,omitempty"`
	SessionID      string         `json:"session_id,omitempty"`
	Extra          map[string]any `json:"extra,omitempty"`
}

// Metrics is what a step cost. Logprobs has one entry for each completion token. PromptTokens counts cached ones too.
type Metrics struct {
	PromptTokens       *int           `json:"prompt_tokens,omitempty"`
	CompletionTokens   *int           `json:"completion_tokens,omitempty"`
	CachedTokens       *int           `json:"cached_tokens,omitempty"`
	CostUSD            *float64       `json:"cost_usd,omitempty"`
	PromptTokenIDs     []int32        `json:"prompt_token_ids,omitempty"`
	CompletionTokenIDs []int32        `json:"completion_token_ids,omitempty"`
	Logprobs           []float64      `json:"logprobs,omitempty"`
	Extra              map[string]any `json:"extra,omitempty"`
}

// FinalMetrics sums up the metrics of all steps.
type FinalMetrics struct {
	TotalPromptTokens     *int           `json:"total_prompt_tokens,omitempty"`
	TotalCompletionTokens *int           `json:"total_completion_tokens,omitempty"`
	TotalCachedTokens     *int           `json:"total_cached_tokens,omitempty"`
	TotalCostUSD          *float64       `json:"total_cost_usd,omitempty"`
	TotalSteps            *int           `json:"total_steps,omitempty"`
	Extra                 map[string]any `json:"extra,omitempty"`
}

// Decode reads a document. Fields that it does not know are passed over: the format grows, and a newer document is still
// worth reading. Validate tells whether what was read is sound.
func Decode(r io.Reader) (*Document, error) {
	dec := json.NewDecoder(r)
	dec.UseNumber() // an id in some extra must not become a float
	var d Document
	if err := dec.Decode(&d); err != nil {
		return nil, fmt.Errorf("read trajectory: %w", err)
	}
	if d.SchemaVersion == "" {
		return nil, errors.New("read trajectory: not an ATIF document: it has no schema_version")
	}
	return &d, nil
}

// Encode writes the document as JSON on one line: indented, its token ids would take a line each.
func (d *Document) Encode(w io.Writer) error {
	if err := disk.EncodeJSON(w, d); err != nil {
		return fmt.Errorf("write trajectory: %w", err)
	}
	return nil
}

// WriteFile puts the document at path, whole or not at all.
func (d *Document) WriteFile(path string) error {
	if err := disk.WriteStream(path, d.Encode); err != nil {
		return fmt.Errorf("write trajectory: %w", err)
	}
	return nil
}
