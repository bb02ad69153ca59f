package llm

import (
	"encoding/json"
	"fmt"
	"strconv"

	openai "github.com/sashabaranov/go-openai"

	"deepswe/agent"
	"deepswe/env/disk"
)

// body is one request: what go-openai can say, and the patch that says the rest.
type body struct {
	typed openai.ChatCompletionRequest
	patch func(raw []byte) ([]byte, error)
}

// anyModel stands in the typed request. The library refuses some parameters by the beginning of a model's name, also
// for a local model that happens to be called "o3-mine"; the patch puts the real name in.
const anyModel = "model"

// newBody translates a request for this model, in the endpoint's dialect.
func newBody(r agent.Request, model string, d *dialect) (body, error) {
	typed := openai.ChatCompletionRequest{
		Model:    anyModel,
		Messages: make([]openai.ChatCompletionMessage, len(r.Messages)),
		Stream:   r.OnText != nil && !r.Tokens,
	}
	for i, m := range r.Messages {
		typed.Messages[i] = typedMessage(m)
	}
	for _, t := range r.Tools {
		typed.Tools = append(typed.Tools, openai.Tool{
			Type:     openai.ToolTypeFunction,
			Function: &openai.FunctionDefinition{Name: t.Name, Description: t.Description, Parameters: t.Parameters},
		})
	}
	if typed.Stream && !d.refuses(streamOptions) {
		typed.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	}
	members, err := members(r, model, d)
	if err != nil {
		return body{}, err
	}
	return body{typed: typed, patch: func(raw []byte) ([]byte, error) { return patch(raw, members, d) }}, nil
}

func typedMessage(m agent.Message) openai.ChatCompletionMessage {
	t := openai.ChatCompletionMessage{
		Role: m.Role, Content: m.Content, ReasoningContent: m.Reasoning, Name: m.Name, ToolCallID: m.ToolCallID,
	}
	for _, call := range m.ToolCalls {
		t.ToolCalls = append(t.ToolCalls, openai.ToolCall{
			ID: call.ID, Type: openai.ToolTypeFunction,
			Function: openai.FunctionCall{Name: call.Name, Arguments: sendable(call.Arguments)},
		})
	}
	return t
}

// sendable is a call's arguments as servers accept them in a history: vLLM, llama.cpp and Ollama parse them before they
// render the chat template and refuse the whole conversation, in every later turn, for what is no JSON object. Such a
// text travels as the value of one member.
func sendable(arguments string) string {
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

// members are the request's top-level members that the library's structs lack or drop when they are zero.
func members(r agent.Request, model string, d *dialect) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	var failed error
	set := func(key string, v any) {
		raw, err := disk.MarshalJSON(v)
		if err != nil && failed == nil {
			failed = fmt.Errorf("request member %s: %w", key, err)
		}
		out[key] = raw
	}
	set("model", model)
	if r.MaxTokens > 0 {
		set(d.maxTokens(), r.MaxTokens)
	}
	s := r.Sampling
	if s.Temperature != nil {
		set("temperature", *s.Temperature)
	}
	if s.TopP != nil {
		set("top_p", *s.TopP)
	}
	if s.TopK != nil {
		set("top_k", *s.TopK)
	}
	if s.MinP != nil {
		set("min_p", *s.MinP)
	}
	if s.RepetitionPenalty != nil {
		set("repetition_penalty", *s.RepetitionPenalty)
	}
	if s.Seed != nil {
		set("seed", *s.Seed)
	}
	if r.Tokens {
		for _, key := range []string{logprobs, tokenIDs} {
			if !d.refuses(key) {
				set(key, true)
			}
		}
	}
	return out, failed
}

// patch puts the members into the library's body and completes its messages: content stands in every one, also where it
// is empty, and reasoning under both of its names, because servers renamed it.
func patch(raw []byte, members map[string]json.RawMessage, d *dialect) ([]byte, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(unescape(raw), &top); err != nil {
		return nil, fmt.Errorf("read the library's request: %w", err)
	}
	var messages []map[string]json.RawMessage
	if err := json.Unmarshal(top["messages"], &messages); err != nil {
		return nil, fmt.Errorf("read the library's messages: %w", err)
	}
	for _, m := range messages {
		if _, ok := m["content"]; !ok {
			m["content"] = json.RawMessage(`""`)
		}
		if text, ok := m[reasoningContent]; ok {
			m[reasoning] = text
		}
		for _, key := range []string{reasoning, reasoningContent} {
			if d.refuses(key) {
				delete(m, key)
			}
		}
	}
	completed, err := disk.MarshalJSON(messages)
	if err != nil {
		return nil, err
	}
	top["messages"] = completed
	for key, value := range members {
		top[key] = value
	}
	return disk.MarshalJSON(top)
}

// unescape writes the < > and & that the library escaped as they are. A backslash begins an escape of two bytes or more,
// so that looking at two at a time never mistakes an escaped backslash for the beginning of one.
func unescape(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 == len(raw) {
			out = append(out, raw[i])
			continue
		}
		if i+6 <= len(raw) {
			switch string(raw[i : i+6]) {
			case `\u003c`, `\u003e`, `\u0026`:
				code, _ := strconv.ParseUint(string(raw[i+2:i+6]), 16, 8)
				out = append(out, byte(code))
				i += 5
				continue
			}
		}
		out = append(out, raw[i], raw[i+1])
		i++
	}
	return out
}
