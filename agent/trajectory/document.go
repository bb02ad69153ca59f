package trajectory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"deepswe/env/disk"
)

// SchemaVersion is the version of ATIF that this package writes.
const SchemaVersion = "ATIF-v1.7"

// Document is an ATIF trajectory. The field names are those of the format; absent is a nil pointer or an empty value.
// What deepswe neither writes nor shows of the format (costs, notes, subagents, continuations) is ignored when a
// document is read.
type Document struct {
	SchemaVersion string `json:"schema_version"`
	// SessionID names the run and may be shared; TrajectoryID names this document.
	SessionID    string `json:"session_id,omitempty"`
	TrajectoryID string `json:"trajectory_id,omitempty"`
	Agent        Agent  `json:"agent"`
	Steps        []Step `json:"steps"`

	FinalMetrics *FinalMetrics  `json:"final_metrics,omitempty"`
	Extra        map[string]any `json:"extra,omitempty"`
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

// Step is one turn: a system prompt, a user's message, or a reply of the model with its observations. ModelName,
// ReasoningContent, ToolCalls and Metrics belong to steps of the agent alone.
type Step struct {
	// StepID counts from 1 without gaps.
	StepID int `json:"step_id"`
	// Timestamp is ISO 8601.
	Timestamp        string         `json:"timestamp,omitempty"`
	Source           string         `json:"source"`
	ModelName        string         `json:"model_name,omitempty"`
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
	SourceCallID string         `json:"source_call_id,omitempty"`
	Content      *Content       `json:"content,omitempty"`
	Extra        map[string]any `json:"extra,omitempty"`
}

// Metrics is what a step cost. Logprobs has one entry for each completion token. PromptTokens counts cached ones too.
type Metrics struct {
	PromptTokens       *int           `json:"prompt_tokens,omitempty"`
	CompletionTokens   *int           `json:"completion_tokens,omitempty"`
	CachedTokens       *int           `json:"cached_tokens,omitempty"`
	PromptTokenIDs     []int32        `json:"prompt_token_ids,omitempty"`
	CompletionTokenIDs []int32        `json:"completion_token_ids,omitempty"`
	Logprobs           []float64      `json:"logprobs,omitempty"`
	Extra              map[string]any `json:"extra,omitempty"`
}

// FinalMetrics sums up the metrics of all steps.
type FinalMetrics struct {
	TotalPromptTokens     *int `json:"total_prompt_tokens,omitempty"`
	TotalCompletionTokens *int `json:"total_completion_tokens,omitempty"`
	TotalCachedTokens     *int `json:"total_cached_tokens,omitempty"`
	TotalSteps            *int `json:"total_steps,omitempty"`
}

// Decode reads a document. Unknown fields are ignored: the format grows, and a newer document is still worth reading.
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

// Content is a message or a result: plain text, or, where Parts is not nil, a list of texts and images.
type Content struct {
	Text  string
	Parts []ContentPart
}

// ContentPart is a text, or a reference to an image or a sound beside the trajectory. Media are read in the documents
// of other agents, and never written.
type ContentPart struct {
	Type   string       `json:"type"`
	Text   *string      `json:"text,omitempty"`
	Source *MediaSource `json:"source,omitempty"`
}

// MediaSource says where an image or a sound is: the path of a file, or a URL.
type MediaSource struct {
	MediaType string `json:"media_type"`
	Path      string `json:"path"`
}

// Text makes plain content.
func Text(s string) Content { return Content{Text: s} }

// String returns the text of the content, with a mark in square brackets for every other part.
func (c Content) String() string {
	if c.Parts == nil {
		return c.Text
	}
	var b bytes.Buffer
	for _, p := range c.Parts {
		switch {
		case p.Text != nil:
			b.WriteString(*p.Text)
		case p.Source != nil:
			b.WriteString("[" + p.Type + ": " + p.Source.Path + "]")
		}
	}
	return b.String()
}

// MarshalJSON writes a string or an array.
func (c Content) MarshalJSON() ([]byte, error) {
	if c.Parts != nil {
		return disk.MarshalJSON(c.Parts)
	}
	return disk.MarshalJSON(c.Text)
}

// UnmarshalJSON reads a string or an array.
func (c *Content) UnmarshalJSON(data []byte) error {
	*c = Content{}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		c.Parts = []ContentPart{}
		return json.Unmarshal(data, &c.Parts)
	}
	return json.Unmarshal(data, &c.Text)
}
