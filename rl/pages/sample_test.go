package pages

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/testkit"
	"deepswe/verify"
	"deepswe/verify/harness"
	"deepswe/verify/rank"
	"deepswe/verify/rank/judge"
	"deepswe/verify/rank/ranking"
	"deepswe/verify/swe"
)

// sample describes a run of eval, which a test writes with the code that writes real ones.
type sample struct {
	model    string
	tasks, k int
	// skill is the probability that an attempt solves its task.
	skill float64
	flags string
	// hostile is added to every text that a model or a repository writes.
	hostile string
	// context is a second context length for all tasks; 0 for none.
	context int
	open    bool     // the run has not ended
	kind    run.Kind // empty for one of eval
	// length is the number of steps of an attempt; 0 for a random one.
	length int
	// long is the number of characters of an observation, cut from source; 0 for a short line.
	long   int
	source string
}

const samplePatch = `diff --git a/src/relativedelta.py b/src/relativedelta.py
--- a/src/relativedelta.py
+++ b/src/relativedelta.py
@@ -12,7 +12,9 @@ class Delta:
     def months(self, other):
         """Return whole months between two dates."""
-        return other.month - self.month
+        # December of the year before counts, too.
+        years = other.year - self.year
+        return 12 * years + other.month - self.month
 
     def days(self, other):
`

// sampleLooks are the steps before the edit, with their outputs.
var sampleLooks = []struct{ thought, cmd, out string }{
	{"I look for the code that computes months.", "grep -rn months --include=*.py src",
		"src/relativedelta.py:12:    def months(self, other):"},
	{"How is it called?", "grep -rn 'months(' tests | head", "tests/test_delta.py:31:    assert d.months(e) == 1"},
	{"I reproduce the issue before I change anything.", "python /tmp/reproduce.py", "-11"},
	{"Is there a helper that knows the year?", "sed -n 1,40p src/calendar_tools.py", "def whole_years(a, b):\n    ..."},
}

var sampleRepos = []string{"django__django", "sympy__sympy", "astropy__astropy", "pytest-dev__pytest", "psf__requests"}

// write writes the run.
func (s sample) write(t testing.TB, dir string) string {
	t.Helper()
	random := rand.New(rand.NewPCG(7, uint64(len(s.model))))
	settings := `{"flags":{"tasks":"verified.jsonl","model":"` + s.model + `"` + s.flags + `},"given":[]}`
	created := time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC).Add(time.Duration(len(s.model)) * time.Hour)
	m := run.Manifest{Kind: cmp.Or(s.kind, run.Eval), Program: "deepswe 1", Settings: []byte(settings), Created: created}
	d, err := run.Create(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	var ids []string
	for i := range s.tasks {
		id := sampleTask(i)
		ids = append(ids, id)
		kept = append(kept, fmt.Sprintf(`{"id":%q,"key":"k%d"}`, id, i))
	}
	for _, id := range ids {
		for i := range s.k {
			s.attempt(t, d, run.Job{Task: id, Group: id, Index: i}, random)
			if s.context > 0 {
				s.attempt(t, d, run.Job{Task: id, Group: fmt.Sprintf("%s@context=%d", id, s.context), Index: i}, random)
			}
		}
	}
	testkit.WriteFile(t, d.Path("tasks.json"), `{"version":1,"tasks":[`+strings.Join(kept, ",")+`]}`)
	testkit.WriteFile(t, d.Path("model.json"), `{"version":1,"name":"`+s.model+`"}`)
	if !s.open {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	} else if tb, ok := t.(*testing.T); ok {
		tb.Cleanup(func() { _ = d.Close() })
	}
	return dir
}

