package verify

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"path"
	"regexp"
	"strings"

	"deepswe/env"
	"deepswe/verify/canary"
	"deepswe/verify/testlog"
)

// If a script gives the reward itself and calls a known runner, some of the tests that come with it are made wrong, and
// the reward must be lower with them. If a wrong test is reported as passed, the patch is to blame. If wrong tests fail
// and the reward is not lower, not even with the task's solution, the task is to blame: its script does not depend on
// its tests.

// elsewhere runs the script once more, so that it leaves its reward at a path that is not known in advance.
func (l *ladder) elsewhere(ctx context.Context) error {
	l.c.Canary, l.c.Reason = CanaryNotCanaried, "the task's script gives the reward itself"
	if len(l.v.Withheld) == 0 && !movable(l.task) { // a strict trial could give no other reward
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
	m := mixing{seed: l.seed, odds: l.odds, passed: true, before: l.ref.get().before}
	mixed := mixture{runs: 1}
	for ; m.run < mixed.runs; m.run++ {
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
	l.c.weigh(l.task, mixed, l.ref, l.v.Tests)
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
	says := fmt.Sprintf("the reward is %g although some of the tests must fail", t.v.Reward)
	if t.v.Status == TimedOut {
		says = "with some tests wrong, " + t.v.Detail
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

// readWrong records the wrong tests that the log does not report as failed. If a script prints nothing, these are all
// of them, but so they are with the solution, and are then no evidence.
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

// lowered returns the reason why the strict trial has lowered the reward.
func (t *trial) lowered() Suspicion {
	if len(t.v.Withheld) > 0 {
		return Suspicion{TestTampering, t.needsWithheld()}
	}
	return Suspicion{ForgedReward, fmt.Sprintf(
		"the reward is %g where the test script leaves it in another place (%s)", t.v.Reward, t.v.Status)}
}

// harborRewards is the directory that Harbor uses for rewards only.
const harborRewards = "/logs/verifier"

// rewardPlace returns the text by which a task's files refer to its reward: Harbor's directory, or the path of the
// reward file without its extension.
func rewardPlace(t env.Task) (place string, calls *regexp.Regexp) {
	place = strings.TrimSuffix(t.Tests.RewardFile, path.Ext(t.Tests.RewardFile))
	if path.Dir(place) == harborRewards {
		place = harborRewards
	}
	return place, regexp.MustCompile(regexp.QuoteMeta(place) + `(\.json\b|\.txt\b|[^\w.-]|$)`)
}

// movable reports whether a task's files contain its rewardPlace, so that it can be replaced by another.
func movable(t env.Task) bool {
	if t.Tests.RewardFile == "" {
		return false
	}
	_, calls := rewardPlace(t)
	return verifierHas(t, calls.MatchString)
}

// elsewhere returns a task with another path for the rewards, if it is movable. Its script is in the shell's memory, so
// that the code under test cannot rewrite it while it runs.
func elsewhere(t env.Task) (to env.Task, moved bool) {
	if !movable(t) {
		return t, false
	}
	place, calls := rewardPlace(t)
	into := place + "-" + strings.ToLower(rand.Text()[:12])
	move := func(text string) string { return calls.ReplaceAllString(text, into+"$1") }
	t.Tests.Files = maps.Clone(t.Tests.Files)
	for name, text := range t.Tests.Files {
		if !strings.Contains(text, "\x00") {
			t.Tests.Files[name] = move(text)
		}
	}
	t.Tests.Script = move(t.Tests.Script)
	t.Tests.RewardFile = into + strings.TrimPrefix(t.Tests.RewardFile, place)
	if before, found := strings.CutSuffix(t.Tests.Script, "\n"+harborScript+"\n"); found {
		if text := t.Tests.Files[harborScript]; fitsMemory(text) {
			t.Tests.Script = before + "\n/bin/bash -c " + env.ShellQuote(text) + " " + harborScript + "\n"
		}
	}
	return t, true
}

// harborScript is the path of a Harbor task's script.
const harborScript = "/tests/test.sh"

var bashLine = env.Pattern(`^#!\s*(/usr)?/bin/(env )?bash\s*\n`)

// fitsMemory reports whether a script does the same if it is passed to bash as an argument.
func fitsMemory(text string) bool {
	return bashLine().MatchString(text) && len(text) < longestArgument/2 && !strings.Contains(text, "BASH_SOURCE")
}

// verifierHas reports whether wanted is true for the script or for a text file that comes with it.
func verifierHas(t env.Task, wanted func(text string) bool) bool {
	if wanted(t.Tests.Script) {
		return true
	}
	for _, text := range t.Tests.Files {
		if !strings.Contains(text, "\x00") && wanted(text) {
			return true
		}
	}
	return false
}

// parser returns the name of the parser for the tests' output; empty if none is known.
func (t *trial) parser() string {
	if t.task.Tests.RewardFile != "" {
		return parserOf(shellText(t.task))
	}
	return t.task.Tests.Parser
}

// needsWithheld says that the tests do not pass without the changes that a strict trial withholds.
func (t *trial) needsWithheld() string {
	const most = 5
	var names []string
	for _, w := range t.v.Withheld[:min(most, len(t.v.Withheld))] {
		names = append(names, w.Path)
	}
	text := strings.Join(names, ", ")
	if more := len(t.v.Withheld) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("the tests do not pass without the patch's changes to %s (%s)", text, t.v.Status)
}
