package foreign

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"deepswe/agent"
	"deepswe/tools"
)

type responses struct{}

type responsesRequest struct {
	Instructions       string          `json:"instructions"`
	Input              inputItems      `json:"input"`
	Tools              []responsesTool `json:"tools"`
	MaxOutputTokens    int             `json:"max_output_tokens"`
	PreviousResponseID string          `json:"previous_response_id"`
	Stream             bool            `json:"stream"`
}

// item is a part of a conversation.
type item struct {
	Type      string `json:"type"`
	Role      string `json:"role"`
	Content   any    `json:"content"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Arguments string `json:"arguments"`
	Input     string `json:"input"`
	CallID    string `json:"call_id"`
	Output    any    `json:"output"`
}

// inputItems is a list of items, or a user's text.
type inputItems []item

func (in *inputItems) UnmarshalJSON(raw []byte) error {
	return either(raw, (*[]item)(in), func(text string) item { return item{Role: agent.RoleUser, Content: text} })
}

// responsesTool is a function, a tool that takes a text instead of JSON (custom), several tools (namespace), or a tool
// of the server's own.
type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Tools       []responsesTool `json:"tools"`
}

// within separates the name of a tool from that of its namespace.
const within = "__"

// textTool is the schema of the parameters of a tool that takes a text.
const textTool = `{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}`

func (responses) read(body []byte) (request, error) {
	var in responsesRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, fmt.Errorf("the body is not a request for a response: %w", err)
	}
	if in.PreviousResponseID != "" {
		return request{}, errors.New("previous_response_id is not supported: send the whole conversation")
	}
	r := request{
		maxTokens: in.MaxOutputTokens, stream: in.Stream, texts: map[string]bool{}, spaces: map[string]string{},
	}
	if in.Instructions != "" {
		r.messages = []agent.Message{{Role: agent.RoleSystem, Content: in.Instructions}}
	}
	r.takeTools(in.Tools, "")
	var own *agent.Message // the reply whose items are read
	for _, i := range in.Input {
		if i.Type == "function_call_output" || i.Type == "custom_tool_call_output" || i.Role != "" && i.Role != "assistant" {
			own = nil
		} else if own == nil {
			r.messages = append(r.messages, agent.Message{Role: agent.RoleAssistant})
			own = &r.messages[len(r.messages)-1]
		}
		switch {
		case i.Type == "function_call_output" || i.Type == "custom_tool_call_output":
			r.messages = append(r.messages, agent.Message{
				Role: agent.RoleTool, Content: r.text(i.Output), ToolCallID: i.CallID,
			})
		case own == nil:
			r.messages = append(r.messages, agent.Message{Role: i.Role, Content: r.text(i.Content)})
		case i.Type == "function_call":
			own.ToolCalls = append(own.ToolCalls, agent.ToolCall{ID: i.CallID, Name: i.tool(), Arguments: i.Arguments})
		case i.Type == "custom_tool_call":
			text, err := json.Marshal(map[string]string{"input": i.Input})
			if err != nil {
				return request{}, err
			}
			own.ToolCalls = append(own.ToolCalls, agent.ToolCall{ID: i.CallID, Name: i.tool(), Arguments: string(text)})
		case i.Type == "reasoning":
			own.Reasoning += r.text(i.Content)
		default:
			own.Content += r.text(i.Content)
		}
	}
	return r, nil
}

// tool returns the tool's name in a flat list: with the namespace, if it has one.
func (i item) tool() string {
	if i.Namespace == "" {
		return i.Name
	}
	return i.Namespace + within + i.Name
}

// takeTools adds tools to a request, those of namespaces by their full names. Tools that the server itself would run
// are left out.
func (r *request) takeTools(all []responsesTool, namespace string) {
	for _, t := range all {
		name := item{Name: t.Name, Namespace: namespace}.tool()
		r.spaces[name] = namespace
		switch t.Type {
		case "function":
			r.tools = append(r.tools, tools.Spec{Name: name, Description: t.Description, Parameters: t.Parameters})
		case "custom":
			r.tools = append(r.tools, tools.Spec{
				Name: name, Description: t.Description, Parameters: json.RawMessage(textTool),
			})
			r.texts[name] = true
		case "namespace":
			r.takeTools(t.Tools, t.Name)
		default:
			r.dropped++
		}
	}
}

func (responses) items(r request, answer agent.Reply, id string) []map[string]any {
	var all []map[string]any
	add := func(kind string, more map[string]any) {
		more["type"], more["id"] = kind, fmt.Sprintf("%s_%s_%d", kind, id, len(all))
		all = append(all, more)
	}
	m := answer.Message
	if m.Reasoning != "" {
		add("reasoning", map[string]any{
			"summary": []any{}, "content": []any{map[string]string{"type": "reasoning_text", "text": m.Reasoning}},
		})
	}
	if m.Content != "" || len(m.ToolCalls) == 0 {
		add("message", map[string]any{"role": m.Role, "status": "completed", "content": []any{
			map[string]any{"type": "output_text", "text": m.Content, "annotations": []any{}},
		}})
	}
	for _, c := range m.ToolCalls {
		one := map[string]any{"call_id": c.ID, "name": c.Name, "status": "completed"}
		if space := r.spaces[c.Name]; space != "" {
			one["namespace"], one["name"] = space, strings.TrimPrefix(c.Name, space+within)
		}
		if !r.texts[c.Name] {
			one["arguments"] = c.Arguments
			add("function_call", one)
			continue
		}
		var args struct {
			Input string `json:"input"`
		}
		if json.Unmarshal([]byte(c.Arguments), &args) != nil {
			args.Input = c.Arguments
		}
		one["input"] = args.Input
		add("custom_tool_call", one)
	}
	return all
}

func (d responses) whole(r request, answer agent.Reply, id string) any {
	u := answer.Usage
	return map[string]any{
		"id": "resp_" + id, "object": "response", "created_at": 1, "status": "completed", "model": modelName,
		"output": d.items(r, answer, id), "usage": map[string]any{
			"input_tokens": u.Prompt, "output_tokens": u.Completion, "total_tokens": u.Prompt + u.Completion,
			"input_tokens_details":  map[string]int{"cached_tokens": u.Cached},
			"output_tokens_details": map[string]int{"reasoning_tokens": u.Reasoning},
		},
	}
}

func (d responses) events(r request, answer agent.Reply, id string) []event {
	var all []event
	add := func(kind string, more map[string]any) {
		more["type"], more["sequence_number"] = kind, len(all)
		all = append(all, event{name: kind, data: more})
	}
	add("response.created", map[string]any{"response": map[string]any{
		"id": "resp_" + id, "object": "response", "status": "in_progress", "output": []any{},
	}})
	for i, one := range d.items(r, answer, id) {
		add("response.output_item.added", map[string]any{"output_index": i, "item": one})
		add("response.output_item.done", map[string]any{"output_index": i, "item": one})
	}
	add("response.completed", map[string]any{"response": d.whole(r, answer, id)})
	return all
}

func (responses) refuse(r *refusal) (int, any) {
	status, body := openAIError(r)
	if r.reason == agent.MaxContext && r.streamed {
		status = http.StatusOK // agents compact only if the error comes in a stream
	}
	return status, map[string]any{"error": body}
}

func (responses) broken(r *refusal) event {
	_, body := openAIError(r)
	return event{name: "response.failed", data: map[string]any{"type": "response.failed", "response": map[string]any{
		"object": "response", "status": "failed", "error": map[string]any{"code": body["code"], "message": body["message"]},
	}}}
}
