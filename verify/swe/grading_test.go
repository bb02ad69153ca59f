package swe

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/verify"
)

// Grading the same patch several times shows which tests and tasks are flaky.
func TestFlaky(t *testing.T) {
	t.Parallel()
	task := env.Task{ID: "shelf-1", Tests: env.Tests{Parser: "parse_log_pytest", EvalType: "pass_and_fail", Script: "x",
		PassToPass: []string{"t.py::a", "t.py::b"}}}
	ran := func(log string) verify.Evaluation {
		g, err := verify.GradeLog(task, verify.Evidence{Log: []byte(">>>>> Start Test Output\n" + log +
			">>>>> End Test Output\n")})
		if err != nil {
			t.Fatal(err)
		}
		status := verify.Unresolved
		if g.Report.Resolved {
			status = verify.Resolved
		}
		return verify.Evaluation{Status: status, Tests: g.Results}
	}
	good, bad, short := ran("PASSED t.py::a\nPASSED t.py::b\n"), ran("PASSED t.py::a\nFAILED t.py::b\n"),
		ran("PASSED t.py::a\n")
	for _, tc := range []struct {
		name string
		runs []verify.Evaluation
		want []FlakyTask
	}{
		{"steady", []verify.Evaluation{good, good, good}, []FlakyTask{}},
		{"a test that fails at times", []verify.Evaluation{good, bad, good}, []FlakyTask{{
			ID: "shelf-1", Statuses: []verify.Status{verify.Resolved, verify.Unresolved, verify.Resolved},
			Tests: map[string][]string{"t.py::b": {"PASSED", "FAILED", "PASSED"}},
		}}},
		{"a test that is missing at times", []verify.Evaluation{short, bad}, []FlakyTask{{
			ID: "shelf-1", Statuses: []verify.Status{verify.Unresolved, verify.Unresolved},
			Tests: map[string][]string{"t.py::b": {"", "FAILED"}},
		}}},
		{"a run that took too long", []verify.Evaluation{{Status: verify.TimedOut}, {Status: verify.PatchFailed}},
			[]FlakyTask{{
				ID: "shelf-1", Statuses: []verify.Status{verify.TimedOut, verify.PatchFailed}, Tests: map[string][]string{},
			}}},
	} {
		g := Grading{Repeat: len(tc.runs), Candidates: []Candidate{{Task: task}}, results: map[run.Job]verify.Evaluation{}}
		for i, v := range tc.runs {
			g.results[run.Job{Task: task.ID, Group: task.ID, Index: i}] = v
		}
		if diff := cmp.Diff(tc.want, g.flaky().Tasks); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestKs(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][]int{0: nil, 1: {1}, 2: {1, 2}, 3: {1, 2, 3}, 4: {1, 2, 4}, 6: {1, 2, 4, 6},
		16: {1, 2, 4, 8, 16}} {
		if got := ks(n); !slices.Equal(got, want) {
			t.Errorf("ks(%d) = %v, want %v", n, got, want)
		}
	}
}
