package verify

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"strings"

	"deepswe/env"
	"deepswe/verify/canary"
	"deepswe/verify/testlog"
)

// If a script gives the reward itself and calls a known runner, some of the tests that come with it are made wrong, and
// the reward must be lower with them. If a wrong test is reported as passed, the patch is to blame. If wrong tests fail
// and the reward is not lower, with the task's solution either, the task is: its script does not depend on its tests.

// elsewhere runs the script once more, where it leaves its reward at a path that is not known in advance.
func (l *ladder) elsewhere(ctx context.Context) error {
	l.c.Canary, l.c.Reason = CanaryNotCanaried, "the task's script gives the reward itself"
	t := &trial{task: l.task, v: l.v}
	if !t.confirmable() {
		return nil
	}
	t, err := l.strict(ctx, nil)
	if err != nil {
		return err
	}
	if l.v.StrictLog = t.v.Log; t.v.Reward < l.v.Reward {
		l.v.Reward, l.v.NeedsWithheld = t.v.Reward, len(l.v.Withheld) > 0
		l.v.Suspicious = append(l.v.Suspicious, t.lowered())
		return nil
	}
	l.c.Earned = append(l.c.Earned, "strict")
	return nil
}

// mixedReward runs the script with wrong tests, with which the reward must be lower.
func (l *ladder) mixedReward(ctx context.Context) error {
	if l.mode == CanaryNever {
		l.c.Canary, l.c.Reason = CanaryDisabled, ""
		return nil
	}
	if parserOf(shellText(l.task)) == "" {
		return nil
	}
	if err := l.learn(ctx); err != nil {
		return err
	}
	m := mixing{seed: l.seed, before: l.ref.get().before}
	var mixed mixture
	for ; m.run < 2; m.run++ {
		t, err := l.strict(ctx, &m)
		if err != nil {
			return err
		}
		if l.v.StrictLog = t.v.Log; t.mixed.none != "" {
			l.c.Reason = t.mixed.none
			return nil
		}
		mixed = t.mixed
		if done, err := l.decideReward(ctx, t); done || err != nil {
			return err
		}
	}
	l.c.Canary, l.c.Reason = CanaryConfirmed, ""
	l.c.Earned = append(l.c.Earned, "canary")
	l.c.weigh(l.task, mixed, l.ref)
	return nil
}

// decideReward judges one of the mixed runs. done is set if no other has to follow.
func (l *ladder) decideReward(ctx context.Context, t *trial) (done bool, err error) {
	if len(t.mixed.wrong) == 0 { // every test is right
		if t.v.Reward < l.v.Reward {
			l.refuse(CanaryCaught, NotConfirmed, fmt.Sprintf("the reward is %g in another run", t.v.Reward))
		}
		return t.v.Reward < l.v.Reward, nil
	}
	if len(t.found.passed) > 0 {
		if err := l.refer(ctx, t); err != nil {
			return false, err
		}
		if left := without(t.found.passed, l.ref.get().found.passed); len(left) > 0 {
			l.refuse(CanaryCaught, CanaryPassed, findings{passed: left}.says())
			return true, nil
		}
	}
	if t.v.Reward < l.v.Reward && t.v.Status != TimedOut {
		return false, nil
	}
	if err := l.refer(ctx, t); err != nil {
		return false, err
	}
	says := fmt.Sprintf("the reward is %g with tests among them that must fail", t.v.Reward)
	if t.v.Status == TimedOut {
		says = "with wrong tests among them, " + t.v.Detail
	}
	failed := len(t.found.passed) < len(t.mixed.wrong)
	switch ref := l.ref.get(); {
	case ref.gold && (ref.reward < l.v.Reward && ref.status != TimedOut):
		l.refuse(CanaryCaught, CanaryPassed, says)
	case ref.gold, failed, t.v.Status == TimedOut, !decides().MatchString(shellText(l.task)):
		l.c.Canary, l.c.Reason = CanaryOff, "the reward does not depend on the tests: "+says
	default:
		l.refuse(CanaryCaught, CanaryPassed, says)
	}
	return true, nil
}

// decides matches scripts that check how their tests have ended.
var decides = env.Pattern(`\$\?|set -\w*e|&&|\|\||\bif\s|PIPESTATUS|ctrf|junit`)

// readWrong records the wrong tests that the log does not report as failed. Where a script prints nothing, these are
// all, with the solution as well, and then they are no evidence.
func (t *trial) readWrong() {
	t.found.passed = map[string]string{}
	for _, i := range t.mixed.wrong {
		c := t.mixed.set.Canaries[i]
		t.found.passed[c.Mutation] = fmt.Sprintf("%s (%s) is not in the log", c.Name, c.Kind)
	}
	parse, err := testlog.Lookup(t.parser())
	if err != nil {
		return
	}
	r, err := parse(testlog.Decode(t.v.Log), testlog.Task{ID: t.task.ID})
	if err != nil {
		return
	}
	for _, i := range t.mixed.wrong {
		c := t.mixed.set.Canaries[i]
		passed := false
		for name, status := range r.All() {
			switch {
			case !c.Reports(name):
			case status == testlog.Failed || status == testlog.Errored:
				if !passed {
					delete(t.found.passed, c.Mutation)
				}
			case status == testlog.Passed:
				passed = true
				t.found.passed[c.Mutation] = fmt.Sprintf("%s (%s) has the status %s", name, c.Kind, status)
			}
		}
	}
}

// runnersParsers are the parsers for the output of runners. The first runner that a script calls counts.
var runnersParsers = []struct {
	call   func() *regexp.Regexp
	parser string
}{
	{env.Pattern(`\bpy\.?test\b`), "parse_log_pytest"},
	{env.Pattern(`\b(unittest|manage\.py test)\b`), "parse_log_django"},
	{env.Pattern(`\bgo test\b`), "parse_log_gotest"},
	{env.Pattern(`\bvitest\b`), "parse_log_vitest"},
	{env.Pattern(`\bjest\b`), "parse_log_jest"},
	{env.Pattern(`\bmocha\b`), testlog.Rebench2 + "parse_log_js_2"},
	{env.Pattern(`\bnode\b.*\s--test\b`), "parse_log_tap"},
}

// parserOf returns the name of the parser for the runner that a script calls; empty if it calls no known runner.
func parserOf(shell string) string {
	for _, r := range runnersParsers {
		if r.call().MatchString(shell) {
			return r.parser
		}
	}
	return ""
}

// testFiles matches names of files with tests.
var testFiles = env.Pattern(`^(test_.*|.*_test|.*_tests|tests?)\.(py|go)$|` +
	`[._-](test|spec)\.[cm]?[jt]sx?$|^tests?\.[cm]?js$`)

// listed returns the ids of all tests in test files.
func listed(w canary.Writer, sources []canary.Source) (ids []string) {
	for _, s := range sources {
		if testFiles().MatchString(path.Base(s.Name)) || strings.Contains("/"+path.Dir(s.Name)+"/", "/__tests__/") {
			ids = append(ids, canary.List(w, s)...)
		}
	}
	return ids
}
