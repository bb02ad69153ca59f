package foreign

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"

	openai "github.com/sashabaranov/go-openai"

	"deepswe/agent"
	"deepswe/tools"
)

// chat is the dialect of OpenAI's chat completions.
type chat struct{}

type chatRequest struct {
	Messages []struct {
		Role             string            `json:"role"`
		Content          any               `json:"content"`
		Reasoning        string            `json:"reasoning"`
		ReasoningContent string            `json:"reasoning_content"`
		ToolCalls        []openai.ToolCall `json:"tool_calls"`
		ToolCallID       string            `json:"tool_call_id"`
	} `json:"messages"`
	Tools []struct {
		Type     string     `json:"type"`
		Function tools.Spec `json:"function"`
	} `json:"tools"`
	MaxTokens           int  `json:"max_tokens"`
	MaxCompletionTokens int  `json:"max_completion_tokens"`
	N                   int  `json:"n"`
	Stream              bool `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	ResponseFormat json.RawMessage `json:"response_format"`
}

func (chat) read(body []byte) (request, error) {
	var in chatRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, fmt.Errorf("the body is not a request for a chat completion: %w", err)
	}
	if in.N > 1 {
		return request{}, errors.New("n must be 1")
	}
	r := request{
		maxTokens: cmp.Or(in.MaxCompletionTokens, in.MaxTokens), stream: in.Stream, usage: in.StreamOptions.IncludeUsage,
	}
	if len(in.ResponseFormat) > 0 {
		r.dropped++
	}
	for _, m := range in.Messages {
		own := agent.Message{
			Role: m.Role, Content: r.text(m.Content), Reasoning: cmp.Or(m.ReasoningContent, m.Reasoning),
			ToolCallID: m.ToolCallID,
		}
		for _, c := range m.ToolCalls {
			own.ToolCalls = append(own.ToolCalls,
				agent.ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
		r.messages = append(r.messages, own)
	}
	for _, t := range in.Tools {
		if t.Type != "function" {
			r.dropped++
			continue
		}
		r.tools = append(r.tools, t.Function)
	}
	return r, nil
}

// chatMessage is an assistant's message, or a piece of one.
type chatMessage struct {
	Role      string            `json:"role,omitempty"`
	Content   *string           `json:"content"`
	Reasoning string            `json:"reasoning_content,omitempty"`
	ToolCalls []openai.ToolCall `json:"tool_calls,omitempty"`
}

// wireCalls are the calls of a reply, each with its place if it is streamed.
func wireCalls(calls []agent.ToolCall, streamed bool) []openai.ToolCall {
	var out []openai.ToolCall
	for i, c := range calls {
		call := openai.ToolCall{
			ID: c.ID, Type: openai.ToolTypeFunction, Function: openai.FunctionCall{Name: c.Name, Arguments: c.Arguments},
		}
		if streamed {
			call.Index = &i
		}
		out = append(out, call)
	}
	return out
}

func finishReason(answer agent.Reply) string {
	if len(answer.Message.ToolCalls) > 0 {
		return "tool_calls"
	}
	return cmp.Or(answer.FinishReason, "stop")
}

func chatUsage(u agent.Usage) map[string]any {
	return map[string]any{
		"prompt_tokens": u.Prompt, "completion_tokens": u.Completion, "total_tokens": u.Prompt + u.Completion,
		"prompt_tokens_details": map[string]int{"cached_tokens": u.Cached},
	}
}

func (chat) whole(_ request, answer agent.Reply, id string) any {
	m := answer.Message
	return map[string]any{
		"id": "chatcmpl-" + id, "object": "chat.completion", "created": 1, "model": modelName,
		"choices": []any{map[string]any{
			"index": 0, "finish_reason": finishReason(answer), "message": chatMessage{
				Role: m.Role, Content: &m.Content, Reasoning: m.Reasoning, ToolCalls: wireCalls(m.ToolCalls, false),
			},
		}},
		"usage": chatUsage(answer.Usage),
	}
}

func (chat) events(r request, answer agent.Reply, id string) []event {
	chunk := func(choices []any, more map[string]any) event {
		data := map[string]any{
			"id": "chatcmpl-" + id, "object": "chat.completion.chunk", "created": 1, "model": modelName, "choices": choices,
		}
		maps.Copy(data, more)
		return event{data: data}
	}
	piece := func(delta any, finish any) event {
		return chunk([]any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}, nil)
	}
	m := answer.Message
	all := []event{piece(chatMessage{Role: m.Role, Content: new(""), Reasoning: m.Reasoning}, nil)}
	if m.Content != "" {
		all = append(all, piece(chatMessage{Content: &m.Content}, nil))
	}
	if len(m.ToolCalls) > 0 {
		all = append(all, piece(chatMessage{ToolCalls: wireCalls(m.ToolCalls, true)}, nil))
	}
	all = append(all, piece(struct{}{}, finishReason(answer)))
	if r.usage {
		all = append(all, chunk([]any{}, map[string]any{"usage": chatUsage(answer.Usage)}))
	}
	return append(all, event{data: "[DONE]"})
}

// openAIError is how chat completions and Responses say that something is wrong.
func openAIError(r *refusal) (status int, body map[string]any) {
	status, kind, code, text := http.StatusBadRequest, "invalid_request_error", "", r.text
	switch r.reason {
	case agent.MaxContext:
		code = "context_length_exceeded"
		text = fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in %d "+
			"tokens. Please reduce the length of the messages.", r.context, r.tokens)
	case agent.ModelError:
		status, kind = http.StatusServiceUnavailable, "server_error"
	case agent.MaxSteps:
		code = "limit_reached"
	}
	return status, map[string]any{"message": text, "type": kind, "code": code, "param": nil}
}

func (chat) refuse(r *refusal) (int, any) {
	status, body := openAIError(r)
	return status, map[string]any{"error": body}
}

func (c chat) broken(r *refusal) event {
	_, body := c.refuse(r)
	return event{data: body}
}
