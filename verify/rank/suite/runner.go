package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/verify"
	"deepswe/verify/testlog"
)

// Grader is the version of the rules by which results are read. Cached results depend on it.
const Grader = verify.Grader + "+suite.2"

// Runner runs scripts. Evaluator is required, with its provider.
type Runner struct {
	Evaluator *verify.Evaluator
}

// Baseline is the result of a script on the base, without any patch.
type Baseline struct {
	// Script is the script, with the detected command.
	Script Script `json:"script"`
	// Kept lists the tests that behave as expected, sorted; Dropped the others, with the reasons.
	Kept    []string  `json:"kept"`
	Dropped []Dropped `json:"dropped"`
	// Problem is the reason why there are no tests at all.
	Problem string `json:"problem,omitempty"`
	// State identifies the base: what it was made from, and the limits.
	State   string  `json:"state"`
	Seconds float64 `json:"seconds"`
}

// Dropped is a test that does not count.
type Dropped struct {
	Test   string `json:"test"`
	Reason string `json:"reason"`
}

// Result is the result of a script on a patch.
type Result struct {
	// Passed lists the kept tests that pass, sorted.
	Passed []string `json:"passed"`
	// Rejected is why the patch does not count: it does not apply, or it was caught forging results.
	Rejected string `json:"rejected,omitempty"`
	// Note says anything else, such as a limit that was reached.
	Note    string  `json:"note,omitempty"`
	Seconds float64 `json:"seconds"`
}

// Base runs the script twice in one sandbox of the base, and keeps the tests that behave as expected both times. An
// error is an infrastructure failure.
func (r *Runner) Base(ctx context.Context, t env.Task, s Script) (b Baseline, err error) {
	began := time.Now()
	defer func() { b.Seconds = time.Since(began).Seconds() }()
	b = Baseline{Script: s, Kept: []string{}, Dropped: []Dropped{}, State: r.Evaluator.Key(t, nil)}
	sb, err := r.start(ctx, t)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, sb.Close(context.WithoutCancel(ctx))) }()
	if s.Command == "" {
		s.Command, s.Parser, err = find(ctx, sb)
		if errors.Is(err, errNoTests) {
			b.Problem = err.Error()
			return b, nil
		}
		if err != nil {
			return b, fmt.Errorf("find the tests: %w", err)
		}
		b.Script = s
	}
	parse, err := testlog.Lookup(s.Parser)
	if err != nil {
		b.Problem = err.Error()
		return b, nil
	}
	if problem, err := write(ctx, sb, s.Files); err != nil || problem != "" {
		b.Problem = problem
		return b, err
	}
	var runs [2]map[string]testlog.Status
	for i := range runs {
		log, problem, err := r.once(ctx, sb, s.task(t, nil))
		if err != nil || problem != "" {
			b.Problem = problem
			return b, err
		}
		results, err := parse(testlog.Decode(log), testlog.Task{ID: t.ID, Version: t.Tests.Version})
		if err != nil {
			b.Problem = "its output cannot be read: " + err.Error()
			return b, nil
		}
		runs[i] = maps.Collect(results.All())
		if len(runs[i]) == 0 {
			b.Problem = "its output names no test: " + lastLine(log)
			return b, nil
		}
	}
	b.sort(s.Kind, runs)
	return b, nil
}

// start starts a sandbox like the grader's.
func (r *Runner) start(ctx context.Context, t env.Task) (env.Sandbox, error) {
	s := t.Spec()
	s.Prepare, s.Network, s.Run = t.Tests.Prepare, r.Evaluator.Network || t.Tests.Network, r.Evaluator.Run
	s.Grading = true
	sb, err := r.Evaluator.Provider.Start(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	return sb, nil
}

func write(ctx context.Context, sb env.Sandbox, files map[string]string) (problem string, err error) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		_, err := sb.Write(ctx, filepath.Join(sb.Dir(), name), []byte(files[name]),
			env.WriteOptions{Parents: true, Mode: 0o755})
		switch {
		case err == nil:
		case env.IsInfrastructure(ctx, err):
			return "", fmt.Errorf("write %s: %w", name, err)
		case errors.Is(err, env.ErrNoSpace): // nothing has run yet that could have filled the disk
			return "", fmt.Errorf("%w: write %s: %w", env.ErrInfrastructure, name, err)
		default:
			return fmt.Sprintf("%s cannot be written: %v", name, err), nil
		}
	}
	return "", nil
}

// maxLog is the maximum size of a log on the base, in bytes.
const maxLog = 64 << 20

