package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestArguments(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text  string
		want  map[string]string
		wrong string
	}{
		{text: `{"cmd": "ls -la\n"}`, want: map[string]string{"cmd": "ls -la\n"}},
		{text: `{"old_str": "  x\t\r\n "}`, want: map[string]string{"old_str": "  x\t\r\n "}},
		{text: `{"view_range": [1, 40], "concise": true, "insert_line": 12}`,
			want: map[string]string{"view_range": "[1, 40]", "concise": "true", "insert_line": "12"}},
		{text: `{"a": {"b": "<c>"}, "big": 12345678901234567890}`,
			want: map[string]string{"a": `{"b": "<c>"}`, "big": "12345678901234567890"}},
		{text: `{"path": null}`, want: map[string]string{}},
		{text: `{"a": "1", "a": "2"}`, want: map[string]string{"a": "2"}},
		{text: ` {} `, want: map[string]string{}},
		{text: ``, want: map[string]string{}},
		{text: `null`, wrong: "expected a JSON object"},
		{text: `[1]`, wrong: "got a JSON array"},
		{text: `"{\"cmd\": \"ls\"}"`, wrong: "got a JSON string"},
		{text: `7`, wrong: "got a JSON number"},
		{text: `{"cmd": "ls"`, wrong: "unexpected end of JSON"},
		{text: "{\n  \"cmd\": ls\n}", wrong: "line 2, column 10"},
		{text: `{"cmd": "ls"} {"cmd": "pwd"}`, wrong: "unexpected text after"},
		{text: `{"cmd": "ls"}}`, wrong: "unexpected text after"},
		{text: strings.Repeat(`{"a":`, 100_000), wrong: "depth"},
	}
	for _, tt := range tests {
		got, wrong := parseArguments(tt.text)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%.40q (-want +got):\n%s", tt.text, diff)
		}
		if (tt.wrong != "") != (wrong != "") || !strings.Contains(wrong, tt.wrong) {
			t.Errorf("%.40q is wrong because %q, want %q", tt.text, wrong, tt.wrong)
		}
	}
}

// A server without a tool parser leaves calls in the text.
func TestHermesCallInText(t *testing.T) {
	t.Parallel()
	const ls = `<tool_call>
{"name": "execute_bash", "arguments": {"cmd": "ls"}}
</tool_call>`
	for _, tt := range []struct {
		text, cmd, note string
		problem         Problem
	}{
		{text: "Look first.\n" + ls, cmd: "ls"},
		{text: `<tool_call>{"name": "execute_bash", "arguments": "{\"cmd\": \"ls\"}"}</tool_call>`, cmd: "ls"},
		{text: "<think>\nor <tool_call>{}</tool_call>?\n</think>\n" + ls, cmd: "ls"},
		{text: ls + ls, cmd: "ls", note: "1 ignored"},
		{text: `<tool_call>{"name": "execute_bash", "arguments": {"cmd": "ls}}</tool_call>`, problem: ProblemArguments},
		{text: `<tool_call>execute_bash ls</tool_call>`, problem: ProblemNoCall},
		{text: "<think>" + ls + "</think>", problem: ProblemNoCall},
	} {
		got := (Native{}).Parse(Reply{Message: Message{Content: tt.text}})
		problem, cmd := got.Problem, ""
		if len(got.Actions) > 0 {
			problem, cmd = got.Actions[0].Problem, got.Actions[0].Call.Args["cmd"]
		}
		if problem != tt.problem || cmd != tt.cmd || !strings.Contains(got.Note, tt.note) {
			t.Errorf("%q: %q runs %q and notes %q", tt.text, problem, cmd, got.Note)
		}
	}
}

func TestTruncatedNativeCall(t *testing.T) {
	t.Parallel()
	for _, arguments := range []string{"", `{"cmd": "cat <<`} {
		r := Reply{FinishReason: finishLength, Message: Message{ToolCalls: []ToolCall{{ID: "a", Name: "execute_bash",
			Arguments: arguments}}}}
		if got := (Native{}).Parse(r); got.Actions[0].Problem != ProblemTruncated {
			t.Errorf("%q: %q", arguments, got.Actions[0].Problem)
		}
	}
}

// Observations that are sent as a user message are put inside the tag. Answers to native calls are not.
func TestAnswerWithinATag(t *testing.T) {
	t.Parallel()
	native := Message{Role: RoleAssistant, ToolCalls: []ToolCall{{ID: "a", Name: "search"}}}
	for _, c := range []struct {
		reply  Message
		bodies []string
		tag    string
		want   string
	}{
		{Message{Role: RoleAssistant}, []string{"one", "two"}, "", "one\n\ntwo"},
		{Message{Role: RoleAssistant}, []string{"one"}, "tool_response", "<tool_response>\none\n</tool_response>"},
		{native, []string{"one"}, "tool_response", "one"},
	} {
		got := answer(c.reply, c.bodies, c.tag)
		if len(got) != 1 || got[0].Content != c.want {
			t.Errorf("%v: %q, want %q", c.bodies, got, c.want)
		}
	}
}
