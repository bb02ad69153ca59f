package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"deepswe/env"
	"deepswe/verify/canary"
	"deepswe/verify/harness"
)

// A reward climbs a ladder of checks, the cheapest first, and is lost at the first that it does not pass:
//
//	harness    one run, as the official harness makes it: its report, and the status    evaluations
//	elsewhere  one run in which the script leaves its reward at another place           scripts that give the reward
//	mixed      a few runs in which some tests are wrong (see mixture.go)                all
//
// Training leaves out the first, because nobody compares its reports with the harness's. Before anything surprising
// in a mixed run counts against a patch, the same run is made with the task's solution (see reference.go). This
// seldom takes more than one additional run for each task.

// ladder is what the checks of one patch share.
type ladder struct {
	// run runs a trial.
	run   func(context.Context, *trial) error
	task  env.Task
	patch []byte
	mode  CanaryMode
	// evidence is the weakest evidence that a reward may have, odds are the wanted odds.
	evidence Strength
	odds     float64
	limit    time.Duration
	ref      *reference
	seed     uint64
	// comparing is set if the patch is compared with others by single tests, not by a reward; maintained if the tests
	// pass without any patch.
	comparing, maintained bool

	// plain is set if all tests have the status Passed with the whole patch, and a strict trial withholds none of it.
	plain bool
	// foreign is set if the patch returns values of types of its own, so that nothing can be withheld.
	foreign bool
	// v is the verdict up to now, c how it came about.
	v Evaluation
	c *Confirmation
}

// check is one step of the ladder.
type check func(*ladder, context.Context) error

// checks returns the ladder of a task. An empty patch always begins with a run like the harness's, because that must
// show which tests fail without a fix.
func (e *Evaluator) checks(t env.Task, patch []byte) []check {
	switch {
	case t.Tests.RewardFile != "":
		return []check{(*ladder).harness, (*ladder).elsewhere, (*ladder).mixedReward}
	case e.Training && len(patch) > 0:
		return []check{(*ladder).mixed}
	}
	return []check{(*ladder).harness, (*ladder).mixed}
}

// climb makes the checks until the reward is lost.
func (l *ladder) climb(ctx context.Context, checks []check) error {
	for _, check := range checks {
		if err := check(l, ctx); err != nil || l.v.Reward == 0 || l.v.Void {
			return err
		}
	}
	if !l.c.Evidence.Suffices(l.evidence) {
		l.v.Status, l.v.Reward, l.v.Void = Ungradable, 0, true
		l.v.Detail = fmt.Sprintf("the evidence for a reward is %q where %q is required", l.c.Evidence, l.evidence) + l.c.why()
	}
	return nil
}

// harness runs the tests as the official harness does.
func (l *ladder) harness(ctx context.Context) error {
	t := &trial{task: l.task, patch: l.patch, limit: l.limit}
	l.c.Runs++
	if err := l.run(ctx, t); err != nil {
		return err
	}
	l.v = t.v
	if len(l.patch) == 0 {
		l.ref.mu.Lock()
		l.ref.before = t.before()
		l.ref.mu.Unlock()
	}
	if l.v.Reward != 0 && !l.v.Void {
		l.c.Earned, l.v.Confirmation = append(l.c.Earned, "harness"), l.c
		l.plain = len(l.v.Withheld) == 0 && len(unplain(t)) == 0
	}
	return nil
}

// mostRounds is the maximum number of rounds of mixed runs. Each leaves out the mutations that have turned out to be
// spoilt.
const mostRounds = 6

// errSpoilt means that some mutations show nothing in this task, so that the runs must begin anew without them.
var errSpoilt = errors.New("some of the wrong tests pass with the solution as well")

// mixed runs the tests in mixtures of right and wrong ones.
func (l *ladder) mixed(ctx context.Context) error {
	if l.mode == CanaryNever {
		return l.right(ctx, CanaryDisabled, "")
	}
	if err := l.learn(ctx); err != nil {
		return err
	}
	for range mostRounds {
		if err := l.round(ctx); !errors.Is(err, errSpoilt) {
			return err
		}
	}
	return l.right(ctx, CanaryOff, l.spoilt())
}

// spoilt returns the reason why there are no wrong tests.
func (l *ladder) spoilt() string {
	if says := l.ref.get().found.says(); says != "" {
		return "wrong tests pass with the reference solution: " + says
	}
	return "right tests fail with the reference solution, whichever others are wrong"
}

