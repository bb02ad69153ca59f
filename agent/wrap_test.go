package agent

import "testing"

// Observations that go as a user's message stand within the tag; answers to native calls do not.
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
