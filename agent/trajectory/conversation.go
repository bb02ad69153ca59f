package trajectory

import "time"

// The roles of a message.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Message is one entry of the conversation, exactly as it was sent to the model or came from it.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	// Reasoning is what the server separated from the content.
	Reasoning string `json:"reasoning,omitempty"`
	// ToolCalls are the native calls of an assistant's message.
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	// ToolCallID and Name answer one of them.
	ToolCallID string `json:"tool_call_id,omitempty"`
	Name       string `json:"name,omitempty"`
}

// ToolCall is a native call as the server returned it. Arguments is the model's text and may be broken JSON.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Call is one use of a tool as the agent understood it, from native calls or from the text. IDs are unique in a reply.
type Call struct {
	ID   string            `json:"id"`
	Name string            `json:"name"`
	Args map[string]string `json:"args,omitempty"`
}

// Reply is one answer of the model: its message, and what is known about it.
type Reply struct {
	Message Message `json:"message"`
	// Calls are what the agent read from the message and is about to run, in order; empty after a format error. Problem
	// says what was wrong with the format of the reply, in one of the agent's words. A model leaves both empty.
	Calls   []Call `json:"calls,omitempty"`
	Problem string `json:"problem,omitempty"`
	// FinishReason is the server's word: stop, length, tool_calls.
	FinishReason string `json:"finish_reason,omitempty"`
	// Model is the name that the server answered with.
	Model string `json:"model,omitempty"`
	Usage Usage  `json:"usage,omitzero"`
	// Tokens is nil where the endpoint returns no ids. A log stores them beside the reply, in a shorter form.
	Tokens  *Sample       `json:"-"`
	Elapsed time.Duration `json:"elapsed_ns,omitempty"`
}

// Usage counts tokens; zero where the endpoint does not say.
type Usage struct {
	Prompt     int `json:"prompt,omitempty"`
	Completion int `json:"completion,omitempty"`
	Cached     int `json:"cached,omitempty"`
	Reasoning  int `json:"reasoning,omitempty"`
}

// Add adds the usage of another reply.
func (u *Usage) Add(v Usage) {
	u.Prompt += v.Prompt
	u.Completion += v.Completion
	u.Cached += v.Cached
	u.Reasoning += v.Reasoning
}

// Sample is one call of the model as token rows need it: exactly the ids that it read, the ids that it sampled, and
// their log-probabilities under the policy that sampled them. Logprobs is empty or as long as CompletionIDs.
type Sample struct {
	PromptIDs     []int32   `json:"prompt_ids"`
	CompletionIDs []int32   `json:"completion_ids"`
	Logprobs      []float64 `json:"logprobs"`
	// FormatError marks a completion that could not be parsed. The environment sets it, never a model. Reinforcement
	// learning ignores it; imitation masks the completion.
	FormatError bool `json:"format_error,omitempty"`
	// PolicyVersion is the version of the policy that sampled the completion; nil where it is unknown.
	PolicyVersion *int64 `json:"policy_version,omitempty"`
}

// StopReason says why a rollout ended.
type StopReason string

// Every rollout ends with one of these.
const (
	Submitted    StopReason = "submitted"
	MaxSteps     StopReason = "max_steps"
	MaxContext   StopReason = "max_context"
	MaxCost      StopReason = "max_cost"
	Timeout      StopReason = "timeout"
	FormatErrors StopReason = "format_errors"
	Stuck        StopReason = "stuck"
	ModelError   StopReason = "model_error"
	Interrupted  StopReason = "interrupted"
	// SandboxError is an infrastructure failure: such a rollout has no reward and is retried.
	SandboxError StopReason = "sandbox_error"
)

// StopReasons returns all of them.
func StopReasons() []StopReason {
	return []StopReason{
		Submitted, MaxSteps, MaxContext, MaxCost, Timeout, FormatErrors, Stuck, ModelError, Interrupted, SandboxError,
	}
}

// Observation is the message that answers a reply: results of tools, or what was wrong with
// the reply's format.
type Observation struct {
	// Message is the message as sent, with whatever the agent added to the tools' output.
	Message Message `json:"message"`
	// Results are what the message reports, in the order of the calls; empty where it answers no call.
	Results []Result `json:"results,omitempty"`
}

// Result is the result of one call.
type Result struct {
	CallID string `json:"call_id"`
	// Output is what the tool itself said. It may be left empty where the message holds nothing else.
	Output      string        `json:"output,omitempty"`
	Failed      bool          `json:"failed,omitempty"`
	ExitCode    *int          `json:"exit_code,omitempty"`
	TimedOut    bool          `json:"timed_out,omitempty"`
	OutOfMemory bool          `json:"out_of_memory,omitempty"`
	OutOfDisk   bool          `json:"out_of_disk,omitempty"`
	Elapsed     time.Duration `json:"elapsed_ns,omitempty"`
}

// Turn is one reply and the observations that followed it.
type Turn struct {
	Reply        Reply
	Observations []Observation
	// Answered is the time of the reply; zero where it is not known.
	Answered time.Time
}
