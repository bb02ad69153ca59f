package verify

import (
	"context"
	"fmt"
	"time"

	"deepswe/env"
)

// EvaluateStrictly runs the tests only in strict trials, in which changes to the tests are withheld and some of them
// are wrong. It is for comparing patches by tests other than the task's own; maintained is set if these tests pass
// without any patch. The report says which tests pass, and Confirmation contains the result of the wrong ones. If the
// patch has manipulated the results, Suspicious says how. The error is an infrastructure failure.
func (e *Evaluator) EvaluateStrictly(
	ctx context.Context, t env.Task, patch []byte, maintained bool,
) (Evaluation, error) {
	began := time.Now()
	l := e.ladder(t, patch)
	l.comparing, l.maintained = true, maintained
	if err := l.mixed(ctx); err != nil {
		return Evaluation{}, fmt.Errorf("evaluate %s: %w", t.ID, err)
	}
	l.v.Confirmation = l.c
	l.v.Seconds = time.Since(began).Seconds()
	return l.v, nil
}
