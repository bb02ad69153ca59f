package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// Native is the format of tool calls that the server parses. A reply may contain several, of which the first
// [MaxCalls] are run in order.
type Native struct{}

// MaxCalls is how many native calls of one reply are run. The rest are answered but not run.
const MaxCalls = 8

// finishLength is the finish reason of a reply that was cut at its token limit.
const finishLength = "length"

// Name returns "tools".
func (Native) Name() string { return trajectory.FormatTools }

// Offer returns all tools.
func (Native) Offer(specs []tools.Spec) []tools.Spec { return specs }

// Parse reads the calls of a reply. If it has none, a call in the text counts, in XML or in the notation of Hermes,
// because a server without a tool parser for the model leaves it there.
func (Native) Parse(r Reply) Reading {
	calls := r.Message.ToolCalls
	if len(calls) == 0 {
		reading := parseText(r)
		if reading.Problem != ProblemNoCall {
			return reading
		}
		if calls = hermesCalls(r.Message.Content); len(calls) == 0 {
			return problem(ProblemNoCall, adviceNoNativeCall)
		}
		r.Message.ToolCalls = calls[:1]
		reading = Native{}.Parse(r)
		if more := len(calls) - 1; more > 0 {
			reading.Note = fmt.Sprintf(adviceMoreCalls, more)
		}
		return reading
	}
	reading := Reading{Actions: make([]Action, len(calls))}
	ids := make(map[string]bool, len(calls))
	runnable := 0
	for i, c := range calls {
		a := Action{Call: tools.Call{ID: uniqueID(ids, c.ID, i), Name: strings.TrimSpace(c.Name)}}
		args, wrong := parseArguments(c.Arguments)
		switch {
		case r.FinishReason == finishLength && (wrong != "" || len(args) == 0):
			a.Problem, a.Refusal = ProblemTruncated, adviceTruncated
		case wrong != "":
			a.Problem, a.Refusal = ProblemArguments, fmt.Sprintf(adviceArguments, excerpt(c.Name), wrong)
		case runnable == MaxCalls:
			a.Problem, a.Refusal = ProblemTooMany, fmt.Sprintf(adviceTooMany, MaxCalls)
		default:
			a.Call.Args = args
			runnable++
		}
		reading.Actions[i] = a
	}
	return reading
}

// hermesCall matches a call as models of Hermes' and Qwen's notation write it.
var hermesCall = regexp.MustCompile(`(?s)<tool_call>\s*(\{.*?\})\s*</tool_call>`)

// hermesCalls returns the calls in a text after its thoughts. One that is not JSON has all of it as arguments.
func hermesCalls(text string) (calls []ToolCall) {
	if i := strings.LastIndex(text, "</think>"); i >= 0 {
		text = text[i:]
	}
	for _, found := range hermesCall.FindAllStringSubmatch(text, -1) {
		var call struct {
			Name      string
			Arguments json.RawMessage
		}
		if err := json.Unmarshal([]byte(found[1]), &call); err != nil {
			call.Name, call.Arguments = "tool", json.RawMessage(found[1])
		}
		if len(call.Arguments) > 0 {
			call.Arguments = json.RawMessage(argument(call.Arguments))
		}
		calls = append(calls, ToolCall{ID: firstCallID, Name: call.Name, Arguments: string(call.Arguments)})
	}
	return calls
}

// uniqueID returns the server's ID, or a new one if that is empty or already used.
func uniqueID(used map[string]bool, id string, i int) string {
	for n := i + 1; id == "" || used[id]; n++ {
		id = fmt.Sprintf("call_%d", n)
	}
	used[id] = true
	return id
}

// parseArguments returns the members of a JSON object as text: a string's value, or any other value in JSON form.
// It omits nulls, because models write them for parameters that they leave out, and accepts an empty text, which
// some servers send for a call without parameters. wrong describes an error in the JSON.
func parseArguments(text string) (args map[string]string, wrong string) {
	if blank(text) {
		return map[string]string{}, ""
	}
	dec := json.NewDecoder(strings.NewReader(text))
	var members map[string]json.RawMessage
	if err := dec.Decode(&members); err != nil {
		return nil, explainJSON(text, err)
	}
	if members == nil {
		return nil, "expected a JSON object, got null"
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Sprintf("unexpected text after the JSON object at %s", position(text, dec.InputOffset()))
	}
	args = make(map[string]string, len(members))
	for key, raw := range members {
		if bytes.Equal(raw, []byte("null")) {
			continue
		}
		args[key] = argument(raw)
	}
	return args, ""
}

func argument(raw json.RawMessage) string {
	var s string
	if raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// explainJSON describes where a JSON text is invalid.
func explainJSON(text string, err error) string {
	if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("expected a JSON object, got a JSON %s", wrongType.Value)
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("%v at %s", err, position(text, syntax.Offset))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Sprintf("unexpected end of JSON at %s", position(text, int64(len(text))))
	}
	return err.Error()
}

// position describes the place of a byte, whose offset counts from 1, and what is there.
func position(text string, offset int64) string {
	at := int(min(max(offset, 0), int64(len(text))))
	line := strings.Count(text[:at], "\n") + 1
	column := at - strings.LastIndexByte(text[:at], '\n') - 1
	near := strings.ToValidUTF8(text[max(0, at-30):min(len(text), at+10)], "")
	return fmt.Sprintf("line %d, column %d, near %q", line, max(column, 1), near)
}
