package compare

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/env/testkit"
	"deepswe/verify"
)

// played is a run of eval: for each task, whether each attempt solved it (1), did not (0), or failed (x).
type played struct {
	model, flags, grader string
	tasks                []string
	keys                 string
}

// write writes the run and reads it.
func (p played) write(t *testing.T, name string) *Run {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	settings := `{"flags":{"max-steps":"100"` + p.flags + `}}`
	d, err := run.Create(dir, run.Manifest{Kind: run.Eval, Settings: []byte(settings)})
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for i, attempts := range p.tasks {
		id := fmt.Sprintf("org__repo-%d", i)
		kept = append(kept, fmt.Sprintf(`{"id":%q,"key":"%s%d"}`, id, p.keys, i))
		for k, result := range attempts {
			o := run.Outcome{Job: run.Job{Task: id, Group: id, Index: k}, Tries: 1}
			o.StopReason, o.Times.Total = agent.Submitted, 10
			o.Detail = []byte(`{"steps":4,"tokens":{"prompt":900,"completion":100}}`)
			switch result {
			case 'x':
				o.Err = "no sandbox"
			default:
				o.Reward = new(float64(result - '0'))
			}
			if err := d.Record(o); err != nil {
				t.Fatal(err)
			}
			at, err := d.Attempt(o.Job)
			if err != nil {
				t.Fatal(err)
			}
			e := verify.Evaluation{Task: id, Grader: p.grader}
			path := testkit.WriteFile(t, filepath.Join(at, "grade", verify.EvaluationFile), "")
			if err := disk.WriteJSON(path, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	testkit.WriteFile(t, d.Path("tasks.json"), `{"version":1,"tasks":[`+strings.Join(kept, ",")+`]}`)
	testkit.WriteFile(t, d.Path("model.json"), `{"version":1,"name":"`+p.model+`"}`)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCompare(t *testing.T) {
	t.Parallel()
	a := played{model: "Qwen3-8B", tasks: []string{"11", "10", "01", "00", "0x", "xx"}}.write(t, "a")
	b := played{model: "org/Coder-32b-it", tasks: []string{"11", "00", "11", "01", "11", "11"}}.write(t, "b")
	b.Price = func(u agent.Usage) float64 { return float64(u.Prompt+u.Completion) / 1e3 }
	rep, err := Compare([]*Run{a, b}, false)
	if err != nil {
		t.Fatal(err)
	}
	p := rep.Pairs[0]
	if rep.Tasks != 5 || !slices.Equal(rep.LeftOut, []string{"org__repo-5"}) || p.Both != 1 || p.Neither != 1 ||
		!slices.Equal(p.OnlyA, []string{"org__repo-1"}) || !slices.Equal(p.OnlyB, []string{"org__repo-2", "org__repo-4"}) {
		t.Errorf("%+v", rep)
	}
	if p.P != mcNemar(1, 2) || fmt.Sprintf("%.3f", p.Difference) != "0.300" || p.Low >= .3 || p.High <= .3 {
		t.Errorf("%+v", p)
	}
	x, y := rep.Runs[0], rep.Runs[1]
	if x.Size != 8 || y.Size != 32 || x.Attempts != 9 || *x.Tokens != 9000.0/4 || *x.Seconds != 90.0/4 || x.Cost != nil ||
		*y.Cost != 10.0/7 || y.Stops["submitted"] != 10 || x.Solved != 2 {
		t.Errorf("%+v\n%+v", x, y)
	}
	var page strings.Builder
	if err := rep.Page().Write(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"30.0 points", "<svg", "org__repo-4", "by model size"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page does not have %q", want)
		}
	}
}

// Runs that measure different things are refused, and the error says what differs.
func TestNotComparable(t *testing.T) {
	t.Parallel()
	a := played{tasks: []string{"1", "0"}, grader: "rules.1"}.write(t, "a")
	two := []string{"1", "0"}
	for want, other := range map[string]played{
		"b has tasks that a has not: org__repo-2":           {tasks: []string{"1", "0", "1"}, grader: "rules.1"},
		"a has tasks that b has not: org__repo-1":           {tasks: []string{"1"}, grader: "rules.1"},
		"a was graded by rules.1, and b by rules.2":         {tasks: []string{"1", "0"}, grader: "rules.2", keys: "other"},
		"a has --context unset, and b has 32768":            {tasks: two, grader: "rules.1", flags: `,"context":"32768"`},
		"not the same in a and b: org__repo-0, org__repo-1": {tasks: []string{"1", "0"}, grader: "rules.1", keys: "other"},
		"a has --evidence unset, and b has outside":         {tasks: two, grader: "rules.1", flags: `,"evidence":"outside"`},
	} {
		b := other.write(t, "b")
		_, err := Compare([]*Run{a, b}, false)
		refused, ok := errors.AsType[*NotComparableError](err)
		if !ok || len(refused.Differences) != 1 || !strings.HasSuffix(refused.Differences[0], want) {
			t.Errorf("%v, want %q", err, want)
		}
		rep, err := Compare([]*Run{a, b}, true)
		if err != nil || len(rep.Differences) != 1 {
			t.Errorf("anyway: %+v, %v", rep, err)
		}
	}
	b := played{tasks: two, model: "other", grader: "rules.1"}.write(t, "b")
	if _, err := Compare([]*Run{a, b}, false); err != nil {
		t.Errorf("runs of different models: %v, want them compared", err)
	}
}

// A run of grade counts by the verdicts on its patches, and an empty patch counts as not solved.
func TestGradedRun(t *testing.T) {
	t.Parallel()
	d, err := run.Create(t.TempDir(), run.Manifest{Kind: run.Grade})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Read(d.Path()); err == nil || !strings.Contains(err.Error(), "no verdict yet") {
		t.Errorf("of a run without verdicts: %v", err)
	}
	e := verify.Evaluation{Task: "one", Grader: "rules.1", Status: verify.Resolved, Reward: 1}
	path := testkit.WriteFile(t, d.Path("logs", "run_evaluation", "r1", "m", "one", verify.EvaluationFile), "")
	if err := disk.WriteJSON(path, e); err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, d.Path("m.r1.json"), `{"empty_patch_ids":["two"]}`)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Read(d.Path())
	if err != nil || !r.tasks["one"].first || r.tasks["two"] == nil || r.tasks["two"].Solved != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Read(t.TempDir()); err == nil {
		t.Error("a directory without a run was read")
	}
}

func TestSizeOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]float64{
		"Qwen/Qwen3-32B": 32, "qwen2.5-coder:7b": 7, "Qwen3-0.6B": .6, "Qwen3-30B-A3B": 30, "gpt-4.1": 0,
		"R2E-14B_step20": 14, "": 0, "my-1b2": 0,
	} {
		if got := sizeOf(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
