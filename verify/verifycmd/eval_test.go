package verifycmd

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/agent/llm/llmtest"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/testkit"
	"deepswe/rl"
	"deepswe/rl/rowfile"
	"deepswe/verify"
	"deepswe/verify/harness"
	"deepswe/verify/swe"
)

func bash(cmd string) string {
	return "<function=execute_bash>\n<parameter=cmd>" + cmd + "</parameter>\n</function>"
}

const finish = "<function=finish>\n<parameter=command>submit</parameter>\n</function>"

// turnOf counts the replies in the conversation so far.
func turnOf(r llmtest.Request) int {
	n := 0
	for _, m := range r.Messages {
		if m.Role == "assistant" {
			n++
		}
	}
	return n
}

// statementOf returns the first message of the user.
func statementOf(r llmtest.Request) string {
	for _, m := range r.Messages {
		if m.Role == "user" && m.Content != nil {
			return *m.Content
		}
	}
	return ""
}

// knowing is a model that knows the solutions of the tasks, and applies them if solves says so.
func knowing(tasks []env.Task, solves func(task string, r llmtest.Request) bool) func(llmtest.Request) llmtest.Reply {
	return func(r llmtest.Request) llmtest.Reply {
		for _, t := range tasks {
			if !strings.Contains(statementOf(r), strings.TrimSpace(t.Statement)) {
				continue
			}
			commands := []string{"ls; git log --oneline | head -3"}
			if solves(t.ID, r) {
				commands = append(commands, "git apply <<'END_OF_PATCH'\n"+t.Tests.GoldPatch+"END_OF_PATCH\ngit status --short")
			}
			if n := turnOf(r); n < len(commands) {
				return llmtest.Text("Let me see.\n" + bash(commands[n]))
			}
			return llmtest.Text(finish)
		}
		return llmtest.Status(400, "no such task")
	}
}

func TestEvalUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, tc := range []struct{ args, says string }{
		{"eval", "--tasks PATH is missing"},
		{"eval tasks.jsonl", "takes no arguments"},
		{"eval --resume", "--resume requires --out DIR"},
		{"eval --resume --out " + dir, "there is no run in"},
		{"eval --tasks missing.jsonl --out " + dir + "/a", "missing.jsonl: no such file"},
		{"eval --tasks x -k 0", "requires --census"},
		{"eval --tasks x -k -1", "-k must not be negative"},
		{"eval --tasks x --sound-only", "--sound-only requires --census"},
		{"eval --tasks x --census -k 0 --mutants -1", "--mutants must not be negative"},
		{"eval --tasks x --workers 0", "--workers must be at least 1"},
		{"eval --tasks x --format yaml", "choose auto, xml or tools"},
		{"eval --tasks x --temperature 3", "--temperature must be between 0 and 2"},
		{"eval --tasks " + tasksFile + " --model replay:missing.json --out " + dir + "/b", "missing.json"},
	} {
		got := deepswe(t, strings.Fields(tc.args)...)
		if got.code != cli.ExitUsage || !strings.Contains(got.errOut, tc.says) {
			t.Errorf("%s: exit code %d, %q, want %d and %q", tc.args, got.code, got.errOut, cli.ExitUsage, tc.says)
		}
	}
}

