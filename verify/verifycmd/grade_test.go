package verifycmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env/testkit"
	"deepswe/verify"
	"deepswe/verify/harness"
)

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestGradeUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	preds := testkit.WriteFile(t, filepath.Join(dir, "preds.json"), `[{"instance_id": "nowhere", "model_patch": ""}]`)
	for _, tc := range []struct {
		args string
		says string
	}{
		{"grade", "--predictions FILE (or gold, or empty) or --log FILE is missing"},
		{"grade --predictions gold", "--tasks PATH is missing"},
		{"grade --predictions gold --log x --tasks " + tasksFile, "give one of them"},
		{"grade --predictions missing.json --tasks " + tasksFile, "missing.json: no such file"},
		{"grade --predictions " + preds + " --tasks " + tasksFile, "predictions are for tasks that"},
		{"grade --predictions gold --tasks missing.jsonl", "missing.jsonl: no such file"},
		{"grade --predictions gold --filter nothing --tasks " + tasksFile, "3 did not match --filter"},
		{"grade --predictions gold --filter ( --tasks " + tasksFile, "--filter: error parsing regexp"},
		{"grade --predictions gold --slice a:b --tasks " + tasksFile, `parse slice "a:b"`},
		{"grade --predictions gold --shuffle x --tasks " + tasksFile, "must be a whole number"},
		{"grade --predictions gold --workers 0 --tasks " + tasksFile, "--workers must be at least 1"},
		{"grade --predictions gold --run-id ../x --tasks " + tasksFile, "must be a file name"},
		{"grade --log " + preds + " --tasks " + tasksFile, "say which with --id"},
		{"grade --log " + preds + " --id nobody --tasks " + tasksFile, "has no task nobody"},
		{"grade preds.json", "takes no arguments"},
	} {
		got := deepswe(t, strings.Fields(tc.args)...)
		if got.code != cli.ExitUsage || !strings.Contains(got.errOut, tc.says) || got.out != "" {
			t.Errorf("%s: exit code %d, %q, want %d and %q", tc.args, got.code, got.errOut, cli.ExitUsage, tc.says)
		}
	}
}

// A saved log is graded without a sandbox, and --json prints the report byte for byte.
func TestGradeLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var lines []string
	task := repositories(t)[1]
	for _, id := range slices.Concat(task.Tests.FailToPass, task.Tests.PassToPass) {
		lines = append(lines, "PASSED "+id)
	}
	text := "+ : '>>>>> Start Test Output'\n===== short test summary info =====\n" + strings.Join(lines, "\n") +
		"\n+ : '>>>>> End Test Output'\n>>>>> Test Exit Code: 0\n"
	log := testkit.WriteFile(t, filepath.Join(dir, "log"), text)
	args := []string{"grade", "--tasks", tasksFile, "--id", task.ID, "--log"}

	g, err := verify.GradeLog(task, verify.Evidence{Log: []byte(text)})
	if err != nil || !g.Report.Resolved {
		t.Fatal(err, g.Report)
	}
	if got := deepswe(t, append(args, log, "--json")...); got.code != 0 || got.out != string(g.Report.JSON()) ||
		got.errOut != "" {
		t.Errorf("exit code %d, %s%s", got.code, got.out, got.errOut)
	}
	if got := deepsweWith(t, text, nil, append(args, "-", "--json")...); got.out != string(g.Report.JSON()) {
		t.Errorf("from standard input: %s%s", got.out, got.errOut)
	}
	want := task.ID + ": resolved\nFAIL_TO_PASS 2 of 2 pass, PASS_TO_PASS 8 of 8 pass\n"
	if got := deepswe(t, append(args, log)...); got.out != want {
		t.Errorf("for people:\n%s", cmp.Diff(want, got.out))
	}
	forged := testkit.WriteFile(t, filepath.Join(dir, "forged"), strings.Replace(text, "===== short",
		"FAILED "+task.Tests.FailToPass[0]+"\n===== short", 1))
	if got := deepswe(t, append(args, forged)...); got.code != 0 ||
		!strings.Contains(got.out, "suspicious: contradiction") {
		t.Errorf("a log that contradicts itself: exit code %d\n%s", got.code, got.out)
	}
	broken := testkit.WriteFile(t, filepath.Join(dir, "broken"),
		strings.Replace(text, "Code: 0", "Code: "+strings.Repeat("1", 5000),
			1))
	if got := deepswe(t, append(args, broken, "--json")...); got.code != cli.ExitUsage ||
		!strings.Contains(got.errOut, "bad_exit_code") || got.out != "" {
		t.Errorf("a log on which the harness raises: exit code %d, %q, %s", got.code, got.out, got.errOut)
	}
}

