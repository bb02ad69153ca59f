package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"deepswe/env"
	"deepswe/env/testkit"
	"deepswe/verify/testlog"
)

// Each file in testdata/grade is a task, a log that was written for the purpose, the report that the official harness
// writes about it, and the stricter verdict.
func TestGradeLog(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/grade/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var task env.Task
			if err := json.Unmarshal(archive.Files[0].Data, &task); err != nil {
				t.Fatal(err)
			}
			g, err := GradeLog(task, Evidence{Log: archive.Files[1].Data})
			if err != nil {
				t.Fatal(err)
			}
			report, verdict := string(g.Report.JSON())+"\n", describe(g)
			if testkit.Updating() {
				archive.Files[2].Data, archive.Files[3].Data = []byte(report), []byte(verdict)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(archive.Files[2].Data), report); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(string(archive.Files[3].Data), verdict); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func describe(g Grade) string {
	var b strings.Builder
	fmt.Fprintf(&b, "resolved: %t\n", g.Resolved)
	for _, s := range g.Suspicious {
		fmt.Fprintf(&b, "%s: %s\n", s.Kind, s.Detail)
	}
	return b.String()
}

func TestGradeLogWithoutPatch(t *testing.T) {
	t.Parallel()
	g, err := GradeLog(env.Task{ID: "a-1", Tests: env.Tests{Parser: "no such parser"}}, Evidence{NoPatch: true})
	if err != nil {
		t.Fatal(err)
	}
	if !g.Report.PatchIsNone || g.Report.PatchExists || g.Resolved {
		t.Errorf("grade is %+v", g)
	}
}

const resolvedLog = "+ : '>>>>> Start Test Output'\nPASSED a\n+ : '>>>>> End Test Output'\n"

// On these logs, the harness raises an exception and writes no report.
func TestGradeLogCannot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		tests  env.Tests
		log    string
		reason Reason
	}{
		{"unknown parser", env.Tests{Parser: "parse_log_cobol", EvalType: PassAndFail}, "", UnknownParser},
		{"unknown eval type", env.Tests{Parser: "parse_log_pytest", EvalType: "pass_or_fail"}, resolvedLog, UnknownEvalType},
		{"no eval type", env.Tests{Parser: "parse_log_pytest"}, resolvedLog, UnknownEvalType},
		{"malformed", env.Tests{Parser: "parse_log_django", EvalType: PassAndFail},
			strings.Replace(resolvedLog, "PASSED a", "FAIL:", 1), MalformedLog},
		{"no such task", env.Tests{Parser: "parse_log_jekyll", EvalType: PassAndFail}, resolvedLog, UnsuitedParser},
		{"long exit code", env.Tests{Parser: "parse_log_pytest", EvalType: PassAndFail}, resolvedLog +
			">>>>> Test Exit Code: " + strings.Repeat("0", 4301), BadExitCode},
		{"by reward file", env.Tests{RewardFile: "/logs/verifier/reward.txt"}, resolvedLog, OtherGrading},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := GradeLog(env.Task{ID: "a-1", Tests: c.tests}, Evidence{Log: []byte(c.log)})
			ge, ok := errors.AsType[*GradingError](err)
			if !ok || ge.Reason != c.reason || !errors.Is(err, ErrUngradable) || ge.Task != "a-1" {
				t.Errorf("error is %v, want %s", err, c.reason)
			}
		})
	}
}

// What the harness does not look at cannot make it raise an exception.
func TestGradeLogLooksNoFurther(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		tests env.Tests
		log   string
	}{
		{"eval type of a log without markers", env.Tests{Parser: "parse_log_pytest", EvalType: "odd"}, "PASSED a"},
		{"malformed part behind a void log", env.Tests{Parser: "parse_log_django", EvalType: PassAndFail}, resolvedLog +
			"FAIL:\n>>>>> Reset Failed\n"},
		{"malformed part outside of the markers", env.Tests{Parser: "parse_log_django", EvalType: PassAndFail},
			strings.Replace(resolvedLog, "PASSED a", "a ... ok", 1) + "FAIL:\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := GradeLog(env.Task{ID: "a-1", Tests: c.tests}, Evidence{Log: []byte(c.log)}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestKnownExitCode(t *testing.T) {
	t.Parallel()
	task := env.Task{ID: "a-1", Tests: env.Tests{Parser: "parse_log_pytest", EvalType: PassAndFail,
		FailToPass: []string{"a"}}}
	for _, c := range []struct {
		log  string
		exit int
		kind SuspicionKind
	}{
		{resolvedLog, 0, ""},
		{resolvedLog, 1, SilentFailure},
		{resolvedLog + ">>>>> Test Exit Code: 0", 0, ""},
		{resolvedLog + ">>>>> Test Exit Code: 0", 1, ForgedExitCode},
	} {
		g, err := GradeLog(task, Evidence{Log: []byte(c.log), ExitCode: &c.exit})
		if err != nil {
			t.Fatal(err)
		}
		if !g.Report.Resolved || g.Resolved != (c.kind == "") || c.kind != "" && g.Suspicious[0].Kind != c.kind {
			t.Errorf("%q with exit code %d: resolved %t, %v, want %q", c.log, c.exit, g.Resolved, g.Suspicious, c.kind)
		}
	}
}

func TestFailedExit(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{"0": false, "-0": false, "000": false, "٠": false, "০0": false, "1": true,
		"-1": true, "٠١": true, "𝟎": false, "𝟏": true, "𝟗": true} {
		if got, err := failedExit(code); err != nil || got != want {
			t.Errorf("failedExit(%q) = %t, %v, want %t", code, got, err, want)
		}
	}
	if failed, err := failedExit("-" + strings.Repeat("0", 4299) + "1"); err != nil || !failed {
		t.Errorf("4,300 digits: %t, %v", failed, err)
	}
}

// Whatever the log, the report is valid JSON, and the strict reading never resolves what the harness does not.
func FuzzGradeLog(f *testing.F) {
	files, err := filepath.Glob("testdata/grade/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	names := testlog.Names()
	for i, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(archive.Files[1].Data, i, i%3 == 0)
	}
	f.Fuzz(func(t *testing.T, log []byte, parser int, failOnly bool) {
		task := env.Task{ID: "x__x-1", Tests: env.Tests{
			Parser: names[uint(parser)%uint(len(names))], Version: "3.1", EvalType: PassAndFail,
			FailToPass: []string{"tests/test_shelf.py::test_add", "a["}, PassToPass: []string{"é"},
		}}
		if failOnly {
			task.Tests.EvalType = FailOnly
		}
		g, err := GradeLog(task, Evidence{Log: log})
		if err != nil {
			if !errors.Is(err, ErrUngradable) {
				t.Fatal(err)
			}
			return
		}
		if g.Resolved && !g.Report.Resolved {
			t.Fatal("the stricter reading is kinder")
		}
		if !json.Valid(g.Report.JSON()) {
			t.Fatalf("no JSON: %s", g.Report.JSON())
		}
	})
}
