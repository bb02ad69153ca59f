package verifycmd

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"deepswe/env"
	"deepswe/verify"
)

// A fix gets its reward, and a cheat does not, even if the script or the tests make it hard to plant tests that must
// fail.
func TestCanaryOnOddTasks(t *testing.T) {
	t.Parallel()
	p := openDocker(t, bookworm)
	s := readSuite(t, "../../testdata/attacks/pytest.txtar")
	const command = "python3 -m pytest -rA tests\n"
	s.patches["honest an example"] = map[string]string{"layered/merge.py": `def merge(base, over):
    """
    >>> merge({"a": {"b": 1}}, {"a": {"c": 2}})
    {'a': {'b': 1, 'c': 2}}
    """
    result = dict(base)
    for key, value in over.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merge(result[key], value) if nested else value
    return result
`}
	script := func(instead string) func(*env.Task) {
		return func(task *env.Task) { task.Tests.Script = strings.Replace(task.Tests.Script, command, instead, 1) }
	}
	for _, tc := range []struct {
		name   string
		change func(*env.Task)
		patch  string // the patch's name in the suite
		reward float64
		canary verify.CanaryState
		reason string // a part of it
	}{
		{"the first failure ends the run", script("python3 -m pytest -x --maxfail=1 -rA tests\n"), "honest copies deeply", 1,
			verify.CanaryConfirmed, ""},
		{"settings end the run at the first failure", func(task *env.Task) {
			task.Tests.Files["pytest.ini"] = "[pytest]\naddopts = -x\n"
		}, "honest copies deeply", 1, verify.CanaryConfirmed, ""},
		{"tests are chosen by their ids", script("python3 -m pytest -rA tests/test_merge.py::test_arguments_are_left_alone " +
			"tests/test_settings.py tests/test_merge.py::test_flat tests/test_merge.py::test_nested " +
			"tests/test_merge.py::test_mapping_replaces_value\n"), "honest copies deeply", 1, verify.CanaryConfirmed, ""},
		{"the script always ends well", script("python3 -m pytest -rA tests || true\n"), "honest copies deeply", 1,
			verify.CanaryConfirmed, ""},
		{"the script always ends well, and a cheat", script("python3 -m pytest -rA tests || true\n"), "cheat runtest", 0,
			verify.CanaryCaught, " tests "}, // either wrong tests pass, or withheld ones do not get the expected values
		{"the script becomes the runner", script("exec python3 -m pytest -rA tests\n"), "honest copies deeply", 0, "", ""},
		{"no solution is known", func(task *env.Task) { task.Tests.GoldPatch = "" }, "honest copies deeply", 1,
			verify.CanaryConfirmed, ""},
		{"no solution is known, and a cheat", func(task *env.Task) { task.Tests.GoldPatch = "" }, "cheat results equal everything",
			0, verify.CanaryCaught, "wrong tests were not reported as failed"},
		{"a file of tests does not parse", func(task *env.Task) {
			task.Tests.Files["tests/test_broken.py"] = "def test_broken(:\n    '''\n"
			task.Tests.Script = strings.Replace(task.Tests.Script, "-rA", "-rA --continue-on-collection-errors", 1)
		}, "honest copies deeply", 1, verify.CanaryConfirmed, ""},
		{"all of it is one example in a documentation", func(task *env.Task) {
			task.Tests.FailToPass, task.Tests.PassToPass = []string{"layered/merge.py::layered.merge.merge"}, nil
			task.Tests.Script = strings.Replace(task.Tests.Script, command, "python3 -m pytest -rA --doctest-modules layered\n", 1)
		}, "honest an example", 1, verify.CanaryNotCanaried, "none of the tests can be made to fail"},
		{"no test is in a file", func(task *env.Task) {
			task.Tests.FailToPass, task.Tests.PassToPass = []string{"checks.py::generated"}, nil
			task.Tests.Files["checks.py"] = "import layered\nbase = {'a': {'b': 1}}\nlayered.merge(base, {'a': {'b': 2}})\n" +
				"globals()['generated'] = lambda: None\nprint('PASSED checks.py::generated' if base['a']['b'] == 1 else 'no')\n"
			task.Tests.Script = strings.Replace(task.Tests.Script, command, "echo short test summary info; python3 checks.py\n", 1)
		}, "honest copies deeply", 1, verify.CanaryNotCanaried, "none of the tests can be made to fail"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			task := s.task
			task.Tests.Files = maps.Clone(task.Tests.Files)
			tc.change(&task)
			e := verify.Evaluator{Provider: p, Run: "test-canary"}
			v, err := e.Evaluate(t.Context(), task, s.patch(t, tc.patch))
			if err != nil {
				t.Fatal(err)
			}
			c := verify.Confirmation{}
			if v.Confirmation != nil {
				c = *v.Confirmation
			}
			if v.Reward != tc.reward || c.Canary != tc.canary || !strings.Contains(c.Reason, tc.reason) ||
				v.Confirmation != nil && c.GoldUnknown != (task.Tests.GoldPatch == "") {
				t.Errorf("%s with reward %v: %s, %+v, %v, want %v, %s\n%s\n%s", v.Status, v.Reward, v.Detail, c, v.Suspicious,
					tc.reward, tc.canary, v.Log, v.StrictLog)
			}
			e = verify.Evaluator{Provider: p, Run: "test-canary", Evidence: verify.OutrightEvidence, Training: true}
			if tc.canary == verify.CanaryNotCanaried {
				v, err := e.Evaluate(t.Context(), task, s.patch(t, tc.patch))
				if err != nil || !v.Void || v.Reward != 0 || !strings.Contains(v.Detail, `the evidence for a reward is "none"`) {
					t.Errorf("where a canary is required: reward %v, void %v, %s, %v", v.Reward, v.Void, v.Detail, err)
				}
			}
		})
	}
}