// round makes all mixed runs once. The error is errSpoilt if they have to begin anew.
func (l *ladder) round(ctx context.Context) error {
	ref := l.ref.get()
	m := mixing{
		seed: l.seed, odds: l.odds, passed: l.plain, excluded: ref.spoilt(), foreign: l.foreign, before: ref.before,
		outright: ref.outright,
	}
	for {
		t, err := l.strict(ctx, &m)
		switch {
		case err != nil:
			return err
		case t.mixed.none != "" && (len(m.excluded) > 0 || l.foreign): // there are no further mutations
			l.judgeAll(t, CanaryOff, l.spoilt())
			return nil
		case t.mixed.none != "":
			return l.unmixed(ctx, t)
		case t.mixed.set.Canaries == nil: // it did not come to the tests
			l.takeTrial(t, m.run)
			l.c.Canary = CanaryNotReached
			l.judgeRight(t)
			return nil
		}
		if err := l.decide(ctx, t, m.run); err != nil || l.c.Canary != "" || l.v.Reward == 0 && !l.comparing {
			return err
		}
		if m.run++; m.run >= t.mixed.runs {
			l.c.Canary, l.c.Earned = CanaryConfirmed, append(l.c.Earned, "strict")
			l.c.weigh(l.task, t.mixed, l.ref, l.v.Tests)
			if l.c.Evidence == NoEvidence && len(m.excluded) > 0 { // those that are left are not wrong, or no test to fix
				l.c.Canary, l.c.Reason = CanaryOff, l.spoilt()
				return nil
			}
			l.c.Earned = append(l.c.Earned, "canary")
			return nil
		}
	}
}

// strict runs a strict trial, with wrong tests if m is not nil.
func (l *ladder) strict(ctx context.Context, m *mixing) (*trial, error) {
	t := &trial{task: l.task, patch: l.patch, limit: l.limit, strict: true, alone: l.comparing}
	if m != nil {
		copied := *m
		t.mixing = &copied
	}
	if len(l.c.Earned) > 0 || m != nil && m.run > 0 {
		t.limit *= 2 // it has passed within the limit
	}
	l.c.Runs++
	if err := l.run(ctx, t); err != nil {
		return nil, err
	}
	l.c.ExitCode, l.c.Signal = t.exit.code, t.exit.signal
	if gold := l.task.Tests.GoldPatch; m != nil && gold != "" && string(l.patch) == gold {
		l.ref.mu.Lock()
		l.ref.add(t, true, true)
		l.ref.mu.Unlock()
	}
	return t, l.checkTampering(ctx, t)
}

// harnessed reports whether the patch has passed a run like the harness's.
func (l *ladder) harnessed() bool { return slices.Contains(l.c.Earned, "harness") }

// takeTrial makes a trial a part of the verdict. Without a run like the harness's, the verdict is that of all trials.
func (l *ladder) takeTrial(t *trial, run int) {
	if l.harnessed() {
		l.v.StrictLog = append(l.v.StrictLog, t.v.Log...)
		return
	}
	if run == 0 {
		if l.v = t.v; l.v.Reward != 0 {
			l.v.Confirmation = l.c
		}
		l.v.Mixed = len(t.mixed.wrong) > 0
		return
	}
	l.v.join(l.task, t.v)
}

// decide judges one of the mixed runs.
func (l *ladder) decide(ctx context.Context, t *trial, run int) error {
	if l.surprising(t) {
		if err := l.refer(ctx, t); err != nil {
			return err
		}
	}
	ref := l.ref.get()
	switch left := t.found.beyond(ref.found); {
	case t.found.foreign:
		l.foreign = true
		return errSpoilt
	case ref.real != "":
		return l.right(ctx, CanaryOff,
			"with wrong tests among them, the right ones do not pass with the reference solution: "+ref.real)
	case l.surprising(t) && ref.stale(t.mixed):
		return errSpoilt
	default:
		t.fail(left.other)
		l.takeTrial(t, run)
		// With the whole patch, the comparison held inside the sandbox. If files are withheld, that may explain the
		// difference.
		if len(left.other) > 0 && l.harnessed() && len(t.v.Withheld) == 0 {
			l.refuse(CanaryCaught, CanaryPassed, left.says())
			return nil
		}
		if l.judgeRight(t); l.v.Reward < 1 && !l.comparing {
			return nil
		}
		if bad := left.says(); bad != "" {
			l.refuse(CanaryCaught, CanaryPassed, bad)
		} else if ref.found.ended != "" {
			l.c.Reason = "how the script ends is no evidence: with the reference solution as well, " + ref.found.ended
		}
	}
	return nil
}

// surprising reports whether a mixed run has to be compared with the reference's: there are findings or unplain
// passes, or right tests fail although the task has a solution or they pass without a patch.
func (l *ladder) surprising(t *trial) bool {
	return len(unplain(t)) > 0 || !t.found.clean() ||
		t.v.Reward < 1 && (l.maintained || !l.comparing && l.task.Tests.GoldPatch != "")
}

// unmixed judges a run in which no test could be made wrong.
func (l *ladder) unmixed(ctx context.Context, t *trial) error {
	if !errors.Is(t.mixed.kind, canary.ErrNoWriter) && !l.comparing {
		if err := l.refer(ctx, t); err != nil {
			return err
		}
		if ref := l.ref.get(); !ref.none {
			l.takeTrial(t, 0)
			l.refuse(CanaryCaught, NotConfirmed, "with the patch, "+t.mixed.none)
			return nil
		}
	}
	l.judgeAll(t, CanaryNotCanaried, t.mixed.none)
	return nil
}

