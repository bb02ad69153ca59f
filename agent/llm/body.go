package llm

import (
	"encoding/json"

	openai "github.com/sashabaranov/go-openai"

	"deepswe/agent"
	"deepswe/env/disk"
	"deepswe/tools"
)

// body is a request as it is sent. A nil pointer is left out, a zero is not.
type body struct {
	Model         string                `json:"model"`
	Messages      []wireMessage         `json:"messages"`
	Tools         []wireTool            `json:"tools,omitempty"`
	Stream        bool                  `json:"stream"`
	StreamOptions *openai.StreamOptions `json:"stream_options,omitempty"`

	MaxTokens           int `json:"max_tokens,omitempty"`
	MaxCompletionTokens int `json:"max_completion_tokens,omitempty"`

	agent.Sampling

	Logprobs       bool `json:"logprobs,omitempty"`
	TopLogprobs    int  `json:"top_logprobs,omitempty"`
	ReturnTokenIDs bool `json:"return_token_ids,omitempty"`

	// These two together let the model continue the last message, which is its own.
	ContinueFinalMessage bool  `json:"continue_final_message,omitempty"`
	AddGenerationPrompt  *bool `json:"add_generation_prompt,omitempty"`
}

// wireMessage always has a content, even an empty one, and has reasoning under both of its names, because servers
// renamed it.
type wireMessage struct {
	Role             string            `json:"role"`
	Content          string            `json:"content"`
	Reasoning        string            `json:"reasoning,omitempty"`
	ReasoningContent string            `json:"reasoning_content,omitempty"`
	ToolCalls        []openai.ToolCall `json:"tool_calls,omitempty"`
	ToolCallID       string            `json:"tool_call_id,omitempty"`
	Name             string            `json:"name,omitempty"`
}

type wireTool struct {
	Type     openai.ToolType           `json:"type"`
	Function openai.FunctionDefinition `json:"function"`
}

// newBody translates a request for this model into the endpoint's dialect.
func newBody(r agent.Request, model string, d *dialect) *body {
	b := &body{
		Model:          model,
		Messages:       wireMessages(r.Messages, d),
		Tools:          wireTools(r.Tools),
		Stream:         r.OnText != nil && !r.Tokens && !d.refuses(streaming),
		Sampling:       r.Sampling,
		Logprobs:       r.Tokens && !d.refuses(logprobs),
		ReturnTokenIDs: r.Tokens && !d.refuses(tokenIDs),
	}
	if !r.Tokens {
		b.Sampling = d.taken(r.Sampling)
	}
	if b.Stream && !d.refuses(streamOptions) {
		b.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	}
	if d.completionTokens {
		b.MaxCompletionTokens = r.MaxTokens
	} else {
		b.MaxTokens = r.MaxTokens
	}
	return b
}

// newTokenizeBody asks for the ids of a conversation, with the beginning of a reply where reply is set.
func newTokenizeBody(model string, messages []agent.Message, specs []tools.Spec, reply bool) *tokenizeBody {
	return &tokenizeBody{
		Model: model, Messages: wireMessages(messages, &dialect{}), Tools: wireTools(specs), AddGenerationPrompt: reply,
	}
}

func wireMessages(messages []agent.Message, d *dialect) []wireMessage {
	out := make([]wireMessage, 0, len(messages))
	for _, m := range messages {
		// The templates of some models refuse a conversation in which a user speaks twice in a row.
		if n := len(out); n > 0 && m.Role == agent.RoleUser && out[n-1].Role == agent.RoleUser {
			out[n-1].Content += "\n\n" + m.Content
			continue
		}
		out = append(out, newMessage(m, d))
	}
	return out
}

func wireTools(specs []tools.Spec) []wireTool {
	var out []wireTool
	for _, t := range specs {
		out = append(out, wireTool{
			Type:     openai.ToolTypeFunction,
			Function: openai.FunctionDefinition{Name: t.Name, Description: t.Description, Parameters: t.Parameters},
		})
	}
	return out
}

func newMessage(m agent.Message, d *dialect) wireMessage {
	w := wireMessage{Role: m.Role, Content: m.Content, Name: m.Name, ToolCallID: m.ToolCallID}
	if !d.refuses(reasoning) {
		w.Reasoning = m.Reasoning
	}
	if !d.refuses(reasoningContent) {
		w.ReasoningContent = m.Reasoning
	}
	for _, call := range m.ToolCalls {
		w.ToolCalls = append(w.ToolCalls, openai.ToolCall{
			ID: call.ID, Type: openai.ToolTypeFunction,
			Function: openai.FunctionCall{Name: call.Name, Arguments: Sendable(call.Arguments)},
		})
	}
	return w
}

// Sendable returns a call's arguments as servers accept them in a history: llama.cpp, Ollama and older vLLM parse them
// before they render the chat template, and refuse the whole conversation, in every later turn, for anything but a
// JSON object; newer vLLM shows the model an empty object instead. Such a text is sent as the value of one member.
func Sendable(arguments string) string {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &object) == nil && object != nil {
		return arguments
	}
	if arguments == "" {
		return "{}"
	}
	wrapped, err := disk.MarshalJSON(map[string]string{"invalid_arguments": arguments})
	if err != nil {
		return "{}"
	}
	return string(wrapped)
}
