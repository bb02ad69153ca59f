package agent

import (
	"context"
	"errors"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// Model answers a conversation. Implementations: agent/llm over HTTP, a recorded trajectory, the embedded policy.
// They are safe for concurrent use.
type Model interface {
	// Complete returns the model's next message. Errors wrap one of the sentinels below where they apply.
	Complete(ctx context.Context, r Request) (Reply, error)
}

// Errors that decide how a rollout goes on.
var (
	// ErrContextOverflow: the conversation does not fit into the model's context. Never retried.
	ErrContextOverflow = errors.New("conversation exceeds the model's context")
	// ErrModelUnavailable: the endpoint failed, after any retries.
	ErrModelUnavailable = errors.New("model endpoint failed")
	// ErrToolsUnsupported: the server or its model accepts no native tool calls (vLLM without --enable-auto-tool-choice,
	// llama.cpp without --jinja, an Ollama model without a tool template). Never retried: with an automatic format the
	// rollout continues in XML.
	ErrToolsUnsupported = errors.New("the endpoint does not support tool calls")
	// ErrReplayExhausted: a recorded model has no further reply.
	ErrReplayExhausted = errors.New("the recorded trajectory has no further step")
)

// The vocabulary of a conversation is that of its records, see [trajectory].
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

// The reasons for which a rollout ends.
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
	SandboxError = trajectory.SandboxError
)

// Sampling is how the next token is drawn, under the names that requests and trajectories use. All of it is sent
// explicitly, zeros included: a server's own defaults would bias the ratios of training. A nil pointer leaves that one
// setting to the server.
type Sampling struct {
	MinP              *float64 `json:"min_p,omitempty"`
	RepetitionPenalty *float64 `json:"repetition_penalty,omitempty"`
	Seed              *int64   `json:"seed,omitempty"`
	Temperature       *float64 `json:"temperature,omitempty"`
	TopK              *int     `json:"top_k,omitempty"`
	TopP              *float64 `json:"top_p,omitempty"`
}

// OnPolicy is sampling from the model's own distribution at a temperature, with every setting that would change it
// switched off by name.
func OnPolicy(temperature *float64) Sampling {
	return Sampling{
		Temperature: temperature, TopP: new(1.0), TopK: new(-1), MinP: new(0.0), RepetitionPenalty: new(1.0),
	}
}

// Request asks for one message.
type Request struct {
	Messages []Message
	// Tools are offered natively; empty for the XML format.
	Tools    []tools.Spec
	Sampling Sampling
	// MaxTokens bounds the reply: 0 leaves it to the server.
	MaxTokens int
	// Tokens requests token ids and logprobs; such a request is never streamed.
	Tokens bool
	// OnText, when not nil, receives pieces of the reply as they arrive, for people to watch.
	OnText func(text string)
	// Dir is where the repository is in the sandbox. Only a recorded model needs it: it puts its paths there.
	Dir string
}