// rank writes a ranking of two candidates for each task, inside the run and in a directory of its own.
func (s sample) rank(t testing.TB, dir, alone string) {
	t.Helper()
	rep := ranking.Report{Type: "ranking", Version: 1, Run: dir, Verifier: "hybrid", Notes: []string{}}
	why := "passes 2 of 2 regression tests, and has the better score" + s.hostile
	for i := range s.tasks {
		one := func(attempt int, score float64, solved bool, why string) ranking.CandidateReport {
			return ranking.CandidateReport{
				Attempt: attempt, Name: fmt.Sprintf("#%d", attempt), Patch: "aabbccddee", Solved: &solved, Reason: why,
				Judgement: &judge.Judgement{Score: &score}, Tests: &rank.Tests{Regression: 2 - attempt, Reproduction: 1},
			}
		}
		rep.Results = append(rep.Results, ranking.TaskReport{
			Task: sampleTask(i), Chosen: new(0), Reason: why,
			Candidates: []ranking.CandidateReport{
				one(0, .912, true, why), one(1, .407, false, "fails a regression test"),
			},
		})
	}
	rep.Tasks, rep.Candidates, rep.Distinct, rep.Chosen, rep.Truth = s.tasks, 2*s.tasks, s.tasks, s.tasks, 2*s.tasks
	rep.ChosenSolved = s.tasks
	for _, at := range []string{filepath.Join(dir, "rank"), alone} {
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := disk.WriteJSON(filepath.Join(at, ranking.ReportFile), rep); err != nil {
			t.Fatal(err)
		}
	}
}

func sampleTask(i int) string {
	return fmt.Sprintf("%s-%d", sampleRepos[i%len(sampleRepos)], 11000+137*i)
}

// attempt writes the files of an attempt, and its outcome.
func (s sample) attempt(t testing.TB, d *run.Dir, j run.Job, random *rand.Rand) {
	t.Helper()
	at, err := d.Attempt(j)
	if err != nil {
		t.Fatal(err)
	}
	good := random.Float64() < s.skill
	steps := cmp.Or(s.length, 6+random.IntN(20))
	stop := trajectory.Submitted
	if !good && random.IntN(3) == 0 {
		stop = trajectory.MaxContext
	}
	read, written := s.steps(t, at, j, steps, stop, random)
	testkit.WriteFile(t, filepath.Join(at, attempt.PatchFile), samplePatch)
	summary := attempt.Summary{Task: j.Task, StopReason: stop, Steps: steps, Files: []string{"src/relativedelta.py"}}
	if err := disk.WriteJSON(filepath.Join(at, attempt.ReportFile), summary); err != nil {
		t.Fatal(err)
	}
	task := env.Task{ID: j.Task, Tests: env.Tests{
		FailToPass: []string{"tests/test_delta.py::test_december"},
		PassToPass: []string{"tests/test_delta.py::test_days", "tests/test_delta.py::test_months"}, Script: "pytest",
	}}
	v := verify.Evaluation{
		Task: j.Task, Grader: verify.Grader, Key: "k", Status: verify.Resolved, Reward: 1, Fixed: task.Tests.FailToPass,
		Log: []byte("tests/test_delta.py::test_december PASSED\n" + s.hostile), Seconds: 12,
		Report: &harness.Report{ID: j.Task, Resolved: good, Tests: &harness.TestsStatus{}},
	}
	if !good {
		v.Status, v.Reward, v.Fixed, v.Broken = verify.Unresolved, 0, nil, task.Tests.PassToPass[:1]
		v.Report.Tests.FailToPass.Failure = task.Tests.FailToPass
		v.Report.Tests.PassToPass.Failure = v.Broken
		v.Log = []byte("tests/test_delta.py::test_months PASSED\ntests/test_delta.py::test_december FAILED\n" +
			"E       assert 11 == -1\nFAILED tests/test_delta.py::test_december - assert 11 == -1\n" + s.hostile)
	}
	if err := v.Save(filepath.Join(at, "grade"), task, []byte(samplePatch)); err != nil {
		t.Fatal(err)
	}
	detail, err := disk.MarshalJSON(swe.Detail{
		Status: v.Status, Files: 1, Steps: steps, Tokens: attempt.Tokens{Prompt: read, Completion: written}, Patch: "aa",
	})
	if err != nil {
		t.Fatal(err)
	}
	o := run.Outcome{Job: j, Tries: 1, Result: run.Result{
		Reward: &v.Reward, StopReason: stop, Detail: detail, Times: run.Times{Model: 60, Total: 60 + 100*random.Float64()},
	}}
	if err := d.Record(o); err != nil {
		t.Fatal(err)
	}
}

