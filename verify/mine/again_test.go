package mine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"deepswe/agent/run"
	"deepswe/env"
	history "deepswe/env/mine"
)

// judgements are those of one candidate, in the order of the runs.
func judgements(t *testing.T, m *Miner, all ...Judged) {
	t.Helper()
	for i, j := range all {
		detail, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		job := run.Job{Task: "a", Group: runsGroup("a"), Index: i}
		if err := m.Dir.Record(run.Outcome{Job: job, Result: run.Result{Detail: detail}}); err != nil {
			t.Fatal(err)
		}
	}
}

// A candidate is judged again with other settings, or when the user says so, if that may make a task of it.
func TestJob(t *testing.T) {
	t.Parallel()
	task := Judged{Task: env.Task{ID: "a"}}
	image, slow := &Miner{Builder: history.Builder{Image: "x"}}, &Miner{Builder: history.Builder{TestTimeout: time.Hour}}
	setup, again, none := &Miner{Setup: []string{"make"}}, &Miner{Again: true}, &Miner{}
	with := func(m *Miner, why history.Reason) Judged { return Judged{Reason: why, With: m.settings()} }
	for name, c := range map[string]struct {
		before []Judged
		by     *Miner
		want   int
	}{
		"never judged":             {nil, none, 0},
		"judged":                   {[]Judged{with(none, NeverRuns)}, none, 0},
		"another image":            {[]Judged{with(none, NeverRuns)}, image, 1},
		"another set-up":           {[]Judged{with(none, Exposed)}, setup, 1},
		"another limit":            {[]Judged{with(none, TooSlow)}, slow, 1},
		"the user says so":         {[]Judged{with(none, history.NoRunner)}, again, 1},
		"something was skipped":    {[]Judged{{Reason: NoFailure, Again: true, With: none.settings()}}, image, 1},
		"no failure":               {[]Judged{with(none, NoFailure)}, image, 0},
		"a task":                   {[]Judged{task}, again, 0},
		"a task with an image":     {[]Judged{with(none, NeverRuns), task}, none, 1},
		"as the first time":        {[]Judged{with(none, NeverRuns), with(image, NeverRuns)}, none, 0},
		"as the second time":       {[]Judged{with(none, NeverRuns), with(image, NeverRuns)}, image, 1},
		"again as the second time": {[]Judged{with(none, NeverRuns), with(none, NeverRuns)}, none, 1},
	} {
		dir, err := Folder{t.TempDir()}.Open("deepswe")
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		c.by.Dir = dir
		judgements(t, c.by, c.before...)
		if got := c.by.job("a"); got.Index != c.want {
			t.Errorf("%s: attempt %d, want %d", name, got.Index, c.want)
		}
	}
}

// Texts of issues are kept for later runs.
func TestFolderIssues(t *testing.T) {
	t.Parallel()
	f := Folder{t.TempDir()}
	if issues, err := f.Issues(""); err != nil || issues != nil {
		t.Fatalf("%v, %v", issues, err)
	}
	dir, err := f.Open("deepswe")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	file := filepath.Join(t.TempDir(), "issues")
	if err := os.WriteFile(file, []byte(`[{"number": 7, "title": "Nine", "body": "One is lost."}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, ""} {
		issues, err := f.Issues(name)
		if text := issues.Text(history.Commit{Message: "Fixes #7"}); err != nil || text != "Nine\n\nOne is lost." {
			t.Errorf("%q, %v", text, err)
		}
	}
	if _, err := f.Issues(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there has no texts")
	}
}
