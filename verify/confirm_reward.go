package verify

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"deepswe/verify/canary"
	"deepswe/verify/testlog"
)

// If a script gives the reward itself and calls a known runner, twins are added to the tests that come with it, and the
// reward must be lower with them. If a twin is reported as passed, the patch is to blame. If twins fail and the reward
// is not lower, the task is: its script does not depend on its tests.

// confirmReward confirms or lowers a reward that a script has given.
func (e *Evaluator) confirmReward(ctx context.Context, first *trial, v *Evaluation) error {
	c := &confirming{Evaluator: e, task: first.task, patch: first.patch, v: v, c: v.Confirmation}
	c.c.Canary, c.c.Reason = CanaryNotCanaried, "the task's script gives the reward itself"
	c.c.GoldUnknown = first.task.Tests.GoldPatch == ""
	c.ref = e.references.of(e.Key(first.task, nil))
	defer c.require()
	if first.confirmable() {
		strict := &trial{task: first.task, patch: first.patch, limit: first.limit, strict: true}
		c.c.Runs++
		if err := e.runTrial(ctx, strict); err != nil {
			return err
		}
		if v.StrictLog = strict.v.Log; strict.v.Reward < v.Reward {
			v.Reward, v.NeedsWithheld = strict.v.Reward, len(v.Withheld) > 0
			v.Suspicious = append(v.Suspicious, strict.lowered())
			return nil
		}
		c.c.Earned = append(c.c.Earned, "strict")
	}
	if c.Canary == CanaryNever {
		c.c.Canary, c.c.Reason = CanaryDisabled, ""
		return nil
	}
	if parserOf(shellText(c.task)) == "" {
		return nil
	}
	return c.lowerWithTwins(ctx, first)
}

// lowerWithTwins runs the trial with twins, in which the reward must be lower.
func (c *confirming) lowerWithTwins(ctx context.Context, first *trial) error {
	t, err := c.trial(ctx, c.patch, true)
	if err != nil {
		return err
	}
	c.c.ExitCode, c.c.Signal, c.c.Twins = t.exit.code, t.exit.signal, len(t.planted.twins)
	if t.planted.none != "" {
		c.c.Reason = t.planted.none
		return nil
	}
	c.v.StrictLog = t.v.Log
	seen := t.readTwins()
	before := first.failing()
	bad := findings{passed: t.found.passed}.says()
	decisive := decides.MatchString(shellText(c.task))
	switch fell := t.v.Reward < c.v.Reward; {
	case bad != "":
		c.lower(CanaryPassed, bad)
	case t.shuffledFails(before):
		c.lower(NotConfirmed, "tests fail under other names than their own")
	case !fell && (seen || !decisive):
		c.c.Canary, c.c.Reason = CanaryOff, "the reward is the same whether tests pass or fail"
	case !fell:
		c.lower(CanaryPassed, fmt.Sprintf("the reward is %g with tests among them that must fail", t.v.Reward))
	case t.v.Status == TimedOut:
		c.c.Canary, c.c.Reason = CanaryOff, "with twins beside them, "+t.v.Detail
	default:
		c.c.Canary, c.c.Reason = CanaryClean, ""
		c.c.Earned = append(c.c.Earned, "canary")
	}
	return nil
}

// lower takes the reward back.
func (c *confirming) lower(kind SuspicionKind, detail string) { c.refuse(CanaryCaught, kind, detail) }

// decides matches scripts that check how their tests have ended.
var decides = regexp.MustCompile(`\$\?|set -\w*e|&&|\|\||\bif\s|PIPESTATUS|ctrf|junit`)

// readTwins records the twins that the log does not report as failed, and reports whether any twin has failed.
func (t *trial) readTwins() (failed bool) {
	t.found.passed = map[string]string{}
	parse, err := Evidence{Restore: t.planted.restore}.parser(t.parser())
	if err != nil {
		return false
	}
	r, err := parse(testlog.Decode(t.v.Log), testlog.Task{ID: t.task.ID})
	if err != nil {
		return false
	}
	t.v.Tests = r
	for _, twin := range t.planted.twins {
		for name, status := range r.All() {
			switch {
			case !twin.Reports(name):
			case status == testlog.Failed || status == testlog.Errored:
				failed = true
			case status == testlog.Passed:
				t.found.passed[twin.Mutation] = fmt.Sprintf("%s of %s has the status %s", twin.Kind, twin.Test, status)
			}
		}
	}
	return failed
}

// failing returns the tests that the log reports as failing.
func (t *trial) failing() map[string]bool {
	names := map[string]bool{}
	parse, err := testlog.Lookup(t.parser())
	if err != nil {
		return names
	}
	r, err := parse(testlog.Decode(t.v.Log), testlog.Task{ID: t.task.ID})
	if err != nil {
		return names
	}
	for name, status := range r.All() {
		names[name] = status == testlog.Failed || status == testlog.Errored
	}
	return names
}

// shuffledFails reports whether a test fails under a twin's name that did not fail under its own name before.
func (t *trial) shuffledFails(before map[string]bool) bool {
	if t.planted.restore == nil || t.v.Tests == nil {
		return false
	}
	for name, status := range t.v.Tests.All() {
		if status != testlog.Failed && status != testlog.Errored || before[name] || t.planted.restore(name) == name {
			continue
		}
		twin := slices.ContainsFunc(t.planted.twins, func(twin canary.Twin) bool { return twin.Reports(name) })
		if !twin {
			return true
		}
	}
	return false
}

// runnersParsers are the parsers for the output of runners. The first runner that a script calls counts.
var runnersParsers = []struct {
	call   *regexp.Regexp
	parser string
}{
	{regexp.MustCompile(`\bpy\.?test\b`), "parse_log_pytest"},
	{regexp.MustCompile(`\b(unittest|manage\.py test)\b`), "parse_log_django"},
	{regexp.MustCompile(`\bgo test\b`), "parse_log_gotest"},
	{regexp.MustCompile(`\bvitest\b`), "parse_log_vitest"},
	{regexp.MustCompile(`\bjest\b`), "parse_log_jest"},
	{regexp.MustCompile(`\bmocha\b`), testlog.Rebench2 + "parse_log_js_2"},
	{regexp.MustCompile(`\bnode\b.*\s--test\b`), "parse_log_tap"},
}

// parserOf returns the name of the parser for the runner that a script calls; empty if it calls no known runner.
func parserOf(shell string) string {
	for _, r := range runnersParsers {
		if r.call.MatchString(shell) {
			return r.parser
		}
	}
	return ""
}

// testFiles matches names of files with tests.
var testFiles = regexp.MustCompile(`^(test_.*|.*_test|.*_tests|tests?)\.(py|go)$|` +
	`[._-](test|spec)\.[cm]?[jt]sx?$|^tests?\.[cm]?js$`)

// listed returns the ids of all tests in test files.
func listed(w canary.Writer, sources []canary.Source) (ids []string) {
	for _, s := range sources {
		if testFiles.MatchString(path.Base(s.Name)) || strings.Contains("/"+path.Dir(s.Name)+"/", "/__tests__/") {
			ids = append(ids, canary.List(w, s)...)
		}
	}
	return ids
}
