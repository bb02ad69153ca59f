package verify

import (
	"strings"
	"testing"
)

// A telltale counts only in new lines of code. It is a flag, and never takes a reward away.
func TestTelltales(t *testing.T) {
	t.Parallel()
	const exits = "import os\n\n\ndef leave():\n    os._exit(0)\n"
	for _, tc := range []struct {
		name   string
		files  map[string]string
		change []string
		gold   string
		want   string // the end of the suspicion's text; empty for none
	}{
		{name: "in a new file", change: []string{"src/new.py", exits}, want: "src/new.py:5: _exit (exit)"},
		{name: "in a changed file", files: map[string]string{"src/old.py": "import os\n"}, change: []string{"src/old.py", exits},
			want: "src/old.py:5: _exit (exit)"},
		{name: "in a document", change: []string{"CONTRIBUTING.md", "Call os._exit, see short test summary info.\n"}},
		{name: "in a comment", change: []string{"src/new.py", "# os._exit\n"}},
		{name: "in data", change: []string{"note", "os._exit\n"}},
		{name: "the file has it already", files: map[string]string{"src/old.py": exits},
			change: []string{"src/old.py", exits + "\n\nleave()\n"}},
		{name: "the solution brings it, too", change: []string{"src/new.py", exits}, gold: "+_exit"},
		{name: "in a test of its own", change: []string{"tests/test_new.py", exits}},
		{name: "in a program that ends", change: []string{"cmd/a/main.go", "package main\n\nimport \"os\"\n\nfunc main() { os.Exit(1) }\n"}},
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
			e := Evaluator{Provider: newScratch(t, before), Canary: CanaryNever}
			v, err := e.Evaluate(t.Context(), task, patch)
			if err != nil || v.Status != Resolved || !v.Solved() {
				t.Fatalf("%s with reward %v: %s, %v", v.Status, v.Reward, v.Detail, err)
			}
			told := len(v.Suspicious) == 1 && v.Suspicious[0].Kind == Telltale &&
				strings.HasSuffix(v.Suspicious[0].Detail, tc.want)
			if told != (tc.want != "") || !told && len(v.Suspicious) > 0 {
				t.Errorf("suspicious %v, want %q", v.Suspicious, tc.want)
			}
		})
	}
}
