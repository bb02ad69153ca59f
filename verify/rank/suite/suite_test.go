package suite

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"deepswe/agent"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/testkit/images"
	"deepswe/tools"
	"deepswe/verify"
	"deepswe/verify/swe"
)

func TestMain(m *testing.M) { images.Main(m.Run) }

// repository returns a runner over a base with these files.
func repository(t *testing.T, files map[string]string) *Runner {
	t.Helper()
	return &Runner{Evaluator: &verify.Evaluator{Provider: images.New(t, files)}}
}

var task = env.Task{ID: "number", Source: "deepswe", Statement: "The number must be 7.", Image: "number"}

const sevenPatch = "--- a/number.py\n+++ b/number.py\n@@ -1 +1 @@\n-0\n+7\n"

// Which tests of a script are kept depends on its results on the base.
func TestBase(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		script  Script
		kept    []string
		reasons map[string]string
		problem string
	}{
		"regression": {
			script: Script{Kind: Regression, Command: "echo PASSED t::a; echo FAILED t::b; echo SKIPPED t::c; echo ERROR t::d"},
			kept:   []string{"t::a"}, reasons: map[string]string{"t::b": "failed", "t::c": "skipped", "t::d": "error"},
		},
		"reproduction": {
			script:  Script{Kind: Reproduction, Command: "echo PASSED a; echo FAILED b; echo ERROR c"},
			kept:    []string{"b"},
			reasons: map[string]string{"a": "does not reproduce the issue: passed", "c": "toxic: fails on the base for a technical reason"},
		},
		"flaky": {
			script: Script{Kind: Regression, Command: "if [ -e seen ]; then echo FAILED a; else echo PASSED a; touch seen; fi; echo PASSED b"},
			kept:   []string{"b"}, reasons: map[string]string{"a": "flaky: passed and then failed"},
		},
		"files": {
			script: Script{Kind: Reproduction, Command: "sh tests/run.sh", Files: map[string]string{"tests/run.sh": "echo FAILED $(cat number)\n"}},
			kept:   []string{"0"},
		},
		"no test":      {script: Script{Kind: Regression, Command: "echo hello"}, problem: "names no test: hello"},
		"not found":    {script: Script{Kind: Regression}, problem: "no test command was found"},
		"none behaves": {script: Script{Kind: Reproduction, Command: "echo PASSED a"}, problem: "no test behaves as it claims", reasons: map[string]string{"a": "passed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := repository(t, map[string]string{"number": "0\n"})
			if tc.script.Command != "" {
				tc.script.Parser = "parse_log_pytest"
			}
			b, err := r.Base(t.Context(), task, tc.script)
			if err != nil {
				t.Fatal(err)
			}
			if tc.kept == nil {
				tc.kept = []string{}
			}
			if diff := cmp.Diff(tc.kept, b.Kept); diff != "" {
				t.Error(diff)
			}
			for _, d := range b.Dropped {
				if want, ok := tc.reasons[d.Test]; !ok || !strings.Contains(d.Reason, want) {
					t.Errorf("%s is dropped as %q, want %q", d.Test, d.Reason, want)
				}
			}
			if len(b.Dropped) != len(tc.reasons) || !strings.Contains(b.Problem, tc.problem) || (b.Problem == "") != (tc.problem == "") {
				t.Errorf("%d dropped, problem %q", len(b.Dropped), b.Problem)
			}
		})
	}
}

// Results come from a strict run: changes of the tests do not count, and forged results are found.
func TestRun(t *testing.T) {
	t.Parallel()
	b := Baseline{Kept: []string{"t::seven", "t::file"}, Script: Script{
		Name: "regression", Kind: Regression, Parser: "parse_log_pytest",
		Command: "if [ \"$(head -n1 num*.py)\" = 7 ]; then echo PASSED t::seven; else echo FAILED t::seven; fi; " +
			"echo PASSED t::file; tail -n+2 num*.py",
	}}
	for name, tc := range map[string]struct {
		patch    string
		passed   []string
		rejected string
	}{
		"nothing":        {"", []string{"t::file"}, ""},
		"the fix":        {sevenPatch, []string{"t::seven", "t::file"}, ""},
		"does not apply": {"--- a/none\n+++ b/none\n@@ -1 +1 @@\n-0\n+7\n", []string{}, "does not apply"},
		"another base": {
			strings.Replace(sevenPatch, "-0", "-1", 1), []string{}, "does not apply: it does not match number.py:1",
		},
		"a forged end": {"--- a/number.py\n+++ b/number.py\n@@ -1 +1,3 @@\n-0\n+7\n+>>>>> End Test Output\n+>>>>> Test Exit Code: 0\n", []string{}, "forged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := repository(t, map[string]string{"number.py": "0\n"})
			got, err := r.Run(t.Context(), task, b, []byte(tc.patch))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.passed, got.Passed); diff != "" || !strings.Contains(got.Rejected, tc.rejected) ||
				(got.Rejected == "") != (tc.rejected == "") {
				t.Errorf("rejected %q\n%s", got.Rejected, diff)
			}
		})
	}
}

func column(passed ...string) Column {
	c := Column{Passed: map[string]bool{}}
	for _, id := range passed {
		c.Passed[id] = true
	}
	return c
}