// steps writes an attempt's event log.
func (s sample) steps(
	t testing.TB, at string, j run.Job, n int, stop agent.StopReason, random *rand.Rand,
) (read, written int) {
	t.Helper()
	log, err := trajectory.Create(filepath.Join(at, attempt.StepsFile))
	if err != nil {
		t.Fatal(err)
	}
	add := func(e trajectory.Event) {
		if err := log.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	add(trajectory.HeaderEvent(trajectory.Header{Agent: "deepswe", Model: s.model, Format: "xml", Task: j.Task}))
	add(trajectory.MessageEvent(trajectory.Message{Role: "system", Content: "You fix issues in repositories."}))
	add(trajectory.MessageEvent(trajectory.Message{Role: "user", Content: "Months between two dates are wrong across a " +
		"year's end.\n\n    >>> Delta(2025, 12).months(Delta(2026, 1))\n    -11\n" + s.hostile}))
	read = 2400
	for i := range n {
		looked := sampleLooks[i%len(sampleLooks)]
		c := trajectory.Call{ID: "1", Name: "execute_bash", Args: map[string]string{"cmd": looked.cmd + s.hostile}}
		out := looked.out
		result := trajectory.Result{CallID: "1", Elapsed: time.Duration(100+random.IntN(4000)) * time.Millisecond}
		thought := looked.thought
		switch {
		case i == n-3:
			thought = "The year is left out. I count twelve months for each year between the dates."
			c = trajectory.Call{ID: "1", Name: "file_editor", Args: map[string]string{
				"command": "str_replace", "path": "/testbed/src/relativedelta.py",
				"old_str": "        \"\"\"Return whole months between two dates.\"\"\"\n        return other.month - self.month\n",
				"new_str": "        \"\"\"Return whole months between two dates.\"\"\"\n        # December of the year before " +
					"counts, too.\n        years = other.year - self.year\n        return 12 * years + other.month - self.month\n"}}
			out = "The file was edited."
		case i == n-2:
			thought = "Now the tests of this module."
			c.Args["cmd"] = "python -m pytest -q tests/test_delta.py"
			out = "3 passed in 0.21s"
		case i == n-1 && stop == trajectory.Submitted:
			c, out, thought = trajectory.Call{ID: "1", Name: "finish"}, "", "Done: months count across years."
		case i%5 == 3:
			code := 1
			result.Failed, result.ExitCode = true, &code
			out = "grep: src: No such file or directory"
		}
		if s.long > 0 {
			from := random.IntN(len(s.source) - s.long)
			out += strings.ToValidUTF8(s.source[from:from+s.long], "")
		}
		result.Output = out + s.hostile
		grown := 180 + random.IntN(900)
		add(trajectory.ReplyEvent(trajectory.Reply{
			Message: trajectory.Message{Role: "assistant", Content: thought + s.hostile}, Calls: []trajectory.Call{c},
			Usage: trajectory.Usage{Prompt: read, Completion: grown}, Elapsed: time.Duration(1+random.IntN(9)) * time.Second,
		}))
		written += grown
		read += grown + 200
		add(trajectory.ObservationEvent(trajectory.Observation{
			Message: trajectory.Message{Role: "user", Content: result.Output}, Results: []trajectory.Result{result},
		}))
	}
	answer := "Months now count the years between two dates." + s.hostile
	add(trajectory.StopEvent(trajectory.Stop{Reason: stop, Answer: answer}))
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return read, written
}

// TestLeaveSample writes runs to look at to the directory in DEEPSWE_SAMPLE.
func TestLeaveSample(t *testing.T) {
	dir := os.Getenv("DEEPSWE_SAMPLE")
	if dir == "" {
		t.Skip("DEEPSWE_SAMPLE names no directory")
	}
	sample{model: "Qwen3-32B", tasks: 30, k: 4, skill: .45}.write(t, filepath.Join(dir, "qwen-32b"))
	sample{model: "Qwen3-8B", tasks: 30, k: 4, skill: .3}.write(t, filepath.Join(dir, "qwen-8b"))
}
