package agentcmd

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/muesli/termenv"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/tools"
)

func TestWithoutBinary(t *testing.T) {
	t.Parallel()
	patch := "diff --git a/i.png b/i.png\nindex 1..2\nGIT binary patch\nliteral 1\n+cmZ\n\n" +
		"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+GIT binary patch\n"
	got := strings.Join(withoutBinary([]byte(patch)), "\n") + "\n"
	want := strings.ReplaceAll(patch, "GIT binary patch\nliteral 1\n+cmZ\n\n", "Binary file\n")
	if got != want {
		t.Errorf("without the content of binary files:\n%s", got)
	}
}

// An edit is shown in colour, up to a limit, and without control characters.
func TestEditsAreShown(t *testing.T) {
	var out strings.Builder
	on := cli.NewScreenOn(&out, cli.Terminal{})
	s := newScreen(&out, false, on, colours(termenv.ANSI))
	edit := agent.Event{Kind: agent.EventResult, Step: 1, Result: &tools.Result{Output: "all of it\x1b[2J"},
		Call: &tools.Call{Name: "file_editor", Args: map[string]string{
			"command": "str_replace", "old_str": "a\x1b[2J\n", "new_str": strings.Repeat("b\n", 30)}}}
	s.show(edit)
	if strings.Contains(out.String(), "+b") {
		t.Errorf("a pipe is shown\n%s", &out)
	}
	s.verbose = true
	s.show(edit)
	text := out.String()
	if strings.Count(text, "\x1b[32m+b") != 30 || !strings.Contains(text, "\x1b[31m-a·[2J") ||
		!strings.Contains(text, "all of it·[2J") {
		t.Errorf("shown\n%q", text)
	}
	// An edit that the user was asked about has been shown already.
	out.Reset()
	s.show(question{Call: edit.Call})
	s.show(edit)
	if got := strings.Count(out.String(), "\x1b[32m+b"); got != 30 {
		t.Errorf("after a question, %d lines are shown\n%q", got, &out)
	}
	s.show(edit)
	if got := strings.Count(out.String(), "\x1b[32m+b"); got != 60 {
		t.Errorf("the next edit, of the same text, is not shown: %d lines", got)
	}
}

// The user's answer runs the call, refuses it, or is given to the model as its result. Without an answer, the rollout
// ends.
func TestConfirm(t *testing.T) {
	t.Parallel()
	w := &jsonWatcher{cli.NewJSONLines(&strings.Builder{})}
	s := &solving{watch: w, questions: questions{in: strings.NewReader("\nY\nno\nuse make instead\n")}}
	run := tools.Call{Name: "execute_bash", Args: map[string]string{"cmd": "ls"}}
	for _, want := range []string{"", "", "The user does not want", "use make instead"} {
		got, err := s.confirmCall(t.Context(), run)
		if err != nil || (want == "") != (got == "") || !strings.HasPrefix(got, want) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	if _, err := s.confirmCall(t.Context(), run); !errors.Is(err, errNoAnswer) {
		t.Errorf("after the last answer: %v", err)
	}
	view := tools.Call{Name: "file_editor", Args: map[string]string{"command": "view"}}
	if got, err := s.confirmCall(context.Background(), view); got != "" || err != nil {
		t.Errorf("a view is asked about: %q, %v", got, err)
	}
}