func TestEval(t *testing.T) {
	t.Parallel()
	testkit.Images(t, bookworm)
	tasks := repositories(t)
	layered, quantile := tasks[1], tasks[2]
	model := &llmtest.Server{Answer: knowing(tasks,
		func(task string, _ llmtest.Request) bool { return task == layered.ID })}
	endpoint := httptest.NewServer(model)
	defer endpoint.Close()
	out := filepath.Join(t.TempDir(), "run")
	args := []string{
		"eval", "--tasks", tasksFile, "--filter", "layered|quantile", "-k", "2", "--workers", "2", "--out", out,
		"--base-url", endpoint.URL + "/v1", "--format", "xml", "--tokens", "--census", "--mutants", "1", "--seed", "7",
	}
	got := deepswe(t, args...)
	if got.code != 0 {
		t.Fatalf("exit code %d\n%s%s", got.code, got.out, got.errOut)
	}
	for key, want := range map[string]string{
		"temperature": "1", "top_p": "1", "top_k": "-1", "min_p": "0", "repetition_penalty": "1",
	} {
		if got := model.Requests()[0].Member(key); string(got) != want {
			t.Errorf("%s %s was asked for, want %s", key, got, want)
		}
	}
	var r swe.EvaluationReport
	if err := readReport(filepath.Join(out, swe.ReportFile), &r); err != nil {
		t.Fatal(err)
	}
	want := swe.EvaluationReport{
		Type: "report", Version: 1, Complete: true, Model: "test-model", Tasks: 2, Attempts: 4, Finished: 4, Solved: 2,
		Resolved: 2, Canaries: map[verify.CanaryState]int{verify.CanaryConfirmed: 2}, Unconfirmed: []swe.Unconfirmed{},
		StopReasons: r.StopReasons, Statuses: map[verify.Status]int{verify.Resolved: 2, verify.NoPatch: 2},
		Split: swe.Split{Never: []string{quantile.ID}, Sometimes: []string{}, Always: []string{layered.ID}}, Steps: 10,
	}
	ignored := cmpopts.IgnoreFields(swe.EvaluationReport{}, "PassAtK", "HarnessPassAtK", "Tokens", "Results", "Soundness",
		"Seconds", "Tries", "Suspicious", "Failures")
	if diff := cmp.Diff(want, r, ignored); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if len(r.PassAtK) != 2 || r.PassAtK[0].Rate != 0.5 || r.PassAtK[1].K != 2 || r.PassAtK[1].Rate != 0.5 {
		t.Errorf("pass@k: %+v", r.PassAtK)
	}
	if r.StopReasons["submitted"] != 4 || r.Tokens.Completion == 0 || r.Seconds.Total == 0 || r.Seconds.Grading == 0 {
		t.Errorf("ends %v, tokens %+v, seconds %+v", r.StopReasons, r.Tokens, r.Seconds)
	}
	if r.Soundness == nil || r.Soundness.Sound != 2 || len(r.Soundness.PassesEmpty)+len(r.Soundness.FailsGold) > 0 {
		t.Errorf("soundness check: %+v", r.Soundness)
	}
	for _, line := range []string{"pass@1", "2 of 2 tasks are sound", "tasks     1 never, 0 sometimes, 1 always solved",
		"submitted 4"} {
		if !strings.Contains(got.out, line) {
			t.Errorf("standard output lacks %q:\n%s", line, got.out)
		}
	}
	for _, line := range []string{"4/4, 0 running, 2 solved", layered.ID + " #1: solved (submitted after 3 steps"} {
		if !strings.Contains(got.errOut, line) {
			t.Errorf("standard error lacks %q:\n%s", line, got.errOut)
		}
	}
	t.Run("files", func(t *testing.T) {
		for _, name := range []string{
			"manifest.json", "events.jsonl", "census.json", "rollouts/" + layered.ID + "/1/" + attempt.TrajectoryFile,
			"rollouts/" + layered.ID + "/0/patch.diff", "rollouts/" + layered.ID + "/0/grade/report.json",
			"rollouts/" + layered.ID + "/0/grade/test_output.txt", "rollouts/" + quantile.ID + "/0/report.json",
		} {
			if _, err := os.Stat(filepath.Join(out, name)); err != nil {
				t.Error(err)
			}
		}
		for _, name := range []string{"preds.json", "preds.1.json"} {
			f, err := os.Open(filepath.Join(out, name))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			preds, err := harness.ReadPredictions(f)
			if err != nil || len(preds) != 2 || preds[0].InstanceID != layered.ID || preds[0].Model != "test-model" ||
				!strings.HasPrefix(*preds[0].Patch, "diff --git") || *preds[1].Patch != "" {
				t.Errorf("%s: %+v, %v", name, preds, err)
			}
		}
	})
	t.Run("rollouts for training", func(t *testing.T) {
		f, err := rowfile.Open(nil, filepath.Join(out, swe.RolloutsFile))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for r, err := range f.Rollouts(t.Context(), (*rl.Rollout).Validate) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; r.Reward == nil || (*r.Reward == 1) != (r.Task == layered.ID) || len(r.Turns) < 2 {
				t.Errorf("%s #%d: reward %v, %d turns", r.Task, r.Attempt, r.Reward, len(r.Turns))
			}
		}
		if n != 4 {
			t.Errorf("%d rollouts, want 4", n)
		}
	})
	t.Run("again", func(t *testing.T) {
		if got := deepswe(t, args...); got.code != cli.ExitUsage || !strings.Contains(got.errOut, "--resume") {
			t.Errorf("exit code %d, %s", got.code, got.errOut)
		}
	})
	t.Run("resume when all is done", func(t *testing.T) {
		before := read(t, filepath.Join(out, swe.ReportFile))
		got := deepswe(t, "eval", "--resume", "--out", out) // with the endpoint from the manifest
		if got.code != 0 {
			t.Fatalf("exit code %d\n%s%s", got.code, got.out, got.errOut)
		}
		if after := read(t, filepath.Join(out, swe.ReportFile)); after != before {
			t.Errorf("the report has changed (-before +after):\n%s", cmp.Diff(before, after))
		}
	})
	t.Run("resume with other settings", func(t *testing.T) {
		for _, args := range [][]string{{"-k", "3"}, {"--filter", "layered"}, {"--tasks", "other.jsonl"},
			{"--temperature", "0"}} {
			got := deepswe(t, append([]string{"eval", "--resume", "--out", out, "--base-url", endpoint.URL + "/v1"}, args...)...)
			if got.code != cli.ExitUsage || !strings.Contains(got.errOut, "began with") {
				t.Errorf("%v: exit code %d, %s", args, got.code, got.errOut)
			}
		}
	})
	t.Run("a recorded model", func(t *testing.T) {
		again := filepath.Join(t.TempDir(), "again")
		got := deepswe(t, "eval", "--tasks", tasksFile, "--filter", "layered", "--out", again,
			"--model", "replay:"+filepath.Join(out, "rollouts", layered.ID, "0", attempt.TrajectoryFile))
		if got.code != 0 || !strings.Contains(got.out, "1 solved of 1") {
			t.Errorf("exit code %d\n%s%s", got.code, got.out, got.errOut)
		}
	})
	t.Run("predictions can be graded", func(t *testing.T) {
		got := deepswe(t, "grade", "--tasks", tasksFile, "--predictions", filepath.Join(out, "preds.json"), "--out",
			filepath.Join(t.TempDir(), "graded"))
		if got.code != 0 || !strings.Contains(got.out, "1 of 2 resolved") {
			t.Errorf("exit code %d\n%s%s", got.code, got.out, got.errOut)
		}
	})
}

