package verify

import (
	"context"
	"fmt"
	"time"

	"deepswe/env"
)

// EvaluateStrictly runs only the strict trial with twins, in which changes to the tests are withheld. It is for
// comparing patches by tests other than the task's own; maintained is set if these tests pass without any patch. The
// report says which tests pass, and Confirmation contains the result of the twins. If the patch has manipulated the
// results, Suspicious says how, and Reward is 0. The error is an infrastructure failure.
func (e *Evaluator) EvaluateStrictly(
	ctx context.Context, t env.Task, patch []byte, maintained bool,
) (Evaluation, error) {
	began := time.Now()
	v := Evaluation{}
	c := &confirming{
		Evaluator: e, task: t, patch: patch, v: &v, strict: true, alone: true, c: &Confirmation{},
		ref: e.references.of(e.Key(t, nil)),
	}
	c.c.GoldUnknown = t.Tests.GoldPatch == ""
	if err := c.only(ctx, maintained); err != nil {
		return Evaluation{}, fmt.Errorf("evaluate %s: %w", t.ID, err)
	}
	v.Confirmation = c.c
	v.Seconds = time.Since(began).Seconds()
	return v, nil
}

// only runs the trial and gives the verdict.
func (c *confirming) only(ctx context.Context, maintained bool) error {
	t, err := c.trial(ctx, c.patch, c.Canary != CanaryNever)
	if err != nil {
		return err
	}
	broken := maintained && t.v.Reward < 1 && len(t.planted.twins) > 0
	if len(t.found.passed) > 0 || t.found.ended != "" || broken {
		if err := c.refer(ctx); err != nil {
			return err
		}
	}
	ref := c.reference()
	if broken && ref.real != "" {
		c.c.Canary, c.c.Reason = CanaryOff, "with twins beside them, the tests do not pass without a patch either: "+ref.real
		if t, err = c.trial(ctx, c.patch, false); err == nil {
			*c.v = t.v
		}
		return err
	}
	*c.v = t.v
	c.c.ExitCode, c.c.Signal = t.exit.code, t.exit.signal
	c.count(t, ref)
	switch bad := t.found.beyond(ref.found).says(); {
	case c.Canary == CanaryNever:
		c.c.Canary = CanaryDisabled
	case t.planted.none != "":
		c.c.Canary, c.c.Reason = CanaryNotCanaried, t.planted.none
	case t.v.Tests == nil:
		c.c.Canary = CanaryNotReached
	case c.c.Twins == 0:
		c.c.Canary, c.c.Reason = CanaryOff, "every twin passes without a patch: "+ref.found.says()
	case bad != "":
		c.refuse(CanaryCaught, CanaryPassed, bad)
	default:
		c.c.Canary = CanaryClean
	}
	return nil
}

// applyLoosely applies a patch that git refuses, if the patch command applies all of it. Neither changes anything if it
// fails, so that one sandbox is enough. words is git's output.
func (t *trial) applyLoosely(ctx context.Context, words string) (command, why string, err error) {
	const loosely = "patch --batch --forward --fuzz=5 -p1"
	for _, dry := range []string{" --dry-run", ""} {
		r, err := t.git(ctx, loosely+dry+" -i "+t.patchPath)
		if err != nil {
			return "", "", fmt.Errorf("apply the patch: %w", err)
		}
		if r.ExitCode != 0 {
			return "", words, nil
		}
	}
	return loosely, "", nil
}
