package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"deepswe/env"
	"deepswe/verify/canary"
	"deepswe/verify/testlog"
)

// A reward of 1 is confirmed in a fresh sandbox, by a strict trial with twins of the tests, which must fail. If its
// outcome is not that of a fix, the same trial is run with the task's solution, once per task. This shows whether the
// patch or the task is the cause.

// references holds the outcomes of trials with the solution, by the key of the task.
type references struct {
	mu  sync.Mutex
	all map[string]*reference
}

// reference is the outcome of a trial with twins and the task's solution, or without any change if no solution is
// known.
type reference struct {
	mu   sync.Mutex
	done bool

	gold    bool
	planted planted
	found   findings
	// real is the reason why the real tests do not pass; empty if they pass.
	real  string
	tests *testlog.Results
	// named is set if the tests pass only under their own names.
	named bool
}

// of returns the entry of a task.
func (r *references) of(key string) *reference {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]*reference{}
	}
	if r.all[key] == nil {
		r.all[key] = &reference{}
	}
	return r.all[key]
}

// set stores the outcome of a trial.
func (r *reference) set(t *trial, gold bool) {
	r.done, r.gold, r.planted, r.found, r.tests = true, gold, t.planted, t.found, t.v.Tests
	r.real = ""
	if t.v.Reward < 1 {
		r.real = unmet(t)
	}
}

// shuffledInVain reports whether the names of the tests were shuffled, and the tests do not pass with the solution.
func (r *reference) shuffledInVain() bool {
	return r.gold && r.real != "" && r.planted.restore != nil
}

// unmet returns the reason why the real tests of a trial do not pass.
func unmet(t *trial) string {
	text := string(t.v.Status)
	if t.v.Detail != "" {
		text += ": " + t.v.Detail
	}
	if len(t.v.Suspicious) > 0 {
		text += fmt.Sprintf(" (%s: %s)", t.v.Suspicious[0].Kind, t.v.Suspicious[0].Detail)
	}
	return text
}

// confirming is the confirmation of one reward.
type confirming struct {
	*Evaluator
	task  env.Task
	patch []byte
	v     *Evaluation
	// strict is set if a strict trial without twins came before, alone if there is no other trial.
	strict, alone bool
	c             *Confirmation
	ref           *reference
}

// confirm confirms the reward of an evaluation, or takes it back.
func (e *Evaluator) confirm(ctx context.Context, t env.Task, patch []byte, v *Evaluation, strict bool) error {
	c := &confirming{Evaluator: e, task: t, patch: patch, v: v, strict: strict, c: v.Confirmation}
	c.c.GoldUnknown = t.Tests.GoldPatch == ""
	c.ref = e.references.of(e.Key(t, nil))
	err := c.run(ctx)
	c.require()
	return err
}

// require refuses a reward that twins must confirm and did not.
func (c *confirming) require() {
	if c.Canary != CanaryRequired || c.v.Reward <= 0 || c.c.Canary == CanaryClean {
		return
	}
	c.v.Status, c.v.Reward, c.v.Void = Ungradable, 0, true
	c.v.Detail = fmt.Sprintf("no canary confirms a reward (%s): %s", c.c.Canary, c.c.Reason)
}

// run runs the trial with twins, and the further trials that its outcome calls for.
func (c *confirming) run(ctx context.Context) error {
	t, err := c.trial(ctx, c.patch, c.Canary != CanaryNever)
	if err != nil {
		return err
	}
	c.c.ExitCode, c.c.Signal, c.v.StrictLog = t.exit.code, t.exit.signal, t.v.Log
	if string(c.patch) == c.task.Tests.GoldPatch && len(c.patch) > 0 {
		c.ref.mu.Lock()
		c.ref.set(t, true)
		c.ref.mu.Unlock()
	}
	if surprising(t) {
		if err := c.refer(ctx); err != nil {
			return err
		}
		if t, err = c.underOwnNames(ctx, t); err != nil {
			return err
		}
	}
	if c.Canary == CanaryNever {
		c.c.Canary = CanaryDisabled
		return c.real(t)
	}
	return c.decide(ctx, t)
}

