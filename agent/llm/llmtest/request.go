package llmtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// Request is a request for a completion as it arrived.
type Request struct {
	// N counts requests from 0.
	N      int         `json:"-"`
	Header http.Header `json:"-"`
	// Body is the whole body, word for word.
	Body []byte `json:"-"`

	Model         string    `json:"model"`
	Messages      []Message `json:"messages"`
	Tools         []Tool    `json:"tools"`
	Stream        bool      `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           int  `json:"max_tokens"`
	MaxCompletionTokens int  `json:"max_completion_tokens"`
	Logprobs            bool `json:"logprobs"`
	ReturnTokenIDs      bool `json:"return_token_ids"`

	// PromptIDs is a prompt given in tokens. Messages are then decoded from it.
	PromptIDs []int32 `json:"-"`

	dropsThoughts, dropsText bool
}

// Message is a message of the conversation. Content is nil if the member is missing or null.
type Message struct {
	Role             string     `json:"role"`
	Content          *string    `json:"content"`
	Reasoning        string     `json:"reasoning"`
	ReasoningContent string     `json:"reasoning_content"`
	Name             string     `json:"name"`
	ToolCallID       string     `json:"tool_call_id"`
	ToolCalls        []toolCall `json:"tool_calls"`
}

// Tool is a tool that the request offers.
type Tool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

type toolCall struct {
	Index    *int         `json:"index,omitempty"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// Last is the last message's content: the observation or the task that is to be answered.
func (r Request) Last() string {
	if len(r.Messages) == 0 {
		return ""
	}
	return r.Messages[len(r.Messages)-1].text()
}

// Member is a top-level member of the body, as JSON; nil when it is missing.
func (r Request) Member(key string) json.RawMessage {
	var top map[string]json.RawMessage
	if json.Unmarshal(r.Body, &top) != nil {
		return nil
	}
	return top[key]
}

// has reports whether the body or one of its messages has the member.
func (r Request) has(key string) bool {
	if r.Member(key) != nil {
		return true
	}
	var messages []map[string]json.RawMessage
	if json.Unmarshal(r.Member("messages"), &messages) != nil {
		return false
	}
	return slices.ContainsFunc(messages, func(m map[string]json.RawMessage) bool { return m[key] != nil })
}

// maxTokens is the limit on the reply; 0 is none.
func (r Request) maxTokens() int { return max(r.MaxTokens, r.MaxCompletionTokens) }

// problem returns vLLM's error for invalid messages or tools.
func (r Request) problem() string {
	if r.PromptIDs != nil {
		return ""
	}
	if len(r.Messages) == 0 {
		return "messages: List should have at least 1 item"
	}
	open := map[string]bool{}
	for i, m := range r.Messages {
		switch m.Role {
		case "system", "user", "assistant", "developer":
		case "tool":
			if !open[m.ToolCallID] {
				return fmt.Sprintf("messages.%d: tool_call_id %q answers no call", i, m.ToolCallID)
			}
		default:
			return fmt.Sprintf("messages.%d: Unexpected message role %q", i, m.Role)
		}
		if m.Content == nil && (m.Role != "assistant" || len(m.ToolCalls) == 0) {
			return fmt.Sprintf("messages.%d.content: Field required", i)
		}
		for _, call := range m.ToolCalls {
			var object map[string]any
			if err := json.Unmarshal([]byte(call.Function.Arguments), &object); err != nil {
				return fmt.Sprintf("messages.%d: arguments are not a JSON object: %v", i, err)
			}
			open[call.ID] = true
		}
	}
	for i, t := range r.Tools {
		if t.Type != "function" || t.Function.Name == "" || !json.Valid(t.Function.Parameters) {
			return fmt.Sprintf("tools.%d: want type function, a name and parameters", i)
		}
	}
	return ""
}

func (m Message) text() string {
	if m.Content == nil {
		return ""
	}
	return *m.Content
}
