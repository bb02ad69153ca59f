package verify

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/verify/harness"
	"deepswe/verify/testlog"
)

// Grader is the version of the grading rules. It changes whenever a log could be graded differently, so that results
// may be cached under the task, the patch and this version.
const Grader = "swebench-5.0.2+deepswe.8"

// The values of a task's eval_type.
const (
	// PassAndFail requires that the log shows every expected test passing.
	PassAndFail = "pass_and_fail"
	// FailOnly requires that the log shows no expected test failing, for runners that print failures only.
	FailOnly = "fail_only"
)

// Evidence is the input of grading: the output of Task.Tests.Script, run in a pristine sandbox after the patch was
// applied. Only Log is required.
type Evidence struct {
	// Log is the complete output of the script, with both streams in the order in which they were written.
	Log []byte
	// NoPatch is set if the prediction has no patch at all (null, not ""), so that nothing was run.
	NoPatch bool
	// ExitCode is the test command's exit code, if it is known from elsewhere than the log.
	ExitCode *int
	// Thorough is set to read failures that the harness's parser overlooks; see [testlog.Thorough].
	Thorough bool
}

// parser returns the log parser of that name.
func (e Evidence) parser(name string) (testlog.Parser, error) {
	if e.Thorough {
		return testlog.Thorough(name)
	}
	return testlog.Lookup(name)
}

// parse reads the tests in a text of a task's log.
func (e Evidence) parse(t env.Task, text string) (*testlog.Results, error) {
	parse, err := e.parser(t.Tests.Parser)
	if err != nil {
		return nil, err
	}
	return parse(text, testlog.Task{ID: t.ID, Version: t.Tests.Version})
}

// Grade is the verdict on one log.
type Grade struct {
	// Report is the harness's report.
	Report harness.Report
	// Resolved is the stricter verdict, which decides the reward: resolved by the harness's rules, and not suspicious.
	Resolved bool
	// Suspicious lists what is suspicious about the log.
	Suspicious []Suspicion
	// Results are the tests in the log; nil if the log was not parsed.
	Results *testlog.Results
}

// ErrUngradable means that there is no verdict, because the log or the task is invalid. On such input the official
// harness raises an exception and writes no report.
var ErrUngradable = errors.New("cannot be graded")

// GradingError is the error of GradeLog. It wraps ErrUngradable and the cause.
type GradingError struct {
	Task   string
	Reason Reason
	Err    error
}

// Reason is the reason why a log has no verdict.
type Reason string

// The reasons.
const (
	UnknownParser   Reason = "unknown_parser"
	UnsuitedParser  Reason = "unsuited_parser"
	UnknownEvalType Reason = "unknown_eval_type"
	MalformedLog    Reason = "malformed_log"
	BadExitCode     Reason = "bad_exit_code"
	// NoTests: the task has no tests.
	NoTests Reason = "no_tests"
	// OtherGrading: the task is not graded by its log.
	OtherGrading Reason = "other_grading"
)

func (e *GradingError) Error() string {
	return fmt.Sprintf("grade %s: %s: %v", e.Task, e.Reason, e.Err)
}

func (e *GradingError) Unwrap() []error { return []error{ErrUngradable, e.Err} }

// GradeLog grades the log of a task by its test results. It refuses Harbor's tasks, whose scripts write a reward (see
// [ReadReward]). The error is a *GradingError.
func GradeLog(t env.Task, e Evidence) (Grade, error) {
	g := Grade{Report: harness.Report{ID: t.ID}}
	if e.NoPatch {
		g.Report.PatchIsNone = true
		return g, nil
	}
	g.Report.PatchExists = true
	if t.Tests.RewardFile != "" {
		err := fmt.Errorf("the task's script leaves its verdict in %s", t.Tests.RewardFile)
		return Grade{}, &GradingError{t.ID, OtherGrading, err}
	}
	log := mark(testlog.Decode(e.Log))
	grade := gradeHarness
	if t.Tests.Expected != nil {
		grade = gradeExpected
	}
	if err := grade(t, e, log, &g); err != nil {
		return Grade{}, &GradingError{t.ID, reasonOf(err), err}
	}
	if !g.Report.PatchApplied {
		if class, found := harness.Classify(log.text); found {
			g.Report.InfraFailure, g.Report.InfraReason = class.Tier == harness.Environment, class.Reason
		}
	}
	g.Suspicious = suspicions(t, e, log, g.Results)
	g.Resolved = g.Report.Resolved && len(g.Suspicious) == 0
	return g, nil
}