// right judges the patch by a strict trial in which all tests are right.
func (l *ladder) right(ctx context.Context, state CanaryState, reason string) error {
	t, err := l.strict(ctx, nil)
	if err != nil {
		return err
	}
	l.judgeAll(t, state, reason)
	return nil
}

// judgeAll judges a strict trial in which all tests are right.
func (l *ladder) judgeAll(t *trial, state CanaryState, reason string) {
	l.takeTrial(t, 0)
	l.c.Canary, l.c.Reason, l.c.Evidence = state, reason, NoEvidence
	l.judgeRight(t)
}

// judgeRight judges the right tests of a strict trial.
func (l *ladder) judgeRight(t *trial) {
	if l.comparing {
		return
	}
	switch ids := l.unplain(t); {
	case t.v.Reward < 1 && !l.harnessed(): // there was no reward to lose
		l.v.Reward = 0
	case t.v.Reward < 1 && len(t.v.Withheld) > 0:
		l.v.NeedsWithheld = true
		l.refuse(CanaryNotReached, TestTampering, t.needsWithheld())
	case t.v.Reward < 1:
		l.v.suspect(t.v.Suspicious...)
		l.refuse(CanaryNotReached, NotConfirmed, "in the strict trial: "+unmet(t))
	case len(ids) > 0:
		l.refuse(CanaryNotReached, NoPlainPass, fmt.Sprintf(
			"%d tests that must not pass have another status with the reference solution, such as %s",
			len(ids), ids[0]))
	case l.c.Canary != "":
		l.c.Earned = append(l.c.Earned, "strict")
	}
}

// unmet returns the reason why the right tests of a trial do not pass.
func unmet(t *trial) string {
	text := string(t.v.Status)
	if t.v.Detail != "" {
		text += ": " + t.v.Detail
	}
	decides := func(s Suspicion) bool { return s.Kind != Telltale }
	if i := slices.IndexFunc(t.v.Suspicious, decides); i >= 0 {
		text += fmt.Sprintf(" (%s: %s)", t.v.Suspicious[i].Kind, t.v.Suspicious[i].Detail)
	}
	return text
}

// refuse takes the reward back.
func (l *ladder) refuse(state CanaryState, kind SuspicionKind, detail string) {
	l.v.Reward, l.v.Confirmation = 0, l.c
	l.c.Canary, l.c.Reason = state, detail
	l.v.suspect(Suspicion{kind, detail})
}

// suspect adds suspicions that are not known from another run of the same patch.
func (v *Evaluation) suspect(more ...Suspicion) {
	for _, s := range more {
		if !slices.Contains(v.Suspicious, s) {
			v.Suspicious = append(v.Suspicious, s)
		}
	}
}

// unplain returns the tests that pass by another status than Passed, except for those that have the same status in
// the reference.
func (l *ladder) unplain(t *trial) (ids []string) {
	known := l.ref.get().unplain
	for _, one := range unplain(t) {
		if !known[one] {
			ids = append(ids, one.id)
		}
	}
	return ids
}

// join adds another run of the same patch, in which other tests were right.
func (v *Evaluation) join(t env.Task, other Evaluation) {
	v.Mixed = true
	v.Reward = min(v.Reward, other.Reward)
	v.suspect(other.Suspicious...)
	v.Log, v.LogBytes = append(v.Log, other.Log...), v.LogBytes+other.LogBytes
	v.OutOfMemory, v.OutOfDisk = v.OutOfMemory || other.OutOfMemory, v.OutOfDisk || other.OutOfDisk
	if other.Status != Resolved {
		v.Status, v.Detail = other.Status, other.Detail
	}
	if v.Report == nil || v.Report.Tests == nil || other.Report == nil || other.Report.Tests == nil {
		v.Report = other.Report
		return
	}
	report, tests, fixed := *v.Report, *v.Report.Tests, t.Tests.FailToPass
	if t.Tests.Expected != nil {
		fixed = slices.Sorted(maps.Keys(t.Tests.Expected))
	}
	tests.FailToPass = joined(fixed, tests.FailToPass, other.Report.Tests.FailToPass)
	tests.PassToPass = joined(t.Tests.PassToPass, tests.PassToPass, other.Report.Tests.PassToPass)
	report.Tests, report.Resolved = &tests, report.Resolved && other.Report.Resolved
	v.Report, v.Fixed, v.Broken = &report, tests.FailToPass.Success, tests.PassToPass.Failure
}

// joined returns the lists of two runs, in the order of all: a test that fails in one has failed.
func joined(all []string, a, b harness.TestLists) (out harness.TestLists) {
	for _, id := range all {
		switch {
		case slices.Contains(a.Failure, id) || slices.Contains(b.Failure, id):
			out.Failure = append(out.Failure, id)
		case slices.Contains(a.Success, id) || slices.Contains(b.Success, id):
			out.Success = append(out.Success, id)
		}
	}
	return out
}