func TestGradePredictions(t *testing.T) {
	t.Parallel()
	testkit.Images(t, bookworm)
	tasks := repositories(t)
	keypath, layered, quantile := tasks[0], tasks[1], tasks[2]
	patch := func(p string) *string { return &p }
	predictions := map[string]harness.Prediction{
		"a": {InstanceID: keypath.ID, Model: "org/model", Patch: patch("")},
		"b": {InstanceID: layered.ID, Model: "org/model", Patch: &layered.Tests.GoldPatch},
		"c": {InstanceID: quantile.ID, Model: "org/model", Patch: patch("no patch")},
	}
	dir := t.TempDir()
	data, err := json.Marshal(predictions)
	if err != nil {
		t.Fatal(err)
	}
	file := testkit.WriteFile(t, filepath.Join(dir, "preds.json"), string(data))
	out := filepath.Join(dir, "out")
	args := []string{"grade", "--tasks", tasksFile, "--predictions", file, "--out", out, "--run-id", "r1"}
	got := deepswe(t, args...)
	if got.code != 0 || !strings.Contains(got.out, "1 of 3 resolved (33.3%)") {
		t.Fatalf("exit code %d\n%s%s", got.code, got.out, got.errOut)
	}
	var report map[string]any
	if err := json.Unmarshal([]byte(read(t, filepath.Join(out, "org__model.r1.json"))), &report); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string][]any{
		"resolved_ids": {layered.ID}, "empty_patch_ids": {keypath.ID}, "error_ids": {quantile.ID}, "incomplete_ids": {},
	} {
		if diff := cmp.Diff(want, report[key]); diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
	}
	logs := filepath.Join(out, "logs", "run_evaluation", "r1", "org__model")
	for name, there := range map[string]bool{
		layered.ID + "/report.json": true, layered.ID + "/test_output.txt": true, layered.ID + "/patch.diff": true,
		layered.ID + "/eval.sh": true, layered.ID + "/run_instance.log": true, layered.ID + "/evaluation.json": true,
		quantile.ID + "/report.json": false, quantile.ID + "/run_instance.log": true, keypath.ID: false,
	} {
		if _, err := os.Stat(filepath.Join(logs, name)); (err == nil) != there {
			t.Errorf("%s: %v, want it there: %v", name, err, there)
		}
	}

	if r, err := run.Read(out); err != nil || r.Manifest.Kind != run.Grade || len(r.Outcomes) != 2 {
		t.Errorf("the run is %+v, %v; want an outcome for each patch that was run", r, err)
	}

	t.Run("again", func(t *testing.T) {
		before := read(t, filepath.Join(logs, layered.ID, "evaluation.json"))
		if got := deepswe(t, append(args, "--docker-host", "unix:///nowhere")...); got.code != 0 ||
			!strings.Contains(got.out, "1 of 3 resolved") {
			t.Errorf("nothing was left to do: exit code %d\n%s%s", got.code, got.out, got.errOut)
		}
		if read(t, filepath.Join(logs, layered.ID, "evaluation.json")) != before {
			t.Error("what was graded already was graded again")
		}
	})
	t.Run("another patch", func(t *testing.T) {
		predictions["b"] = harness.Prediction{InstanceID: layered.ID, Model: "org/model",
			Patch: patch(layered.Tests.TestPatch)}
		data, err := json.Marshal(predictions)
		if err != nil {
			t.Fatal(err)
		}
		testkit.WriteFile(t, file, string(data))
		if got := deepswe(t, args...); got.code != 0 || !strings.Contains(got.out, "0 of 3 resolved") {
			t.Errorf("exit code %d\n%s%s", got.code, got.out, got.errOut)
		}
	})
}

// --repeat 2 runs the tests twice and keeps both results.
func TestGradeRepeat(t *testing.T) {
	t.Parallel()
	testkit.Images(t, bookworm)
	out := filepath.Join(t.TempDir(), "out")
	got := deepswe(t, "grade", "--tasks", tasksFile, "--filter", "layered", "--predictions", "gold", "--repeat", "2",
		"--out", out, "--json")
	if got.code != 0 {
		t.Fatalf("exit code %d\n%s%s", got.code, got.out, got.errOut)
	}
	if lines := strings.Count(got.out, "\n"); lines != 3 || strings.Count(got.out, `"status":"resolved"`) != 2 {
		t.Errorf("want two results and the report:\n%s", got.out)
	}
	logs := filepath.Join(out, "logs", "run_evaluation", "deepswe", "gold", "deepswe__layered")
	for _, file := range []string{logs + "/report.json", logs + "/repeat/1/report.json",
		filepath.Join(out, "flaky.json")} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}