var (
	errEvalType = errors.New("unknown eval_type")
	errExitCode = errors.New("exit code is too long")
)

func reasonOf(err error) Reason {
	switch {
	case errors.Is(err, testlog.ErrUnknownParser):
		return UnknownParser
	case errors.Is(err, testlog.ErrUnsuitable):
		return UnsuitedParser
	case errors.Is(err, errEvalType):
		return UnknownEvalType
	case errors.Is(err, errExitCode):
		return BadExitCode
	}
	return MalformedLog
}

// gradeHarness grades as the official harness does, with its checks in the same order.
func gradeHarness(t env.Task, e Evidence, log markedLog, g *Grade) error {
	results, ok, err := readResults(t, e, log)
	if err != nil {
		return err
	}
	if !ok {
		return nil
	}
	g.Results = results
	g.Report.PatchApplied = true
	tests, err := compare(t.Tests, results)
	if err != nil {
		return err
	}
	g.Report.Tests = &tests
	g.Report.Resolved = tests.Resolved()
	return nil
}

// compare sorts the expected tests into those that succeed and those that fail. With PassAndFail, a test with an
// unknown status is in neither list.
func compare(tests env.Tests, r *testlog.Results) (harness.TestsStatus, error) {
	var s harness.TestsStatus
	var judge func(id string, r *testlog.Results, maintained bool) (verdict, error)
	switch tests.EvalType {
	case PassAndFail:
		judge = passAndFail
	case FailOnly:
		judge = failOnly
	default:
		return s, fmt.Errorf("%w %q", errEvalType, tests.EvalType)
	}
	for _, l := range []struct {
		ids        []string
		into       *harness.TestLists
		maintained bool
	}{{tests.FailToPass, &s.FailToPass, false}, {tests.PassToPass, &s.PassToPass, true}} {
		for _, id := range l.ids {
			v, err := judge(id, r, l.maintained)
			if err != nil {
				return s, err
			}
			sortInto(l.into, id, v)
		}
	}
	return s, nil
}

// verdict is the outcome of one expected test.
type verdict int

const (
	undecided verdict = iota
	succeeded
	failed
)

// sortInto adds a test to the list that its verdict belongs in.
func sortInto(l *harness.TestLists, id string, v verdict) {
	switch v {
	case succeeded:
		l.Success = append(l.Success, id)
	case failed:
		l.Failure = append(l.Failure, id)
	case undecided:
	}
}

// passAndFail judges a test by its status. A skipped one counts as maintained, but not as fixed.
func passAndFail(id string, r *testlog.Results, maintained bool) (verdict, error) {
	name, found, err := r.Resolve(id)
	if err != nil {
		return undecided, err
	}
	if !found {
		return failed, nil
	}
	switch s, _ := r.Status(name); {
	case s == testlog.Passed, s == testlog.XFailed, s == testlog.Skipped && maintained:
		return succeeded, nil
	case s == testlog.Failed, s == testlog.Errored, s == testlog.Skipped:
		return failed, nil
	}
	return undecided, nil
}

func failOnly(id string, r *testlog.Results, _ bool) (verdict, error) {
	if s, _ := r.Status(id); s == testlog.Failed {
		return failed, nil
	}
	return succeeded, nil
}

// gradeExpected grades a task of R2E-Gym. The log must contain exactly the expected tests, each with its expected
// status, which may be a failure. The report lists the expected tests as FAIL_TO_PASS.
//
// A test without a name is a file that could not be collected. It fails the task, unless the expected results contain
// one too: then the reference solution's log had such lines as well.
func gradeExpected(t env.Task, e Evidence, log markedLog, g *Grade) error {
	var err error
	if g.Results, err = e.parse(t, log.text); err != nil {
		return err
	}
	expected := map[string]testlog.Status{}
	for name, status := range t.Tests.Expected {
		name, _, _ = strings.Cut(name, " - ")
		expected[name] = testlog.Worse(expected[name], testlog.Status(status))
	}
	var tests harness.TestsStatus
	equal := true
	for _, name := range slices.Sorted(maps.Keys(expected)) {
		if name == "" {
			continue
		}
		v := failed
		if s, found := g.Results.Status(name); found && s == expected[name] {
			v = succeeded
		}
		sortInto(&tests.FailToPass, name, v)
		equal = equal && v == succeeded
	}
	for name := range g.Results.All() {
		_, known := expected[name]
		equal = equal && known
	}
	if g.Results.Len() > 0 {
		g.Report.PatchApplied, g.Report.Tests, g.Report.Resolved = true, &tests, equal
	}
	return nil
}
