package chatml

import (
	"fmt"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// Template names a chat template.
type Template string

// The supported templates: those of the instruction-tuned models of both families.
const (
	Qwen25 Template = "qwen2.5"
	Qwen3  Template = "qwen3"
)

// Templates returns all of them.
func Templates() []Template { return []Template{Qwen25, Qwen3} }

// The marks of a message.
const (
	begin = "<|im_start|>"
	// End ends a message.
	End = "<|im_end|>"
)

// defaultSystem is Qwen2.5's system message for conversations without one.
const defaultSystem = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

const (
	toolsBefore = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
		"You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
	toolsAfter = "\n</tools>\n\nFor each function call, return a json object with function name and arguments within " +
		"<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": " +
		"<args-json-object>}\n</tool_call>"
)

// Options are the inputs of a template in addition to the messages.
type Options struct {
	Tools []tools.Spec
	// Reply ends the text with the beginning of a reply.
	Reply bool
	// NoThoughts begins the reply with an empty thought. Only Qwen3's template knows it.
	NoThoughts bool
}

// Render writes a conversation as the template does. Like the template it trusts what messages say: a mark in their
// text is a mark. Arguments of calls are written as Python writes JSON, and {} in place of what is none, as vLLM does.
func (t Template) Render(messages []trajectory.Message, o Options) (string, error) {
	switch t {
	case Qwen25, Qwen3:
	default:
		return "", fmt.Errorf("unknown chat template %q: want %s or %s", string(t), Qwen25, Qwen3)
	}
	w := writer{template: t, messages: messages}
	if err := w.head(o.Tools); err != nil {
		return "", err
	}
	asked := w.lastQuestion()
	for i, m := range messages {
		switch {
		case m.Role == trajectory.RoleSystem && i == 0:
		case m.Role == trajectory.RoleUser || m.Role == trajectory.RoleSystem:
			w.add(begin, m.Role, "\n", m.Content, End, "\n")
		case m.Role == trajectory.RoleAssistant:
			w.assistant(i, m, i > asked)
		case m.Role == trajectory.RoleTool:
			w.observation(i, m)
		}
	}
	if o.Reply {
		w.add(begin, trajectory.RoleAssistant, "\n")
		if o.NoThoughts && t == Qwen3 {
			w.add("<think>\n\n</think>\n\n")
		}
	}
	return w.text.String(), nil
}

// Next returns the text after a reply: the end of its message, the new messages, and the beginning of the next reply.
func (t Template) Next(messages []trajectory.Message, o Options) (string, error) {
	o.Tools, o.Reply = nil, true
	// What comes before is only there to be cut off again.
	known := []trajectory.Message{
		{Role: trajectory.RoleSystem, Content: "s"}, {Role: trajectory.RoleUser, Content: "u"},
		{Role: trajectory.RoleAssistant, Content: "reply"},
	}
	text, err := t.Render(append(known, messages...), o)
	_, after, _ := strings.Cut(text, "reply")
	return after, err
}

// writer writes one conversation.
type writer struct {
	template Template
	messages []trajectory.Message
	text     strings.Builder
}

func (w *writer) add(pieces ...string) {
	for _, p := range pieces {
		w.text.WriteString(p)
	}
}

// head writes the system's message with the tools.
func (w *writer) head(specs []tools.Spec) error {
	system, given := "", false
	if len(w.messages) > 0 && w.messages[0].Role == trajectory.RoleSystem {
		system, given = w.messages[0].Content, true
	} else if w.template == Qwen25 {
		system, given = defaultSystem, true
	}
	switch {
	case len(specs) > 0:
		w.add(begin, trajectory.RoleSystem, "\n")
		if given {
			w.add(system, "\n\n")
		}
		w.add(toolsBefore)
		for _, s := range specs {
			text, err := describe(s)
			if err != nil {
				return fmt.Errorf("tool %s: %w", s.Name, err)
			}
			w.add("\n", text)
		}
		w.add(toolsAfter, End, "\n")
	case given:
		w.add(begin, trajectory.RoleSystem, "\n", system, End, "\n")
	}
	return nil
}

// lastQuestion returns the index of the last user message that is not an observation. Qwen3's template leaves out the
// thoughts before it.
func (w *writer) lastQuestion() int {
	for i := len(w.messages) - 1; i >= 0; i-- {
		m := w.messages[i]
		if m.Role == trajectory.RoleUser &&
			(!strings.HasPrefix(m.Content, "<tool_response>") || !strings.HasSuffix(m.Content, "</tool_response>")) {
			return i
		}
	}
	return len(w.messages) - 1
}

// assistant writes a reply. In Qwen3's template, recent ones keep their thoughts, and the last one has at least an
// empty thought.
func (w *writer) assistant(i int, m trajectory.Message, recent bool) {
	w.add(begin, m.Role)
	content := m.Content
	if w.template == Qwen3 {
		var thoughts string
		thoughts, content = w.thoughts(m)
		w.add("\n")
		if recent && (i == len(w.messages)-1 || thoughts != "") {
			w.add("<think>\n", strings.Trim(thoughts, "\n"), "\n</think>\n\n", strings.TrimLeft(content, "\n"))
		} else {
			w.add(content)
		}
	} else if content != "" || len(m.ToolCalls) == 0 {
		w.add("\n", content)
	}
	for k, c := range m.ToolCalls {
		if w.template == Qwen25 || k > 0 || content != "" {
			w.add("\n")
		}
		w.add("<tool_call>\n{\"name\": \"", c.Name, "\", \"arguments\": ", pythonObject(c.Arguments), "}\n</tool_call>")
	}
	w.add(End, "\n")
}

// thoughts takes the thoughts out of a message that still holds them.
func (w *writer) thoughts(m trajectory.Message) (thoughts, content string) {
	if m.Reasoning != "" || !strings.Contains(m.Content, "</think>") {
		return m.Reasoning, m.Content
	}
	first, _, _ := strings.Cut(m.Content, "</think>")
	last := m.Content[strings.LastIndex(m.Content, "</think>")+len("</think>"):]
	first = strings.TrimRight(first, "\n")
	if at := strings.LastIndex(first, "<think>"); at >= 0 {
		first = first[at+len("<think>"):]
	}
	return strings.TrimLeft(first, "\n"), strings.TrimLeft(last, "\n")
}

// observation writes the result of a call. Those of one reply share a message.
func (w *writer) observation(i int, m trajectory.Message) {
	if i == 0 || w.messages[i-1].Role != trajectory.RoleTool {
		w.add(begin, trajectory.RoleUser)
	}
	w.add("\n<tool_response>\n", m.Content, "\n</tool_response>")
	if i == len(w.messages)-1 || w.messages[i+1].Role != trajectory.RoleTool {
		w.add(End, "\n")
	}
}
