package chatml

import (
	"cmp"
	"strings"
)

// notation is how the models of a family write calls. A mark that is empty is not written. Space around marks means
// nothing, except in values of parameters.
type notation struct {
	name string
	// section is around all calls, and call around each of them. Without an end, a call ends where the next one begins.
	section, call [2]string
	// tag may be in front of a reply that is a call.
	tag string
	// named ends a name. In front of it there may be an id, after a mark of its own (id).
	named, id string
	// numbered says that names have the form functions.NAME:INDEX, which is the id, too.
	numbered bool
	// object is the key of the arguments if a call is a JSON object, or several calls are a list of objects.
	object string
	// parameter holds the marks before and after a key, and before and after its value. Without them, arguments are a
	// JSON object.
	parameter [4]string
	// lines says that values have lines of their own.
	lines bool
	// channels says that a reply consists of messages to several recipients, tools among them.
	channels bool
}

func notations() []notation {
	tag := [2]string{"<tool_call>", "</tool_call>"}
	deepseek := [2]string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"}
	return []notation{
		{name: "Hermes", call: tag, object: "arguments"},
		{name: "Qwen3-Coder", section: tag, call: [2]string{"<function=", "</function>"}, named: ">",
			parameter: [4]string{"<parameter=", ">", "", "</parameter>"}, lines: true},
		{name: "GLM", call: tag, parameter: [4]string{"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}},
		{name: "DeepSeek V3.1", section: deepseek, named: "<｜tool▁sep｜>",
			call: [2]string{"<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"}},
		{name: "DeepSeek V3", section: deepseek, named: "```json",
			call: [2]string{"<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "```<｜tool▁call▁end｜>"}},
		{name: "Mistral", call: [2]string{"[TOOL_CALLS]"}, object: "arguments"},
		{name: "Devstral", call: [2]string{"[TOOL_CALLS]"}, named: "[ARGS]", id: "[CALL_ID]"},
		{name: "Harmony", channels: true},
		{name: "Kimi K2", section: [2]string{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
			call: [2]string{"<|tool_call_begin|>", "<|tool_call_end|>"}, named: "<|tool_call_argument_begin|>", numbered: true},
		{name: "Llama 3", tag: "<|python_tag|>", object: "parameters"},
		{name: "MiniMax M2", section: [2]string{"<minimax:tool_call>", "</minimax:tool_call>"},
			call: [2]string{`<invoke name="`, "</invoke>"}, named: `">`,
			parameter: [4]string{`<parameter name="`, `">`, "", "</parameter>"}},
	}
}

// Marks returns the marks of all notations. Models have tokens for some of them.
func Marks() []string {
	marks := []string{"<think>", "</think>", "[THINK]", "[/THINK]"}
	add := func(mark string) string {
		if mark != "" {
			marks = append(marks, mark)
		}
		return ""
	}
	harmony().mapped(add)
	for _, n := range notations() {
		n.mapped(add)
	}
	return marks
}

// opening is the mark with which calls begin; "" where a whole reply is one.
func (n *notation) opening() string { return cmp.Or(n.section[0], n.call[0]) }

// ends reports whether a token is part of the end of calls.
func (n *notation) ends(token string) bool {
	return strings.Contains(n.section[1]+"\n"+n.call[1]+"\n"+n.parameter[3], token)
}

// mapped returns the notation with mark applied to each of its marks.
func (n notation) mapped(mark func(string) string) notation {
	for _, m := range []*string{&n.section[0], &n.section[1], &n.call[0], &n.call[1], &n.tag, &n.named, &n.id,
		&n.parameter[0], &n.parameter[1], &n.parameter[2], &n.parameter[3]} {
		*m = mark(*m)
	}
	return n
}
