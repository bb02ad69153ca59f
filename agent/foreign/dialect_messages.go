package foreign

import (
	"encoding/json"
	"fmt"
	"net/http"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/tools"
)

type messages struct{}

type messagesRequest struct {
	System   any `json:"system"`
	Messages []struct {
		Role    string `json:"role"`
		Content blocks `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
	} `json:"tools"`
	MaxTokens int  `json:"max_tokens"`
	Stream    bool `json:"stream"`
}

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   any             `json:"content"`
}

// blocks is a message's content: a list of blocks, or a text.
type blocks []block

func (b *blocks) UnmarshalJSON(raw []byte) error {
	return either(raw, (*[]block)(b), func(text string) block { return block{Type: "text", Text: text} })
}

func (messages) read(body []byte) (request, error) {
	var in messagesRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, fmt.Errorf("the body is not a request for a message: %w", err)
	}
	r := request{maxTokens: in.MaxTokens, stream: in.Stream}
	if system := r.text(in.System); system != "" {
		r.messages = []agent.Message{{Role: agent.RoleSystem, Content: system}}
	}
	for _, m := range in.Messages {
		r.add(m.Role, m.Content)
	}
	for _, t := range in.Tools {
		if len(t.InputSchema) == 0 { // one that the server itself would run
			r.dropped++
			continue
		}
		r.tools = append(r.tools, tools.Spec{Name: t.Name, Description: t.Description, Parameters: t.InputSchema})
	}
	return r, nil
}

// add adds the content as messages of one kind each: a text, or the result of a call.
func (r *request) add(role string, content blocks) {
	var own *agent.Message // the text that is read
	for _, part := range content {
		if part.Type == "tool_result" {
			own = nil
			r.messages = append(r.messages, agent.Message{
				Role: agent.RoleTool, Content: r.text(part.Content), ToolCallID: part.ToolUseID,
			})
			continue
		}
		if own == nil {
			r.messages = append(r.messages, agent.Message{Role: role})
			own = &r.messages[len(r.messages)-1]
		}
		text := part.Text
		switch part.Type {
		case "text":
		case "thinking":
			own.Reasoning += part.Thinking
			continue
		case "tool_use":
			own.ToolCalls = append(own.ToolCalls, agent.ToolCall{ID: part.ID, Name: part.Name, Arguments: string(part.Input)})
			continue
		default:
			r.dropped++
			text = "(" + part.Type + " left out)"
		}
		if own.Content != "" {
			own.Content += "\n"
		}
		own.Content += text
	}
}

// parts returns a reply's content, and why it ended.
func (messages) parts(answer agent.Reply) (parts []map[string]any, reason string) {
	m := answer.Message
	if m.Reasoning != "" {
		parts = append(parts, map[string]any{"type": "thinking", "thinking": m.Reasoning, "signature": ""})
	}
	if m.Content != "" || len(m.ToolCalls) == 0 {
		parts = append(parts, map[string]any{"type": "text", "text": m.Content})
	}
	for _, c := range m.ToolCalls {
		parts = append(parts, map[string]any{
			"type": "tool_use", "id": c.ID, "name": c.Name, "input": json.RawMessage(llm.Sendable(c.Arguments)),
		})
	}
	switch {
	case len(m.ToolCalls) > 0:
		reason = "tool_use"
	case answer.FinishReason == "length":
		reason = "max_tokens"
	default:
		reason = "end_turn"
	}
	return parts, reason
}

func (d messages) whole(_ request, answer agent.Reply, id string) any {
	parts, reason := d.parts(answer)
	return message(id, parts, reason, answer.Usage)
}

// message is a reply on the wire. One that is streamed begins without content and reason.
func message(id string, parts []map[string]any, reason any, u agent.Usage) map[string]any {
	return map[string]any{
		"id": "msg_" + id, "type": "message", "role": "assistant", "model": modelName, "content": parts,
		"stop_reason": reason, "stop_sequence": nil, "usage": messageUsage(u),
	}
}

func messageUsage(u agent.Usage) map[string]int {
	return map[string]int{
		"input_tokens": u.Prompt - u.Cached, "output_tokens": u.Completion, "cache_read_input_tokens": u.Cached,
		"cache_creation_input_tokens": 0,
	}
}

func (d messages) events(_ request, answer agent.Reply, id string) []event {
	var all []event
	add := func(kind string, more map[string]any) {
		more["type"] = kind
		all = append(all, event{name: kind, data: more})
	}
	parts, reason := d.parts(answer)
	begun := answer.Usage
	begun.Completion = 0
	add("message_start", map[string]any{"message": message(id, []map[string]any{}, nil, begun)})
	for i, p := range parts {
		empty, delta := map[string]any{"type": p["type"]}, map[string]any{}
		switch p["type"] {
		case "thinking":
			empty["thinking"], empty["signature"] = "", ""
			delta["type"], delta["thinking"] = "thinking_delta", p["thinking"]
		case "text":
			empty["text"] = ""
			delta["type"], delta["text"] = "text_delta", p["text"]
		default:
			empty["id"], empty["name"], empty["input"] = p["id"], p["name"], struct{}{}
			delta["type"], delta["partial_json"] = "input_json_delta", string(p["input"].(json.RawMessage))
		}
		add("content_block_start", map[string]any{"index": i, "content_block": empty})
		add("content_block_delta", map[string]any{"index": i, "delta": delta})
		add("content_block_stop", map[string]any{"index": i})
	}
	add("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": reason, "stop_sequence": nil}, "usage": messageUsage(answer.Usage),
	})
	add("message_stop", map[string]any{})
	return all
}

func (messages) refuse(r *refusal) (int, any) {
	status, kind, text := http.StatusBadRequest, "invalid_request_error", r.text
	switch r.reason {
	case agent.MaxContext:
		text = fmt.Sprintf("prompt is too long: %d tokens > %d maximum", r.tokens, r.context)
	case agent.ModelError:
		status, kind = http.StatusServiceUnavailable, "api_error"
	}
	return status, map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": text}}
}

func (d messages) broken(r *refusal) event {
	_, body := d.refuse(r)
	return event{name: "error", data: body}
}

// countTokens returns the number of tokens of a request, as far as it is known without asking the model.
func (g *gateway) countTokens(w http.ResponseWriter, _ *http.Request, _ dialect, r request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	send(w, http.StatusOK, map[string]int{"input_tokens": g.tree.place(r).tokens()})
}