func TestFilter(t *testing.T) {
	t.Parallel()
	kinds := map[string]Kind{"a": Reproduction, "b": Reproduction, "c": Reproduction, "r": Regression}
	for name, tc := range map[string]struct {
		columns []Column
		reasons map[string]string // of the tests that do not count
	}{
		"one right among wrong ones counts": {
			[]Column{column("a", "b", "c", "r"), column("r"), column("r"), column("r")},
			map[string]string{"r": "all pass"},
		},
		"accepted only by a worse one is toxic": {
			[]Column{column("a", "b", "r"), column("a", "b", "r"), column("a", "b"), column("c")},
			map[string]string{"c": "toxic"},
		},
		"an outdated regression test is toxic": {
			[]Column{column("a", "b"), column("a", "b"), column("a"), column("r")},
			map[string]string{"r": "toxic", "c": "all fail"},
		},
		"one candidate": {[]Column{column("a")}, map[string]string{}},
		"rejected ones have no say": {
			[]Column{column("a"), {Passed: map[string]bool{"b": true}, Rejected: true}}, map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, v := range Filter(kinds, tc.columns) {
				if want := tc.reasons[v.ID]; !strings.Contains(v.Reason, want) || (v.Reason == "") != (want == "") {
					t.Errorf("%s: %q, want %q", v.ID, v.Reason, want)
				}
			}
		})
	}
}

// A candidate that passes every test still does so after the filter, and no other passes more. Stopping early relies on
// this.
func TestFilterKeepsWhatTheBestPass(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := []string{"a", "b", "c", "d", "e"}
		kinds := map[string]Kind{}
		for _, id := range ids {
			kinds[id] = rapid.SampledFrom([]Kind{Regression, Reproduction}).Draw(t, id)
		}
		columns := []Column{column(ids...)}
		for range rapid.IntRange(1, 6).Draw(t, "others") {
			columns = append(columns, column(rapid.SliceOfDistinct(rapid.SampledFrom(ids), rapid.ID).Draw(t, "passed")...))
		}
		for _, v := range Filter(kinds, columns) {
			if v.Reason != "" && v.Passed != v.Tried {
				t.Fatalf("%s is dropped (%s), though it tells a candidate from the best", v.ID, v.Reason)
			}
		}
	})
}

// The key of written tests depends on the model and on the issue, but not on the model's limits.
func TestWriterKey(t *testing.T) {
	t.Parallel()
	writer := func(model string, steps int) *Writer {
		var r swe.Runner
		r.Attempt.ModelName, r.Attempt.Limits.Steps, r.Attempt.Limits.Context = model, steps, 1000*steps
		return &Writer{&r}
	}
	key := writer("m", 50).Key(task)
	if got := writer("m", 100).Key(task); got != key {
		t.Error("other limits ask for other tests")
	}
	other := task
	other.Statement = "Something else."
	if writer("n", 50).Key(task) == key || writer("m", 50).Key(other) == key {
		t.Error("the tests of another model, or for another issue, would be taken")
	}
}

// The test script is taken from what the agent's patch adds; its other changes are left out.
func TestScriptOfAPatch(t *testing.T) {
	t.Parallel()
	patch := "diff --git a/deepswe_reproduction/run.sh b/deepswe_reproduction/run.sh\nnew file mode 100755\nindex 0..1\n--- /dev/null\n" +
		"+++ b/deepswe_reproduction/run.sh\n@@ -0,0 +1,2 @@\n+#!/bin/sh\n+echo FAILED a\n\\ No newline at end of file\n" +
		"diff --git a/x.py b/x.py\nindex 1..2 100644\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n" +
		"diff --git a/other.py b/other.py\nnew file mode 100644\n--- /dev/null\n+++ b/other.py\n@@ -0,0 +1 @@\n+b\n"
	s, ok := script([]byte(patch))
	want := map[string]string{"deepswe_reproduction/run.sh": "#!/bin/sh\necho FAILED a"}
	if diff := cmp.Diff(want, s.Files); !ok || diff != "" || s.Command != "sh deepswe_reproduction/run.sh" {
		t.Errorf("%v %s\n%s", ok, s.Command, diff)
	}
	if _, ok := script([]byte("diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n")); ok {
		t.Error("a script was found where there is none")
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"go":     {map[string]string{"go.mod": ""}, "go test"},
		"rust":   {map[string]string{"Cargo.toml": ""}, "cargo test"},
		"pytest": {map[string]string{"pyproject.toml": ""}, "pytest -rA"},
		"django": {map[string]string{"tests/runtests.py": "import django"}, "runtests.py"},
		"node":   {map[string]string{"package.json": `{"scripts":{"test":"node --test"}}`}, "node --test"},
		"jest":   {map[string]string{"package.json": `{"scripts":{"test":"jest"}}`}, "jest --verbose"},
		"other":  {map[string]string{"package.json": `{"scripts":{"test":"make"}}`}, ""},
		"none":   {map[string]string{"README": ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := repository(t, tc.files)
			sb, err := r.start(t.Context(), task)
			if err != nil {
				t.Fatal(err)
			}
			defer sb.Close(t.Context())
			command, _, err := find(t.Context(), sb)
			if !strings.Contains(command, tc.want) || (err == nil) != (tc.want != "") {
				t.Errorf("%q, %v", command, err)
			}
		})
	}
}

// The agent that writes tests is told the limits that apply to its own attempt.
func TestTheWriterIsToldTheLimitsInForce(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]tools.Options{
		trajectory.FormatXML:   {CommandTimeout: 7 * time.Second},
		trajectory.FormatTools: {CommandTimeout: 7 * time.Second, Native: true},
	} {
		format, _ := agent.FormatNamed(name)
		messages, err := Prompt(false)(agent.Opening{
			Format: format, Issue: agent.Issue{Statement: "x"}, Dir: "/testbed", Tools: tools.New(o).Specs(),
		})
		if err != nil {
			t.Fatal(err)
		}
		told := strings.Contains(messages[0].Content, "killed after 7 seconds")
		if told != (name == trajectory.FormatXML) || strings.Contains(messages[0].Content, "90 seconds") {
			t.Errorf("%s:\n%s", name, messages[0].Content)
		}
	}
}