// underOwnNames repeats a trial without shuffling names, if the tests do not pass under other names with the solution
// either.
func (c *confirming) underOwnNames(ctx context.Context, t *trial) (*trial, error) {
	c.ref.mu.Lock()
	named := c.ref.named
	c.ref.mu.Unlock()
	if !named || t.planted.restore == nil {
		return t, nil
	}
	t, err := c.trial(ctx, c.patch, true)
	if err == nil {
		c.c.ExitCode, c.c.Signal, c.v.StrictLog = t.exit.code, t.exit.signal, t.v.Log
	}
	return t, err
}

// trial runs a strict trial.
func (c *confirming) trial(ctx context.Context, patch []byte, twins bool) (*trial, error) {
	limit := c.limit(c.task)
	if twins {
		limit *= 2 // there are more tests to run
	}
	t := &trial{task: c.task, patch: patch, limit: limit, strict: true, canary: twins, alone: c.alone}
	if twins {
		c.ref.mu.Lock()
		if t.keepNames = c.ref.named; c.ref.done {
			t.excluded = map[string]bool{}
			for mutation := range c.ref.found.passed {
				t.excluded[mutation] = true
			}
		}
		c.ref.mu.Unlock()
	}
	c.c.Runs++
	return t, c.runTrial(ctx, t)
}

// surprising reports whether the outcome of a trial is not that of a fix.
func surprising(t *trial) bool {
	if len(unplain(t.task, t.v.Tests)) > 0 {
		return true
	}
	if t.planted.none != "" {
		return !errors.Is(t.planted.kind, canary.ErrNoWriter)
	}
	return t.canary && (t.v.Reward < 1 || len(t.found.passed) > 0 || t.found.ended != "")
}

// refer runs the trial with the solution, unless its outcome is known.
func (c *confirming) refer(ctx context.Context) error {
	c.ref.mu.Lock()
	defer c.ref.mu.Unlock()
	names := []bool{false, true}
	if c.ref.done && !c.ref.shuffledInVain() {
		return nil
	} else if c.ref.done {
		names = names[1:]
	}
	gold := c.task.Tests.GoldPatch
	for _, c.ref.named = range names {
		t := &trial{
			task: c.task, patch: []byte(gold), limit: 2 * c.limit(c.task), strict: true, canary: c.Canary != CanaryNever,
			keepNames: c.ref.named,
		}
		c.c.Runs++
		if err := c.runTrial(ctx, t); err != nil {
			return fmt.Errorf("try the reference solution: %w", err)
		}
		if c.ref.set(t, gold != ""); !c.ref.shuffledInVain() {
			break
		}
	}
	return nil
}

// decide gives the verdict, taking the reference into account.
func (c *confirming) decide(ctx context.Context, t *trial) error {
	ref := c.reference()
	left := t.found.beyond(ref.found)
	c.count(t, ref)
	switch {
	case t.planted.none != "" && len(ref.planted.twins) > 0:
		c.refuse(CanaryCaught, NotConfirmed, "with the patch, "+t.planted.none)
		return nil
	case t.planted.none != "":
		c.c.Canary, c.c.Reason = CanaryNotCanaried, t.planted.none
		return c.real(t)
	case ref.gold && ref.real != "":
		c.c.Canary = CanaryOff
		c.c.Reason = "with twins among them, the tests do not pass with the reference solution: " + ref.real
		return c.again(ctx, t)
	case c.c.Twins == 0:
		c.c.Canary, c.c.Reason = CanaryOff, "every twin passes with the reference solution: "+ref.found.says()
		return c.real(t)
	}
	if err := c.real(t); err != nil || c.v.Reward < 1 {
		return err
	}
	if bad := left.says(); bad != "" {
		c.refuse(CanaryCaught, CanaryPassed, bad)
		return nil
	}
	if ref.found.ended != "" {
		c.c.Reason = "how the script ends shows nothing: with the reference solution as well, " + ref.found.ended
	}
	c.c.Canary = CanaryClean
	c.c.Earned = append(c.c.Earned, "canary")
	return nil
}

