package agent

import (
	"context"
	"errors"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// Model answers a conversation. It is implemented by agent/llm over HTTP, by [ReplayModel] and by the embedded
// policy. Models are safe for concurrent use.
type Model interface {
	// Complete returns the model's next message. Its errors wrap one of the sentinels below if that applies.
	Complete(ctx context.Context, r Request) (Reply, error)
}

// Errors that decide how a rollout continues.
var (
	// ErrContextOverflow reports that the conversation does not fit into the model's context. It is never retried.
	ErrContextOverflow = errors.New("conversation exceeds the model's context")
	// ErrModelUnavailable reports that the endpoint failed, after any retries.
	ErrModelUnavailable = errors.New("model endpoint failed")
	// ErrToolsUnsupported reports that the server or its model does not support native tool calls (vLLM without
	// --enable-auto-tool-choice, llama.cpp without --jinja, an Ollama model without a tool template). It is never
	// retried; if the format is automatic, the rollout continues in XML.
	ErrToolsUnsupported = errors.New("the endpoint does not support tool calls")
	// ErrModelChanged reports that the endpoint has another model, tokenizer or context than before. What was sampled
	// from it since does not belong to the same run.
	ErrModelChanged = errors.New("the model endpoint is not the same as before")
	// ErrReplayExhausted reports that a recorded model has no further reply.
	ErrReplayExhausted = errors.New("the recorded trajectory has no further step")
)

// The types of a conversation are those of its record; see package [trajectory].
type (
	Message    = trajectory.Message
	ToolCall   = trajectory.ToolCall
	Reply      = trajectory.Reply
	Usage      = trajectory.Usage
	Sample     = trajectory.Sample
	StopReason = trajectory.StopReason
)

// The roles of a message.
const (
	RoleSystem    = trajectory.RoleSystem
	RoleUser      = trajectory.RoleUser
	RoleAssistant = trajectory.RoleAssistant
	RoleTool      = trajectory.RoleTool
)

// The reasons why a rollout ends.
const (
	Submitted    = trajectory.Submitted
	MaxSteps     = trajectory.MaxSteps
	MaxContext   = trajectory.MaxContext
	MaxCost      = trajectory.MaxCost
	Timeout      = trajectory.Timeout
	FormatErrors = trajectory.FormatErrors
	Stuck        = trajectory.Stuck
	ModelError   = trajectory.ModelError
	Interrupted  = trajectory.Interrupted
	Exhausted    = trajectory.Exhausted
	SandboxError = trajectory.SandboxError
)

// Sampling is how tokens are sampled, with the names that requests and trajectories use. All settings are sent
// explicitly, including zeros, because a server's own defaults would bias the importance ratios in training. A nil
// pointer leaves a setting to the server.
type Sampling struct {
	MinP              *float64 `json:"min_p,omitempty"`
	RepetitionPenalty *float64 `json:"repetition_penalty,omitempty"`
	Seed              *int64   `json:"seed,omitempty"`
	Temperature       *float64 `json:"temperature,omitempty"`
	TopK              *int     `json:"top_k,omitempty"`
	TopP              *float64 `json:"top_p,omitempty"`
}

// OnPolicy returns the settings that sample from the model's own distribution at a temperature, with everything
// that would change it disabled explicitly.
func OnPolicy(temperature *float64) Sampling {
	return Sampling{
		Temperature: temperature, TopP: new(1.0), TopK: new(-1), MinP: new(0.0), RepetitionPenalty: new(1.0),
	}
}

// Request asks for one message.
type Request struct {
	Messages []Message
	// Tools are offered natively; empty in the XML format.
	Tools    []tools.Spec
	Sampling Sampling
	// MaxTokens limits the reply; 0 leaves it to the server.
	MaxTokens int
	// Tokens requests token IDs and logprobs. Such a request is never streamed.
	Tokens bool
	// OnText, if not nil, receives pieces of the reply as they arrive, for display.
	OnText func(text string)
	// Sampled is the model's last reply as it was sampled, and Messages[Fresh:] is what followed it. A model that works
	// in tokens can extend them instead of rendering the whole conversation again. Sampled is nil before the first reply,
	// if the reply's tokens are not known, and if anything before Fresh has changed since.
	Sampled *Sample
	Fresh   int
	// Rollout names the rollout that the request is a turn of; empty if it is not known. A model with several servers
	// sends the turns of one rollout to the same server, whose cache has the conversation so far.
	Rollout string
	// Waiting, if not nil, is called by a model that has to wait until its endpoint is back or has its next weights; the
	// model calls the result when the wait is over. The time in between does not count against the rollout.
	Waiting func() (over func())
	// Dir is the repository's path in the sandbox. Only a recorded model uses it, to replace the recorded path.
	Dir string
}
