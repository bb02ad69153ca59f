package examples

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env"
	"deepswe/env/testkit"
	"deepswe/verify/rank/judge"
	"deepswe/verify/rank/ranking"
)

// trajectoryOf is an event log with one step.
func trajectoryOf(thought string) string {
	return `{"seq":1,"time":"2025-07-02T00:00:00Z","kind":"header","header":{"version":1,"agent":"deepswe"}}` + "\n" +
		`{"seq":2,"time":"2025-07-02T00:00:00Z","kind":"message","message":{"role":"user","content":"Fix it."}}` + "\n" +
		`{"seq":3,"time":"2025-07-02T00:00:00Z","kind":"reply","reply":{"message":{"role":"assistant","content":"` + thought +
		`\n\n<function=finish>\n</function>"}}}` + "\n"
}

// candidateAt is an attempt that changes a number. solved is nil if the truth is unknown.
func candidateAt(t *testing.T, id, number int, solved *bool) ranking.Entry {
	dir := t.TempDir()
	return ranking.Entry{
		ID: id, Solved: solved, Patch: []byte(fmt.Sprintf("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-0\n+%d\n", number)),
		Trajectory: testkit.WriteFile(t, filepath.Join(dir, "trajectory.json"), trajectoryOf("I think.")),
	}
}

func write(t *testing.T, s *ranking.Source, o Options) ([]Example, Report) {
	t.Helper()
	var err error
	if o.Pack, err = judge.Builtin(); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	rep, err := Write(t.Context(), &b, s, o)
	if err != nil {
		t.Fatal(err)
	}
	var all []Example
	for line := range strings.Lines(b.String()) {
		var e Example
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all, rep
}

// As many solved as unsolved candidates become examples. Everything else is left out and counted.
func TestWrite(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	long := candidateAt(t, 9, 9, &yes)
	long.Patch = []byte("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-0\n+" + strings.Repeat("x", 300000) + "\n")
	blind := candidateAt(t, 8, 8, &yes)
	blind.Trajectory = ""
	broken := candidateAt(t, 10, 10, &yes)
	testkit.WriteFile(t, broken.Trajectory, "{")
	s := &ranking.Source{Path: "run", Tasks: []ranking.Set{
		{Task: "mixed", Entries: []ranking.Entry{
			candidateAt(t, 0, 1, &yes), candidateAt(t, 1, 2, &no), candidateAt(t, 2, 3, &no), candidateAt(t, 3, 1, &yes),
			candidateAt(t, 4, 4, nil), {ID: 5, Solved: &no}, candidateAt(t, 6, 5, &yes), candidateAt(t, 7, 5, &no),
			blind, long, broken,
		}},
		{Task: "solved by all", Entries: []ranking.Entry{candidateAt(t, 0, 1, &yes)}},
		{Task: "of an evaluation set", Entries: []ranking.Entry{candidateAt(t, 0, 1, &yes), candidateAt(t, 1, 2, &no)}},
		{Task: "unknown", Entries: []ranking.Entry{candidateAt(t, 0, 1, &yes)}},
	}}
	o := Options{Tasks: map[string]env.Task{}}
	for _, id := range []string{"mixed", "solved by all", "of an evaluation set"} {
		o.Tasks[id] = env.Task{ID: id, Statement: "The statement of " + id + "."}
	}
	o.Held.Add(env.Task{ID: "of an evaluation set"})
	all, rep := write(t, s, o)
	want := Report{
		Tasks: 1, Examples: 2, HeldOut: 1, Unknown: 1, OneSided: 1, Untold: 1, Empty: 1, Twice: 2, Contradicted: 1, Blind: 2,
		TooLong: 1, Unmatched: 1,
	}
	if diff := cmp.Diff(want, rep); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	labels := map[string]int{}
	for _, e := range all {
		labels[e.Label]++
		last := e.Messages[len(e.Messages)-1]
		if e.Task != "mixed" || e.Run != "run" || len(e.Messages) != 3 || last.Role != "assistant" || last.Weight != 1 ||
			last.Content != "<judgement>"+e.Label+"</judgement>" || (e.Label == "YES") != (e.Attempt == 0) {
			t.Errorf("%+v", e)
		}
		if user := e.Messages[1]; !strings.Contains(user.Content, "The statement of mixed.") || user.Weight != 0 ||
			!strings.Contains(user.Content, "[ASSISTANT]\nI think.") || !strings.Contains(user.Content, "[PATCH]\n--- a/x") {
			t.Errorf("%s", user.Content)
		}
	}
	if labels["YES"] != 1 || labels["NO"] != 1 {
		t.Errorf("labels %v", labels)
	}
	if again, _ := write(t, s, o); cmp.Diff(all, again) != "" {
		t.Error("the same candidates gave other examples")
	}
}

func TestHeldOut(t *testing.T) {
	t.Parallel()
	var h HeldOut
	h.Add(env.Task{ID: "mine-1", Statement: "It breaks\non Mondays."})
	h.Add(env.Task{ID: "mine-2"})
	for name, tc := range map[string]struct {
		task env.Task
		want bool
	}{
		"the id":                   {env.Task{ID: "mine-1"}, true},
		"what the issue says":      {env.Task{ID: "x", Statement: "it breaks on  Mondays."}, true},
		"another":                  {env.Task{ID: "x", Statement: "It breaks on Tuesdays.", Repo: "owner/name"}, false},
		"no statement":             {env.Task{ID: "x"}, false},
		"SWE-bench's repository":   {env.Task{ID: "x", Repo: "django/django"}, true},
		"its name alone":           {env.Task{ID: "x", Repo: "sympy"}, true},
		"a copy":                   {env.Task{ID: "x", Repo: "swesmith/sympy__sympy.2ab64612"}, true},
		"known by the task's id":   {env.Task{ID: "scikit-learn__scikit-learn-10297"}, true},
		"a copy, by the task's id": {env.Task{ID: "pydata__xarray.7c4e2ac8.func_basic__1"}, true},
		"of a longer name":         {env.Task{ID: "x", Repo: "django/django-oscar"}, false},
	} {
		if got := h.Has(tc.task); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
