package swe

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/verify"
)

// Wrong solutions measure how good a task's tests are. The tests of "half" check only one of the two lines.
func TestMutationScore(t *testing.T) {
	t.Parallel()
	half, whole, none := numberTask("half"), numberTask("whole"), numberTask("none")
	half.Tests.GoldPatch = "--- /dev/null\n+++ b/n.sh\n@@ -0,0 +1,2 @@\n+x=7\n+y=3\n"
	half.Tests.Script = strings.Replace(half.Tests.Script, "if [ \"$(cat number)\" = 7", ". ./n.sh; if [ \"$x\" = 7", 1)
	whole.Tests.GoldPatch, whole.Tests.Script = half.Tests.GoldPatch, strings.Replace(half.Tests.Script, "$x\" = 7",
		"$x$y\" = 73", 1)
	unsound := half
	unsound.ID, unsound.Tests.Script = "unsound", strings.Replace(half.Tests.Script, "= 7", "= 8", 1)

	dir := t.TempDir()
	e := newEvaluation(t, dir, &guessing{}, 0, whole, half, none, unsound)
	e.Mutants = 100
	s, err := e.CheckSoundness(t.Context(), Watch{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*MutationScore{}
	for _, r := range s.Results {
		if r.Mutation != nil {
			got[r.Task] = r.Mutation
		}
	}
	want := map[string]*MutationScore{
		"whole": {Mutants: 6, Killed: 6, Score: 1, Survivors: []string{}},
		"half": {Mutants: 6, Killed: 3, Score: 0.5, Survivors: []string{
			"n.sh:2\n-y=3\n+y=4\n", "n.sh:2\n-y=3\n+:\n", "n.sh:2\n-y=3\n+y=2\n",
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if weak := s.WeakestTests(); len(weak) != 1 || weak[0].Task != "half" {
		t.Errorf("weakest tests: %v", weak)
	}
	if diff := cmp.Diff(map[string]float64{"whole": 1, "half": 0.5}, s.MutationScores()); diff != "" {
		t.Error(diff)
	}

	// Mutants that were run are not run again.
	began := 0
	again, err := e.CheckSoundness(t.Context(), Watch{Observe: func(ev run.Event) {
		if ev.Kind == run.Started {
			began++
		}
	}})
	if err != nil || began > 0 {
		t.Errorf("%d jobs began again: %v", began, err)
	}
	if diff := cmp.Diff(s, again); diff != "" {
		t.Error(diff)
	}
}

// An infrastructure failure is no result: the mutant counts neither as killed nor as a survivor.
func TestMutationScoreFailures(t *testing.T) {
	t.Parallel()
	task := numberTask("a")
	task.Tests.GoldPatch = "--- /dev/null\n+++ b/n.sh\n@@ -0,0 +1,2 @@\n+x=7\n+y=3\n"
	task.Tests.Script = strings.Replace(task.Tests.Script, "if [ \"$(cat number)\" = 7", ". ./n.sh; if [ \"$x\" = 7", 1)
	e := newEvaluation(t, t.TempDir(), &guessing{}, 0, task)
	e.Mutants = 4
	broken := errors.New("the registry is on fire")
	s, err := e.CheckSoundness(t.Context(), Watch{Begin: func(part string, _ []run.Job) {
		if part == mutantTests {
			e.Evaluator.Provider = failing{e.Evaluator.Provider, broken}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := &MutationScore{Failed: 4, Survivors: []string{}}
	if diff := cmp.Diff(want, s.Results[0].Mutation); diff != "" || len(s.MutationScores()) > 0 {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A mutant that is not a valid program says nothing about the tests.
func TestInvalidMutants(t *testing.T) {
	t.Parallel()
	for log, want := range map[string]bool{
		"./a.go:3:2: declared and not used: x\nFAIL\texample.com/a [build failed]\n": true,
		"E     File \"a.py\", line 3\nE   SyntaxError: invalid syntax\n":             true,
		"awk: program.awk: line 3: syntax error at or near )\n":                      true,
		"program.sh: 3: Syntax error: \"fi\" unexpected\n":                           true,
		"E   ValueError: 3\n": false,
		"":                    false,
	} {
		if got := invalid(verify.Evaluation{Status: verify.Unresolved, Log: []byte(log)}); got != want {
			t.Errorf("%q: got %v, want %v", log, got, want)
		}
		some := verify.Evaluation{Status: verify.Unresolved, Log: []byte(log), Fixed: []string{"test"}}
		if invalid(some) {
			t.Errorf("%q: invalid, though some tests pass", log)
		}
	}
}

// failing is a provider that cannot start a sandbox.
type failing struct {
	env.Provider
	err error
}

func (p failing) Start(context.Context, env.Spec) (env.Sandbox, error) { return nil, p.err }