// reference returns a copy of the reference, which is empty if there was no trial with the solution.
func (c *confirming) reference() *reference {
	c.ref.mu.Lock()
	defer c.ref.mu.Unlock()
	if !c.ref.done {
		return &reference{}
	}
	return &reference{
		done: true, gold: c.ref.gold, planted: c.ref.planted, found: c.ref.found, real: c.ref.real, tests: c.ref.tests,
	}
}

// count counts the twins that are taken into account, and those that pass with the solution as well.
func (c *confirming) count(t *trial, ref *reference) {
	for _, twin := range t.planted.twins {
		if _, passes := ref.found.passed[twin.Mutation]; passes {
			c.c.Spoilt++
		} else {
			c.c.Twins++
		}
	}
}

// beyond returns the findings that the reference does not have.
func (f findings) beyond(ref findings) findings {
	left := findings{passed: map[string]string{}}
	for mutation, says := range f.passed {
		if _, known := ref.passed[mutation]; !known {
			left.passed[mutation] = says
		}
	}
	if ref.ended == "" {
		left.ended = f.ended
	}
	return left
}

// real judges the real tests of a strict trial.
func (c *confirming) real(t *trial) error {
	if t.v.Reward < 1 {
		c.c.Canary = CanaryNotReached
		if len(t.v.Withheld) > 0 && !c.strict {
			c.v.NeedsWithheld = true
			c.refuse(CanaryNotReached, TestTampering, fmt.Sprintf(
				"the tests do not pass without the patch's changes to %s (%s)", listWithheld(t.v.Withheld), t.v.Status))
			return nil
		}
		c.v.Suspicious = append(c.v.Suspicious, t.v.Suspicious...)
		c.refuse(CanaryNotReached, NotConfirmed, "in the strict trial: "+unmet(t))
		return nil
	}
	if ids := c.unplain(t); len(ids) > 0 {
		c.refuse(CanaryNotReached, NoPlainPass, fmt.Sprintf(
			"%d expected tests have a status other than a pass that they do not have with the reference solution, such as %s",
			len(ids), ids[0]))
		return nil
	}
	if !slices.Contains(c.c.Earned, "strict") {
		c.c.Earned = append(c.c.Earned, "strict")
	}
	return nil
}

// again judges the real tests in a trial without twins, for tests that do not pass with twins among them.
func (c *confirming) again(ctx context.Context, t *trial) error {
	if c.strict || t.v.Reward >= 1 {
		return c.real(t)
	}
	plain, err := c.trial(ctx, c.patch, false)
	if err != nil {
		return err
	}
	state := c.c.Canary
	err = c.real(plain)
	if c.v.Reward >= 1 {
		c.c.Canary = state
	}
	return err
}

// refuse takes the reward back.
func (c *confirming) refuse(state CanaryState, kind SuspicionKind, detail string) {
	c.v.Reward, c.c.Canary, c.c.Reason = 0, state, detail
	c.v.Suspicious = append(c.v.Suspicious, Suspicion{kind, detail})
}

// unplain returns the expected tests that count as passed although their status is not Passed, with their statuses.
func unplain(t env.Task, r *testlog.Results) map[string]testlog.Status {
	found := map[string]testlog.Status{}
	if r == nil || t.Tests.Expected != nil || t.Tests.EvalType != PassAndFail {
		return found
	}
	for maintained, ids := range map[bool][]string{false: t.Tests.FailToPass, true: t.Tests.PassToPass} {
		for _, id := range ids {
			name, ok, _ := r.Resolve(id)
			if s, _ := r.Status(name); ok && s != testlog.Passed {
				if v, _ := passAndFail(id, r, maintained); v == succeeded {
					found[id] = s
				}
			}
		}
	}
	return found
}

// unplain returns such tests, except for those that have the same status in the reference.
func (c *confirming) unplain(t *trial) []string {
	var ids []string
	c.ref.mu.Lock()
	defer c.ref.mu.Unlock()
	for id, status := range unplain(t.task, t.v.Tests) {
		if c.ref.tests != nil {
			name, ok, _ := c.ref.tests.Resolve(id)
			if s, _ := c.ref.tests.Status(name); ok && s == status {
				continue
			}
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
