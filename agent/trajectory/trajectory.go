// Package trajectory holds what a rollout leaves behind: an append-only event log while it runs, an ATIF v1.7 document
// (the Agent Trajectory Interchange Format) when it is done, and the way back from either to the model's recorded words.
//
// The event log is the truth. It keeps every message exactly as it was sent and every reply exactly as it came, so that
// a killed rollout goes on from it and a document can be made from it at any time. Nothing in it is ever rendered again.
//
// The package is a leaf: it imports env/disk and the standard library, and knows no model, no tool and no sandbox.
// A [Writer] is safe for concurrent use; everything else is plain data.
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
	// Calls are what the agent read from the message and is going to run, in order; empty after a format error.
	Calls []Call `json:"calls,omitempty"`
	// Problem says what was wrong with the format of the reply, in one of the agent's words.
	Problem string `json:"problem,omitempty"`
	// FinishReason is the server's word: stop, length, tool_calls.
	FinishReason string `json:"finish_reason,omitempty"`
	// Model is the name that the server answered with.
	Model string `json:"model,omitempty"`
	Usage Usage  `json:"usage,omitzero"`
	// Tokens is nil where the endpoint gives no ids. A log stores them beside the reply, in a shorter form.
	Tokens  *Tokens       `json:"-"`
	Elapsed time.Duration `json:"elapsed_ns,omitempty"`
}

// Usage counts tokens; zero where the endpoint does not say.
type Usage struct {
	Prompt     int `json:"prompt,omitempty"`
	Completion int `json:"completion,omitempty"`
	Cached     int `json:"cached,omitempty"`
	Reasoning  int `json:"reasoning,omitempty"`
}

// Tokens is exactly what was sampled. Logprobs is empty or as long as Completion.
type Tokens struct {
	Prompt     []int32
	Completion []int32
	Logprobs   []float64
}

// Sample is one call of the model as token rows need it: the exact ids it read, the exact ids it sampled, and their
// log-probabilities under the sampling policy. len(Logprobs) == len(CompletionIDs).
type Sample struct {
	PromptIDs     []int32   `json:"prompt_ids"`
	CompletionIDs []int32   `json:"completion_ids"`
	Logprobs      []float64 `json:"logprobs"`
	// FormatError marks a completion that could not be parsed. Reinforcement learning takes no notice; imitation masks it.
	FormatError bool `json:"format_error,omitempty"`
}

// Observation is a message that tells the model what became of its last reply: results of tools, or what was wrong with
// the reply's format.
type Observation struct {
	// Message is the message as sent, with whatever the agent added to the tools' output.
	Message Message `json:"message"`
	// Results are what the message reports, in the order of the calls; empty where it answers no call.
	Results []Result `json:"results,omitempty"`
}

// Result is what became of one call.
type Result struct {
	CallID string `json:"call_id"`
	// Output is what the tool itself said. It may be left empty where the message holds nothing else.
	Output      string        `json:"output,omitempty"`
	Failed      bool          `json:"failed,omitempty"`
	ExitCode    *int          `json:"exit_code,omitempty"`
	TimedOut    bool          `json:"timed_out,omitempty"`
	OutOfMemory bool          `json:"out_of_memory,omitempty"`
	Elapsed     time.Duration `json:"elapsed_ns,omitempty"`
}

// Turn is one reply and the observations that followed it.
type Turn struct {
	Reply        Reply
	Observations []Observation
	// Answered tells when the reply came; zero where it is not known.
	Answered time.Time
}

// Unanswered returns the calls of the turn that have no result: what a killed rollout was about to run.
func (t Turn) Unanswered() []Call {
	done := make(map[string]bool)
	for _, o := range t.Observations {
		for _, r := range o.Results {
			done[r.CallID] = true
		}
	}
	var left []Call
	for _, c := range t.Reply.Calls {
		if !done[c.ID] {
			left = append(left, c)
		}
	}
	return left
}