// The soundness check finds tasks that pass without a change, fail with the solution, or have none.
func TestSoundnessCheck(t *testing.T) {
	t.Parallel()
	testkit.Images(t, bookworm)
	dir := t.TempDir()
	variant := func(id string, change func(*env.Task)) string {
		task := named(t, "layered")
		task.ID = id
		change(&task)
		line, err := json.Marshal(task)
		if err != nil {
			t.Fatal(err)
		}
		return string(line) + "\n"
	}
	file := testkit.WriteFile(t, filepath.Join(dir, "tasks.jsonl"), variant("sound", func(*env.Task) {})+
		variant("trivial", func(t *env.Task) { t.Tests.FailToPass = t.Tests.PassToPass })+
		variant("impossible", func(t *env.Task) {
			t.Tests.FailToPass = append(t.Tests.FailToPass,
				"tests/none.py::test_none")
		})+
		variant("unsolved", func(t *env.Task) { t.Tests.GoldPatch = "" }))
	out := filepath.Join(dir, "run")
	got := deepswe(t, "eval", "--tasks", file, "--census", "-k", "0", "--mutants", "1", "--out", out)
	if got.code != 0 {
		t.Fatalf("exit code %d\n%s%s", got.code, got.out, got.errOut)
	}
	var r swe.Soundness
	if err := readReport(filepath.Join(out, swe.SoundnessFile), &r); err != nil {
		t.Fatal(err)
	}
	got2 := fmt.Sprint(r.Sound, r.PassesEmpty, r.FailsGold, r.NoGold, r.Ungradable, r.Failed)
	if want := "1 [trivial] [impossible] [unsolved] [] []"; got2 != want {
		t.Errorf("census %s, want %s", got2, want)
	}
	if !strings.Contains(got.out, "1 of 4 tasks are sound") ||
		!strings.Contains(got.out, "1 solved without any change: trivial") {
		t.Errorf("standard output:\n%s", got.out)
	}
}

