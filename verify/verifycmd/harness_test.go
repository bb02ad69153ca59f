package verifycmd

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env/testkit"
	"deepswe/verify/harness"
)

// harnessProgram runs the official swebench package on the directory of a graded run: it reads the predictions, grades
// each saved log again, and writes its own run report.
const harnessProgram = `
import json, os, sys
from pathlib import Path
from swebench.harness import reporting
from swebench.harness.grading import get_eval_report
from swebench.harness.utils import get_predictions_from_file, make_test_spec

tasks, preds, run = json.load(open(sys.argv[1])), sys.argv[2], sys.argv[3]
predictions = {p["instance_id"]: p for p in get_predictions_from_file(preds, "none", "test")}
reports = {}
for task in tasks:
    pred = predictions.get(task["instance_id"])
    if pred is None:
        continue
    log = Path("logs/run_evaluation") / run / pred["model_name_or_path"].replace("/", "__") / task["instance_id"] / "test_output.txt"
    if log.exists():
        report = get_eval_report(test_spec=make_test_spec(task), prediction=pred, test_log_path=log,
                                 include_tests_status=True)
        reports[task["instance_id"]] = json.dumps(report, indent=4)
made = reporting.make_run_report(predictions, tasks, run, None, report_dir="theirs")
print(json.dumps({"reports": reports, "run": made.read_text()}))
`

// TestOfficialHarness compares our reports with those of the official harness. DEEPSWE_TEST_SWEBENCH names a Python in
// which it is installed.
func TestOfficialHarness(t *testing.T) {
	t.Parallel()
	python := os.Getenv("DEEPSWE_TEST_SWEBENCH")
	if python == "" {
		t.Skip("needs DEEPSWE_TEST_SWEBENCH=PYTHON, a Python with the swebench package")
	}
	testkit.Images(t, bookworm)
	dir := t.TempDir()
	tasks := repositories(t)
	var instances []map[string]any
	for _, task := range tasks {
		instances = append(instances, map[string]any{
			"instance_id": task.ID, "repo": task.Repo, "version": "1", "image": task.Image, "eval_script": task.Tests.Script,
			"log_parser": task.Tests.Parser, "eval_type": task.Tests.EvalType,
			"FAIL_TO_PASS": task.Tests.FailToPass, "PASS_TO_PASS": task.Tests.PassToPass,
		})
	}
	wrong := strings.Replace(tasks[2].Tests.GoldPatch, "[...values]", "values", 1)
	byID := map[string]harness.Prediction{}
	for i, patch := range []string{"", tasks[1].Tests.GoldPatch, wrong} {
		byID[tasks[i].ID] = harness.Prediction{InstanceID: tasks[i].ID, Model: "org/a model", Patch: &patch}
	}
	dump := func(name string, v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return testkit.WriteFile(t, filepath.Join(dir, name), string(data))
	}
	preds, out := dump("preds.json", byID), filepath.Join(dir, "out")
	got := deepswe(t, "grade", "--tasks", tasksFile, "--predictions", preds, "--out", out, "--run-id", "r")
	if got.code != 0 {
		t.Fatalf("exit code %d\n%s%s", got.code, got.out, got.errOut)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", harnessProgram, dump("instances.json", instances), preds, "r")
	cmd.Dir, cmd.Stderr = out, os.Stderr
	printed, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(printed)), "\n")
	var theirs struct {
		Reports map[string]string `json:"reports"`
		Run     string            `json:"run"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &theirs); err != nil {
		t.Fatal(err)
	}
	if len(theirs.Reports) != 2 {
		t.Errorf("the harness found %d logs, want 2", len(theirs.Reports))
	}
	for id, report := range theirs.Reports {
		ours := read(t, filepath.Join(out, "logs", "run_evaluation", "r", "org__a model", id, "report.json"))
		if diff := cmp.Diff(report, ours); diff != "" {
			t.Errorf("%s (-theirs +ours):\n%s", id, diff)
		}
	}
	if diff := cmp.Diff(theirs.Run, read(t, filepath.Join(out, "org__a model.r.json"))); diff != "" {
		t.Errorf("run report (-theirs +ours):\n%s", diff)
	}
}
