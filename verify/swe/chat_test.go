package swe

import (
	"fmt"
	"testing"

	"deepswe/agent/trajectory"
)

func TestChat(t *testing.T) {
	t.Parallel()
	one := func(role, text string) trajectory.Message { return trajectory.Message{Role: role, Content: text} }
	said := one(trajectory.RoleAssistant, "<a>")
	rec := &trajectory.Recording{
		Messages: []trajectory.Message{
			one(trajectory.RoleSystem, "s"), one(trajectory.RoleUser, "u"), said, one(trajectory.RoleUser, "no"), said,
		},
		Turns: []trajectory.Turn{
			{Reply: trajectory.Reply{Message: said, Problem: "no call"}},
			{Reply: trajectory.Reply{Message: said, Calls: []trajectory.Call{{}}}},
		},
	}
	want := `[{"role":"system","content":"s"} {"role":"user","content":"u"} ` +
		`{"role":"assistant","content":"<a>","format_error":true} {"role":"user","content":"no"} ` +
		`{"role":"assistant","content":"<a>"}]`
	if got := fmt.Sprintf("%s", Chat(rec)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	shortened := *rec
	shortened.Compactions = []trajectory.Compaction{{}}
	native := *rec
	native.Messages = append(native.Messages, one(trajectory.RoleTool, "answer"))
	for name, rec := range map[string]*trajectory.Recording{"shortened": &shortened, "native calls": &native} {
		if got := Chat(rec); got != nil {
			t.Errorf("%s: %s", name, got)
		}
	}
}
