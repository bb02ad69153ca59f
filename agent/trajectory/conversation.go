package trajectory

import "time"

// The roles of a message.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Message is one message of the conversation, exactly as it was sent to or by the model.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	// Reasoning is the text that the server separated from the content.
	Reasoning string `json:"reasoning,omitempty"`
	// ToolCalls are the native calls of an assistant message.
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	// ToolCallID and Name identify the call that this message answers.
	ToolCallID string `json:"tool_call_id,omitempty"`
	Name       string `json:"name,omitempty"`
}

// ToolCall is a native call as the server returned it. Arguments is the model's text and may be invalid JSON.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Call is one use of a tool as the agent understood it, from a native call or from the text. IDs are unique in a
// reply.
type Call struct {
	ID   string            `json:"id"`
	Name string            `json:"name"`
	Args map[string]string `json:"args,omitempty"`
}

// Reply is one reply of the model: its message, and data about it.
type Reply struct {
	Message Message `json:"message"`
	// Calls are the calls that the agent found in the message and is about to run, in order; empty after a format
	// error. Problem says what was wrong with the reply's format (see agent.Problem). A model leaves both empty.
	Calls   []Call `json:"calls,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Prompt identifies, by its content, the conversation that the reply answers; empty if that is not needed.
	Prompt string `json:"prompt,omitempty"`
	// FinishReason is what the server reports: stop, length, tool_calls.
	FinishReason string `json:"finish_reason,omitempty"`
	// Model is the model's name in the server's response.
	Model string `json:"model,omitempty"`
	Usage Usage  `json:"usage,omitzero"`
	// Tokens is nil if the endpoint returns no token IDs. A log stores them separately, in a shorter form.
	Tokens  *Sample       `json:"-"`
	Elapsed time.Duration `json:"elapsed_ns,omitempty"`
}

// Usage counts tokens; zero if the endpoint does not report them.
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

// Sample is one call of the model in the form that training needs: exactly the token IDs that it was given, the IDs
// that it sampled, and their log-probabilities under the policy that sampled them. Logprobs is either empty or as
// long as CompletionIDs.
type Sample struct {
	PromptIDs     []int32   `json:"prompt_ids"`
	CompletionIDs []int32   `json:"completion_ids"`
	Logprobs      []float64 `json:"logprobs"`
	// FormatError marks a completion that could not be parsed. It is set by the environment, never by a model.
	// Reinforcement learning ignores it; imitation learning masks the completion.
	FormatError bool `json:"format_error,omitempty"`
	// Advantage is what a harness credits this turn with, in addition to its rollout's advantage.
	Advantage float64 `json:"advantage,omitempty"`
	// PolicyVersion is the version of the policy that sampled the completion; nil if unknown.
	PolicyVersion *int64 `json:"policy_version,omitempty"`
}

// StopReason is the reason why a rollout ended.
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
	// Exhausted: the commands used up the sandbox's own memory or disk, which ended it. Its changes are lost.
	Exhausted StopReason = "exhausted"
	// SandboxError is an infrastructure failure: the rollout has no reward and is retried.
	SandboxError StopReason = "sandbox_error"
)

// StopReasons returns all stop reasons.
func StopReasons() []StopReason {
	return []StopReason{
		Submitted, MaxSteps, MaxContext, MaxCost, Timeout, FormatErrors, Stuck, ModelError, Interrupted, Exhausted,
		SandboxError,
	}
}

// Observation is the message that answers a reply: results of tools, or what was wrong with
// the reply's format.
type Observation struct {
	// Message is the message that was sent, including what the agent added to the tools' output.
	Message Message `json:"message"`
	// Results are the results in the message, in the order of the calls; empty if it answers no call.
	Results []Result `json:"results,omitempty"`
}

// Result is the result of one call.
type Result struct {
	CallID string `json:"call_id"`
	// Output is the tool's own output. It may be empty if the message contains nothing else.
	Output      string        `json:"output,omitempty"`
	Failed      bool          `json:"failed,omitempty"`
	ExitCode    *int          `json:"exit_code,omitempty"`
	TimedOut    bool          `json:"timed_out,omitempty"`
	OutOfMemory bool          `json:"out_of_memory,omitempty"`
	OutOfDisk   bool          `json:"out_of_disk,omitempty"`
	Elapsed     time.Duration `json:"elapsed_ns,omitempty"`
}

// Turn is one reply and the observations that follow it.
type Turn struct {
	Reply        Reply
	Observations []Observation
	// Untrained is set if nothing is to be learned from the reply.
	Untrained bool
}
