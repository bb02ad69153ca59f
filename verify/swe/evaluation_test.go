package swe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/verify"
	"deepswe/verify/harness"
)

// newEvaluation makes an evaluation in a run directory, which may exist already.
func newEvaluation(t *testing.T, dir string, m *guessing, k int, tasks ...env.Task) *Evaluation {
	t.Helper()
	r, _ := setUp(t, m, tasks...)
	e := &Evaluation{K: k, Runner: r, Evaluator: r.Evaluator, Workers: 2, Warm: 1, Log: slog.New(slog.DiscardHandler)}
	for _, task := range tasks {
		e.IDs = append(e.IDs, task.ID)
	}
	var err error
	if run.Exists(dir) {
		e.Dir, err = run.Open(dir, run.Eval)
	} else {
		e.Dir, err = run.Create(dir, run.Manifest{Kind: run.Eval})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Dir.Close(); err != nil {
			t.Error(err)
		}
	})
	r.Dir = e.Dir.Attempt
	return e
}

func TestEvaluation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := newEvaluation(t, dir, &guessing{number: "7"}, 2, numberTask("a"), numberTask("b"))
	outcomes, err := e.Run(t.Context(), run.Plan(e.IDs, e.K))
	if err != nil {
		t.Fatal(err)
	}
	report, err := e.Report(outcomes, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !report.Complete || report.Finished != 4 || report.Solved != 4 || report.Resolved != 4 ||
		report.PassAtK[1].Rate != 1 ||
		fmt.Sprint(report.Split) != "{[] [] [a b]}" || report.Tokens.Prompt != 80 {
		t.Errorf("report %+v", report)
	}
	var written EvaluationReport
	data, err := os.ReadFile(filepath.Join(dir, ReportFile))
	if err != nil || json.Unmarshal(data, &written) != nil {
		t.Fatalf("%s: %v", data, err)
	}
	if diff := cmp.Diff(report, written); diff != "" {
		t.Errorf("report.json (-returned +written):\n%s", diff)
	}
	for _, name := range []string{"preds.json", "preds.1.json"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		preds, err := harness.ReadPredictions(f)
		if err := errors.Join(err, f.Close()); err != nil || len(preds) != 2 || preds[0].InstanceID != "a" ||
			preds[0].Model != "guessing" ||
			!strings.HasSuffix(*preds[1].Patch, "-0\n+7\n") {
			t.Errorf("%s: %+v, %v", name, preds, err)
		}
	}
	// The model returned no token ids, so no rollout can be written.
	left, err := e.WriteRollouts(outcomes, func(_ io.Writer, rollouts iter.Seq2[run.Outcome, error]) error {
		for o, err := range rollouts {
			return fmt.Errorf("%v: %w", o.Job, err)
		}
		return nil
	})
	if left != 4 || err != nil {
		t.Errorf("%d rollouts left out, %v", left, err)
	}
}

// A run can be resumed only with the same tasks and model.
func TestResumedWithOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := numberTask("a")
	other.Tests.FailToPass = nil
	for _, tc := range []struct {
		name    string
		context int
		model   string
		tasks   []env.Task
		changed bool
	}{
		{"new", 100, "m", []env.Task{numberTask("a")}, false},
		{"the same", 100, "m", []env.Task{numberTask("a")}, false},
		{"other tests", 100, "m", []env.Task{other}, true},
		{"more tasks", 100, "m", []env.Task{numberTask("a"), numberTask("b")}, true},
		{"another model", 100, "n", []env.Task{numberTask("a")}, true},
		{"another context", 200, "m", []env.Task{numberTask("a")}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEvaluation(t, dir, &guessing{}, 1, tc.tasks...)
			e.Runner.Attempt.ModelName = tc.model
			err := errors.Join(e.KeepTasks(), e.KeepModel(tc.context))
			if errors.Is(err, ErrChanged) != tc.changed || !tc.changed && err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSoundness(t *testing.T) {
	t.Parallel()
	trivial, impossible, unsolved, broken := numberTask("trivial"), numberTask("impossible"), numberTask("unsolved"),
		numberTask("broken")
	trivial.Tests.Script = strings.Replace(trivial.Tests.Script, "= 7", "!= 8", 1)
	impossible.Tests.FailToPass = append(impossible.Tests.FailToPass, "test.sh::none")
	unsolved.Tests.GoldPatch = ""
	broken.Tests.Parser = "parse_log_nothing"
	dir := t.TempDir()
	e := newEvaluation(t, dir, &guessing{}, 0, numberTask("sound"), trivial, impossible, unsolved, broken)
	s, err := e.CheckSoundness(t.Context(), Watch{})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(s.Sound, s.PassesEmpty, s.FailsGold, s.NoGold, s.Ungradable, s.Failed, s.SoundTasks())
	if want := "1 [trivial] [impossible] [unsolved] [broken] [] [sound]"; got != want {
		t.Errorf("soundness %s, want %s", got, want)
	}
	var written Soundness
	data, err := os.ReadFile(filepath.Join(dir, SoundnessFile))
	if err != nil || json.Unmarshal(data, &written) != nil {
		t.Fatalf("%s: %v", data, err)
	}
	if diff := cmp.Diff(*s, written); diff != "" {
		t.Errorf("census.json (-returned +written):\n%s", diff)
	}
}

// Patches from elsewhere are graded once each, and verdicts that are on record are not repeated.
func TestGrading(t *testing.T) {
	t.Parallel()
	r, p := setUp(t, nil)
	wrong := strings.Replace(numberTask("").Tests.GoldPatch, "+7", "+8", 1)
	path := filepath.Join(t.TempDir(), "preds.jsonl")
	lines := fmt.Sprintf("{\"instance_id\":\"a\",\"model_name_or_path\":\"m\",\"model_patch\":%q}\n{\"instance_id\":\"b\",\"model_patch\":null}\n", wrong)
	if err := os.WriteFile(path, []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	dir, err := run.Create(t.TempDir(), run.Manifest{Kind: run.Grade})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, tc := range []struct {
		predictions string
		want        map[verify.Status]int
		starts      int
	}{
		{Gold, map[verify.Status]int{verify.Resolved: 2}, 4},
		{Empty, map[verify.Status]int{verify.Unresolved: 2}, 2},
		{path, map[verify.Status]int{verify.Unresolved: 1, verify.NoPatch: 1}, 1},
		{path, map[verify.Status]int{verify.Unresolved: 1, verify.NoPatch: 1}, 0},
	} {
		predictions, err := ReadPredictions(tc.predictions)
		if err != nil {
			t.Fatal(err)
		}
		g := &Grading{Model: predictions.Model, RunID: "r", Repeat: 1, Dir: dir, Evaluator: r.Evaluator,
			Log: slog.New(slog.DiscardHandler)}
		for _, id := range []string{"a", "b"} {
			if c, ok := predictions.Candidate(numberTask(id)); ok {
				g.Candidates, g.IDs = append(g.Candidates, c), append(g.IDs, id)
			}
		}
		before := p.Starts()
		for _, j := range g.Plan() {
			if _, known := g.Known(j); known {
				continue
			}
			if _, err := g.Run(t.Context(), j); err != nil {
				t.Fatal(err)
			}
		}
		s, err := g.Report()
		if diff := cmp.Diff(tc.want, s.Statuses); diff != "" || err != nil || s.Missing != 0 {
			t.Errorf("%s: %v (-want +got):\n%s", tc.predictions, err, diff)
		}
		if n := p.Starts() - before; n != tc.starts {
			t.Errorf("%s: %d sandboxes, want %d", tc.predictions, n, tc.starts)
		}
	}
}
