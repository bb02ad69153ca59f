package acp

// protocolVersion is the only supported version. The server offers it whichever version a client asks for.
const protocolVersion = 1

// The codes of JSON-RPC and of the protocol for errors.
const (
	codeParse    = -32700
	codeInvalid  = -32600
	codeMethod   = -32601
	codeParams   = -32602
	codeInternal = -32603
	codeNotFound = -32002
)

// StopReason is why a turn ended.
type StopReason string

// The reasons.
const (
	EndTurn         StopReason = "end_turn"
	MaxTokens       StopReason = "max_tokens"
	MaxTurnRequests StopReason = "max_turn_requests"
	Cancelled       StopReason = "cancelled"
)

// Content is a block of text.
type Content struct {
	Type string `json:"type"` // "text"
	Text string `json:"text"`
}

// textContent returns a block of text.
func textContent(text string) Content { return Content{Type: "text", Text: text} }

// block is a content block of a prompt.
type block struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	URI      string `json:"uri"`
	Name     string `json:"name"`
	Resource struct {
		URI  string `json:"uri"`
		Text string `json:"text"`
	} `json:"resource"`
}

// Chunk is a piece of a message or a thought: sessionUpdate is user_message_chunk, agent_message_chunk or
// agent_thought_chunk.
type Chunk struct {
	Update  string  `json:"sessionUpdate"`
	Content Content `json:"content"`
}

// Message returns a message of the agent.
func Message(text string) Chunk { return Chunk{"agent_message_chunk", textContent(text)} }

// Thought returns a thought of the agent.
func Thought(text string) Chunk { return Chunk{"agent_thought_chunk", textContent(text)} }

// UserMessage returns what the user has said, for a replay.
func UserMessage(text string) Chunk { return Chunk{"user_message_chunk", textContent(text)} }

// PlanUpdate lists the parts of a turn, with their progress.
type PlanUpdate struct {
	Update  string      `json:"sessionUpdate"` // "plan"
	Entries []PlanEntry `json:"entries"`
}

// PlanEntry is a part of a plan.
type PlanEntry struct {
	Content  string `json:"content"`
	Priority string `json:"priority"`
	Status   string `json:"status"`
}

// Plan returns a plan of the parts: those before index now are completed, the one at now is in progress.
func Plan(parts []string, now int) PlanUpdate {
	p := PlanUpdate{Update: "plan"}
	for i, part := range parts {
		status := []string{"completed", "in_progress", "pending"}[1+min(max(i-now, -1), 1)]
		p.Entries = append(p.Entries, PlanEntry{part, "medium", status})
	}
	return p
}

// Usage is how many tokens of the context are used, and what the session has cost.
type Usage struct {
	Update string `json:"sessionUpdate"` // "usage_update"
	Used   int    `json:"used"`
	Size   int    `json:"size"`
	Cost   *Cost  `json:"cost,omitempty"`
}

// Cost is an amount, in a currency or another unit.
type Cost struct {
	Amount   float64 `json:"amount"`
	Currency string  `json:"currency"`
}

// ConfigOption is a setting that the user can change in a session. It applies from the next prompt on.
type ConfigOption struct {
	ID       string        `json:"id"`
	Name     string        `json:"name"`
	Category string        `json:"category,omitempty"` // model or mode
	Type     string        `json:"type"`               // "select"
	Current  string        `json:"currentValue"`
	Options  []ConfigValue `json:"options"`
}

// ConfigValue is what may be chosen.
type ConfigValue struct {
	Value string `json:"value"`
	Name  string `json:"name"`
}

// Location is a place that a call works on. Lines count from 1.
type Location struct {
	Path string `json:"path"`
	Line int    `json:"line,omitempty"`
}

// ToolContent is a result of a call, or a change that it makes.
type ToolContent struct {
	Type    string   `json:"type"` // "content" or "diff"
	Content *Content `json:"content,omitempty"`
	Path    string   `json:"path,omitempty"`
	OldText *string  `json:"oldText,omitempty"` // nil for a new file
	NewText *string  `json:"newText,omitempty"`
}

// Output returns the text that a call has printed.
func Output(text string) ToolContent {
	return ToolContent{Type: "content", Content: new(textContent(text))}
}

// Diff returns a change of a file; before is nil for a new one.
func Diff(path string, before *string, after string) ToolContent {
	return ToolContent{Type: "diff", Path: path, OldText: before, NewText: &after}
}

// ToolCall is a call or, with only the changed fields set, an update of it.
type ToolCall struct {
	Update    string        `json:"sessionUpdate,omitempty"` // "tool_call" or "tool_call_update"
	ID        string        `json:"toolCallId"`
	Title     string        `json:"title,omitempty"`
	Kind      string        `json:"kind,omitempty"`
	Status    string        `json:"status,omitempty"`
	Content   []ToolContent `json:"content,omitempty"`
	Locations []Location    `json:"locations,omitempty"`
	RawInput  any           `json:"rawInput,omitempty"`
}

// Option is an answer that the user may choose.
type Option struct {
	ID   string `json:"optionId"`
	Name string `json:"name"`
	Kind string `json:"kind"` // allow_once, reject_once
}

// Session is a session in a list.
type Session struct {
	ID      string `json:"sessionId"`
	Cwd     string `json:"cwd"`
	Title   string `json:"title,omitempty"`
	Updated string `json:"updatedAt,omitempty"` // RFC 3339
}

// Select returns an option to choose one of these values.
func Select(id, name, category, current string, values ...string) ConfigOption {
	o := ConfigOption{ID: id, Name: name, Category: category, Type: "select", Current: current}
	for _, v := range values {
		o.Options = append(o.Options, ConfigValue{v, v})
	}
	return o
}
