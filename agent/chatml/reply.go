package chatml

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"deepswe/agent/trajectory"
)

// Reply reads what a model wrote after the beginning of a reply, without the mark at its end: thoughts, text and, where
// native is set, calls in tags. A call whose JSON is broken keeps its text as arguments, so that the model can be told
// what is wrong with it. The turn makes ids of calls unique in a conversation.
func Reply(text string, native bool, turn int) trajectory.Message {
	m := trajectory.Message{Role: trajectory.RoleAssistant, Content: text}
	if before, after, ok := strings.Cut(text, "</think>"); ok {
		if _, thought, opened := strings.Cut(before, "<think>"); opened {
			before = thought
		}
		// The line breaks after a thought belong to the template.
		m.Reasoning, m.Content = before, strings.TrimLeft(after, "\n")
	}
	if !native {
		return m
	}
	content, rest, called := strings.Cut(m.Content, callOpen)
	if !called {
		return m
	}
	var calls []trajectory.ToolCall
	for called {
		var body string
		body, rest, _ = strings.Cut(rest, callClose)
		name, arguments, ok := readCall(body)
		if !ok {
			return m // no call at all: it stays text
		}
		calls = append(calls, trajectory.ToolCall{
			ID: "call_" + strconv.Itoa(turn) + "_" + strconv.Itoa(len(calls)), Name: name, Arguments: arguments,
		})
		_, rest, called = strings.Cut(rest, callOpen)
	}
	m.Content, m.ToolCalls = strings.TrimSuffix(content, "\n"), calls // the template writes that line break
	return m
}

const (
	callOpen  = "<tool_call>"
	callClose = "</tool_call>"
)

var (
	callName      = regexp.MustCompile(`"name"\s*:\s*"([^"\\]*)"`)
	callArguments = regexp.MustCompile(`"arguments"\s*:\s*`)
)

// readCall parses {"name": …, "arguments": {…}}, as far as possible if it is invalid.
func readCall(body string) (name, arguments string, ok bool) {
	var call struct {
		Name      *string         `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal([]byte(body), &call) == nil && call.Name != nil {
		var text string
		if json.Unmarshal(call.Arguments, &text) == nil {
			return *call.Name, text, true
		}
		return *call.Name, string(call.Arguments), true
	}
	found := callName.FindStringSubmatch(body)
	if found == nil {
		return "", "", false
	}
	if at := callArguments.FindStringIndex(body); at != nil {
		arguments = strings.TrimSpace(body[at[1]:])
	}
	return found[1], arguments, true
}