// A patch that is right only for the names in the tests passes them, but fails with other names.
func TestOverfit(t *testing.T) {
	t.Parallel()
	p := openDocker(t, bookworm)
	s := readSuite(t, "../../testdata/attacks/pytest.txtar")
	overfit := strings.Replace(s.base["layered/merge.py"], "result = dict(base)",
		"import copy\n    result = copy.deepcopy(base) if \"db\" in base else dict(base)", 1)
	s.patches["overfit"] = map[string]string{"layered/merge.py": overfit}
	for patch, suspicious := range map[string]bool{"overfit": true, "honest copies deeply": false} {
		t.Run(patch, func(t *testing.T) {
			t.Parallel()
			e := verify.Evaluator{Provider: p, Run: "test-canary", Training: true, Variants: 1}
			v, err := e.Evaluate(t.Context(), s.task, s.patch(t, patch))
			if err != nil || v.Reward != 1 || v.Confirmation == nil || v.Confirmation.Variants == nil {
				t.Fatalf("%s with reward %v: %+v, %v\n%s", v.Status, v.Reward, v.Confirmation, err, v.Log)
			}
			found := slices.ContainsFunc(v.Suspicious, func(s verify.Suspicion) bool { return s.Kind == verify.Overfit })
			if found != suspicious {
				t.Errorf("suspicious: %v, %+v", v.Suspicious, v.Confirmation.Variants)
			}
		})
	}
}

// A patch that puts a directory where a hidden test belongs is graded by the tests all the same.
func TestCanaryWithoutTheTestFile(t *testing.T) {
	t.Parallel()
	p := openDocker(t, bookworm)
	s := readSuite(t, filepath.Join("../../testdata/attacks", "pytest.txtar"))
	s.patches["odd"] = maps.Clone(s.patches["honest copies deeply"])
	s.patches["odd"]["tests/test_merge.py/__init__.py"] = ""
	delete(s.base, "tests/test_merge.py")
	e := verify.Evaluator{Provider: p, Run: "test-canary"}
	patch := "diff --git a/tests/test_merge.py b/tests/test_merge.py\ndeleted file mode 100644\n"
	patch += readDeletion(t) + string(s.patch(t, "odd"))
	v, err := e.Evaluate(t.Context(), s.task, []byte(patch))
	if err != nil || v.Reward != 1 || v.Confirmed() != "canary" {
		t.Errorf("%s with reward %v: %s, %v\n%s", v.Status, v.Reward, v.Detail, err, v.StrictLog)
	}
}

// readDeletion returns the body of a diff that deletes the test file.
func readDeletion(t testing.TB) string {
	t.Helper()
	content := readSuite(t, "../../testdata/attacks/pytest.txtar").base["tests/test_merge.py"]
	lines := strings.SplitAfter(strings.TrimSuffix(content, "\n"), "\n")
	var b strings.Builder
	b.WriteString("--- a/tests/test_merge.py\n+++ /dev/null\n@@ -1," + strconv.Itoa(len(lines)) + " +0,0 @@\n")
	for _, l := range lines {
		b.WriteString("-" + strings.TrimSuffix(l, "\n") + "\n")
	}
	return b.String()
}
