package verify

import (
	"context"
	"fmt"
	"time"

	"deepswe/env"
)

// EvaluateStrictly runs the strict trial alone, in one sandbox: the patch is taken only as far as it is evidence, so
// that what it changes of the tests does not count. The report says which tests pass; Reward and Suspicious are those
// of the strict trial. It compares patches by tests that are not the task's own. The error is an infrastructure
// failure.
func (e *Evaluator) EvaluateStrictly(ctx context.Context, t env.Task, patch []byte) (Evaluation, error) {
	began := time.Now()
	strict := &trial{task: t, patch: patch, limit: e.limit(t), strict: true, alone: true}
	if err := e.runTrial(ctx, strict); err != nil {
		return Evaluation{}, fmt.Errorf("evaluate %s: %w", t.ID, err)
	}
	strict.v.Seconds = time.Since(began).Seconds()
	return strict.v, nil
}

// applyLoosely applies a patch that git refuses, if the patch command takes it whole. Neither of the two leaves
// anything behind when it fails, so that one sandbox is enough. words are git's.
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