// once runs the script of the task, and returns its log or its problem.
func (r *Runner) once(ctx context.Context, sb env.Sandbox, t env.Task) (log []byte, problem string, err error) {
	limit := cmp.Or(r.Evaluator.Timeout, t.Tests.Timeout, verify.EvaluationTimeout)
	result, err := sb.Run(ctx, env.Command{
		Line: "exec 2>&1\n" + t.Tests.Script, Timeout: limit, Head: maxLog, Tail: 1,
	})
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("run the tests: %w", err)
	case result.TimedOut:
		return nil, fmt.Sprintf("it took longer than %s on the base", limit), nil
	case result.Stdout.Size > maxLog:
		return nil, fmt.Sprintf("its log of %d bytes is longer than %d", result.Stdout.Size, maxLog), nil
	}
	return result.Stdout.Head, "", nil
}

// sort fills Kept and Dropped from the results of both runs.
func (b *Baseline) sort(kind Kind, runs [2]map[string]testlog.Status) {
	names := slices.Sorted(maps.Keys(runs[0]))
	for name := range runs[1] {
		if _, ok := runs[0][name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	want := testlog.Passed
	if kind == Reproduction {
		want = testlog.Failed
	}
	for _, name := range names {
		first, second := runs[0][name], runs[1][name]
		var reason string
		switch {
		case first != second:
			reason = fmt.Sprintf("flaky: %s and then %s on the base", spell(first), spell(second))
		case first == want:
			b.Kept = append(b.Kept, name)
			continue
		case first == testlog.Errored && kind == Reproduction:
			reason = "toxic: fails on the base for a technical reason, not for the issue"
		case kind == Reproduction:
			reason = fmt.Sprintf("does not reproduce the issue: %s on the base", spell(first))
		default:
			reason = fmt.Sprintf("%s on the base", spell(first))
		}
		b.Dropped = append(b.Dropped, Dropped{name, reason})
	}
	if len(b.Kept) == 0 {
		b.Problem = "no test behaves as it claims on the base"
	}
}

func spell(s testlog.Status) string {
	if s == "" {
		return "missing"
	}
	return strings.ToLower(string(s))
}

// Run runs the script of a baseline on a patch, in a fresh sandbox. An error is an infrastructure failure.
func (r *Runner) Run(ctx context.Context, t env.Task, b Baseline, patch []byte) (Result, error) {
	v, err := r.Evaluator.EvaluateStrictly(ctx, b.Script.task(t, b.Kept), patch, b.Script.Kind == Regression)
	if err != nil {
		return Result{}, err
	}
	out := Result{Passed: []string{}, Seconds: v.Seconds}
	for _, id := range b.Kept {
		if slices.Contains(v.Fixed, id) {
			out.Passed = append(out.Passed, id)
		}
	}
	switch v.Status {
	case verify.PatchFailed:
		out.Rejected = "the patch does not apply: " + gitError(v.Detail)
	case verify.TimedOut, verify.Ungradable:
		out.Note = firstLine(v.Detail)
	default:
	}
	if s, ok := forged(v); ok {
		out.Passed, out.Rejected = []string{}, fmt.Sprintf("results are forged (%s): %s", s.Kind, firstLine(s.Detail))
	}
	return out, nil
}

// forged returns the evidence that a patch has forged its results.
func forged(v verify.Evaluation) (verify.Suspicion, bool) {
	for _, s := range v.Suspicious {
		switch s.Kind {
		case verify.ForgedMarker, verify.ForgedExitCode, verify.Contradiction, verify.OutsideSummary,
			verify.TestTampering, verify.CanaryPassed, verify.KilledScript:
			return s, true
		case verify.LostExitCode, verify.SilentFailure:
			if v.Status == verify.Resolved {
				return s, true // everything seems to pass, but the run failed
			}
		case verify.UnknownStatus:
		}
	}
	return verify.Suspicion{}, false
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// gitError returns git's error message without the command.
func gitError(text string) string {
	for line := range strings.Lines(text) {
		what, ok := strings.CutPrefix(strings.TrimSpace(line), "error: ")
		if at, failed := strings.CutPrefix(what, "patch failed: "); failed {
			return "it does not match " + at
		}
		if ok && what != "while searching for:" {
			return what
		}
	}
	return firstLine(text)
}

func lastLine(log []byte) string {
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if line := strings.TrimSpace(lines[i]); line != "" && !strings.HasPrefix(line, ">>>>>") {
			return line
		}
	}
	return "it printed nothing"
}
