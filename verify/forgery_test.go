package verify

import (
	"strings"
	"testing"
)

// An indicator of forgery counts against a patch only where the code did not have it before.
func TestForgeryIndicators(t *testing.T) {
	t.Parallel()
	forging := "42\n# os._exit\n"
	for _, tc := range []struct {
		name   string
		files  map[string]string
		change []string
		gold   string
		reward float64
	}{
		{name: "new in the code", change: []string{"note", forging}},
		{name: "in a new file", change: []string{"src/new.py", "import os\nos._exit(0)\n"}},
		{name: "the file has it already", files: map[string]string{"note": "os._exit was here\n"},
			change: []string{"note", forging}, reward: 1},
		{name: "other code has it", files: map[string]string{"src/main.py": "os._exit(1)\n"},
			change: []string{"note", forging}, reward: 1},
		{name: "only tests have it", files: map[string]string{"tests/test_exit.py": "os._exit(1)\n"},
			change: []string{"note", forging}},
		{name: "the solution brings it, too", change: []string{"note", forging}, gold: "+os._exit", reward: 1},
		{name: "in a test of its own", change: []string{"tests/test_new.py", "import os\nos._exit(0)\n"}, reward: 1},
		{name: "as a binary patch", files: map[string]string{"blob": "\x00\x01"},
			change: []string{"blob", "\x00os._exit(0)"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			before := with(wrongAnswer)
			for name, content := range tc.files {
				before[name] = content
			}
			task := wrongAnswerTask()
			task.Tests.GoldPatch = tc.gold
			patch := gitDiff(t, before, with(before, append(tc.change, "answer", "42\n")...))
			e := Evaluator{Provider: newScratch(t, before)}
			v, err := e.Evaluate(t.Context(), task, patch)
			if err != nil || v.Status != Resolved || v.Reward != tc.reward {
				t.Fatalf("%s with reward %v, want %v: %s, %v", v.Status, v.Reward, tc.reward, v.Detail, err)
			}
			told := len(v.Suspicious) > 0 && v.Suspicious[0].Kind == ForgeryIndicator &&
				strings.HasSuffix(v.Suspicious[0].Detail, "os._exit")
			if told != (tc.reward == 0) {
				t.Errorf("suspicious %v", v.Suspicious)
			}
		})
	}
}
