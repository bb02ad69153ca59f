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

// Document is an ATIF trajectory, with the field names of that format. A nil pointer or an empty value means that a
// field is absent. Parts of the format that deepswe neither writes nor shows (costs, notes, subagents,
// continuations) are ignored when reading.
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

// Agent describes the program that ran the rollout.
type Agent struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// ModelName is the model of all steps that do not name their own.
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

// Step is one step: a system prompt, a user message, or a reply of the model with its observations. ModelName,
// ReasoningContent, ToolCalls and Metrics belong to steps of the agent only.
type Step struct {
	// StepID counts from 1 without gaps.
	StepID int `json:"step_id"`
	// Timestamp is in ISO 8601 format.
	Timestamp        string         `json:"timestamp,omitempty"`
	Source           string         `json:"source"`
	ModelName        string         `json:"model_name,omitempty"`
	Message          Content        `json:"message"`
	ReasoningContent string         `json:"reasoning_content,omitempty"`
	ToolCalls        []StepToolCall `json:"tool_calls,omitempty"`

	Observation *StepObservation `json:"observation,omitempty"`
	Metrics     *Metrics         `json:"metrics,omitempty"`
	Extra       map[string]any   `json:"extra,omitempty"`
	// LLMCallCount is 0 if no model was asked for the step, which then has neither metrics nor reasoning.
	LLMCallCount *int `json:"llm_call_count,omitempty"`
	// IsCopiedContext marks a step that was copied from an earlier trajectory and must not be used for training.
	IsCopiedContext *bool `json:"is_copied_context,omitempty"`
}

// StepToolCall is one action of a step. Arguments is a JSON object.
type StepToolCall struct {
	ToolCallID   string          `json:"tool_call_id"`
	FunctionName string          `json:"function_name"`
	Arguments    json.RawMessage `json:"arguments"`
	Extra        map[string]any  `json:"extra,omitempty"`
}

// StepObservation is the environment's answer to a step.
type StepObservation struct {
	Results []StepResult `json:"results"`
}

// StepResult is the answer to one call. SourceCallID is the ID of a call of the same step, or empty if no call is
// answered.
type StepResult struct {
	SourceCallID string         `json:"source_call_id,omitempty"`
	Content      *Content       `json:"content,omitempty"`
	Extra        map[string]any `json:"extra,omitempty"`
}

// Metrics are the token counts of a step. Logprobs has one entry per completion token. PromptTokens includes cached
// tokens.
type Metrics struct {
	PromptTokens       *int           `json:"prompt_tokens,omitempty"`
	CompletionTokens   *int           `json:"completion_tokens,omitempty"`
	CachedTokens       *int           `json:"cached_tokens,omitempty"`
	PromptTokenIDs     []int32        `json:"prompt_token_ids,omitempty"`
	CompletionTokenIDs []int32        `json:"completion_token_ids,omitempty"`
	Logprobs           []float64      `json:"logprobs,omitempty"`
	Extra              map[string]any `json:"extra,omitempty"`
}

// FinalMetrics are the sums over all steps.
type FinalMetrics struct {
	TotalPromptTokens     *int `json:"total_prompt_tokens,omitempty"`
	TotalCompletionTokens *int `json:"total_completion_tokens,omitempty"`
	TotalCachedTokens     *int `json:"total_cached_tokens,omitempty"`
	TotalSteps            *int `json:"total_steps,omitempty"`
}

// Decode reads a document. It ignores unknown fields, so that documents of newer versions can be read.
func Decode(r io.Reader) (*Document, error) {
	dec := json.NewDecoder(r)
	dec.UseNumber() // IDs in extra objects must not become floats
	var d Document
	if err := dec.Decode(&d); err != nil {
		return nil, fmt.Errorf("read trajectory: %w", err)
	}
	if d.SchemaVersion == "" {
		return nil, errors.New("read trajectory: not an ATIF document: it has no schema_version")
	}
	return &d, nil
}

// Encode writes the document as JSON on one line, because indenting would put every token ID on a line of its own.
func (d *Document) Encode(w io.Writer) error {
	if err := disk.EncodeJSON(w, d); err != nil {
		return fmt.Errorf("write trajectory: %w", err)
	}
	return nil
}

// WriteFile writes the document to path atomically.
func (d *Document) WriteFile(path string) error {
	return disk.WriteStream(path, d.Encode)
}

// Content is a message or a result: plain text or, if Parts is not nil, a list of texts and media.
type Content struct {
	Text  string
	Parts []ContentPart
}

// ContentPart is a text, or a reference to an image or audio file. References occur in the documents of other
// agents and are never written.
type ContentPart struct {
	Type   string       `json:"type"`
	Text   *string      `json:"text,omitempty"`
	Source *MediaSource `json:"source,omitempty"`
}

// MediaSource is the location of an image or audio file: a path or a URL.
type MediaSource struct {
	MediaType string `json:"media_type"`
	Path      string `json:"path"`
}

// Text returns plain content.
func Text(s string) Content { return Content{Text: s} }

// String returns the text of the content, with a placeholder in square brackets for every other part.
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