// readReport reads one of the reports of a run.
func readReport(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// Whatever its id, each task has its own files inside the run directory, or is left out with the reason.
func TestOddTaskIDs(t *testing.T) {
	t.Parallel()
	testkit.Images(t, bookworm)
	layered := repositories(t)[1]
	ids := []string{"a/b", "a%2Fb", ".hidden x", strings.Repeat("long", 100), strings.Repeat("long", 100) + "er"}
	dir := t.TempDir()
	file := copiesOf(t, dir, layered, append(ids, "..", "../../up")...)
	endpoint := httptest.NewServer(&llmtest.Server{
		Answer: func(llmtest.Request) llmtest.Reply { return llmtest.Text(finish) },
	})
	defer endpoint.Close()
	for _, args := range [][]string{
		{"eval", "--no-grade", "--base-url", endpoint.URL + "/v1", "--format", "xml"},
		{"grade", "--predictions", "gold"},
	} {
		out := filepath.Join(dir, "runs", args[0])
		args = append(args, "--tasks", file, "--workers", "2", "--out", out)
		got := deepswe(t, args...)
		if got.code != 0 || strings.Count(got.errOut, "cannot be used as a path below a run directory") != 2 {
			t.Fatalf("%s: exit code %d\n%s%s", args[0], got.code, got.out, got.errOut)
		}
		r, err := run.Read(out)
		if err != nil || len(r.Outcomes) != len(ids) {
			t.Fatalf("%s: %d outcomes, %v\n%s%s", args[0], len(r.Outcomes), err, got.out, got.errOut)
		}
		for _, o := range r.Outcomes {
			path := filepath.Join(r.AttemptDir(o.Job), attempt.ReportFile)
			if args[0] == "grade" {
				path = filepath.Join(out, "logs", "run_evaluation", "deepswe", "gold", run.PathName(o.Task), verify.ReportFile)
			}
			if _, err := os.Stat(path); err != nil || o.Failed() {
				t.Errorf("%s: %.40q: %v, %s", args[0], o.Task, err, o.Err)
			}
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "runs"))
	if err != nil || len(entries) != 2 {
		t.Errorf("beside the runs there are %v, %v", entries, err)
	}
}

// copiesOf writes copies of a task under other ids to a file.
func copiesOf(t *testing.T, dir string, task env.Task, ids ...string) string {
	t.Helper()
	var tasks []env.Task
	for _, id := range ids {
		task.ID = id
		tasks = append(tasks, task)
	}
	return writeTasks(t, filepath.Join(dir, "tasks.jsonl"), tasks)
}

// A directory that cannot be a run's, or tasks that cannot be run together, are refused before anything starts, and the
// message says what to do.
func TestRunsThatAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		testkit.WriteFile(t, filepath.Join(path, "manifest.json"), text)
		return path
	}
	old := manifest("old", `{"version":1,"kind":"eval","program":"deepswe 0.1","flags":{}}`)
	newer := manifest("newer", `{"version":7,"kind":"eval","program":"deepswe 7"}`)
	live, err := run.Create(filepath.Join(dir, "live"), run.Manifest{Kind: run.Eval})
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	graded, err := run.Create(filepath.Join(dir, "graded"), run.Manifest{Kind: run.Grade})
	if err != nil {
		t.Fatal(err)
	}
	defer graded.Close()
	twice := copiesOf(t, dir, repositories(t)[1], "layered", "Layered")
	for _, tc := range []struct{ args, says string }{
		{"eval --resume --out " + old, "made by an older program (deepswe 0.1), in format 1: resume it with that one, or"},
		{"eval --resume --out " + newer, "made by deepswe 7, in format 7, and this program knows formats up to 2"},
		{"eval --resume --out " + live.Path(), "in use by process"},
		{"eval --resume --out " + graded.Path(), "holds a run of grade, not of eval"},
		{"grade --predictions gold --tasks " + tasksFile + " --out " + live.Path(), "holds a run of eval, not of grade"},
		{"grade --predictions gold --tasks " + tasksFile + " --out " + graded.Path(), "in use by process"},
		{"grade --predictions gold --tasks " + twice, `"Layered" and "layered" differ only in upper and lower case`},
		{"eval --model replay:x --tasks " + twice, "differ only in upper and lower case"},
	} {
		got := deepswe(t, strings.Fields(tc.args)...)
		if got.code != cli.ExitUsage || !strings.Contains(got.errOut, tc.says) {
			t.Errorf("%s: exit code %d, %q, want %d and %q", tc.args, got.code, got.errOut, cli.ExitUsage, tc.says)
		}
	}
}
