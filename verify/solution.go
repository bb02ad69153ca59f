package verify

import (
	"context"
	"errors"
	"fmt"

	"deepswe/env"
)

// Solution returns the files that a task's solution changes, as they are with it, by their paths in the repository. It
// leaves out those that the strict trial takes from the solution in any case. If the solution does not apply, there are
// none.
//
// An error is an infrastructure failure.
func (e *Evaluator) Solution(ctx context.Context, t env.Task) (files map[string][]byte, err error) {
	one := &trial{task: t, patch: []byte(t.Tests.GoldPatch), limit: e.limit(t), strict: true}
	e.begin(one)
	defer func() {
		if one.sb != nil {
			err = errors.Join(err, one.sb.Close(context.WithoutCancel(ctx)))
		}
		if err != nil {
			err = fmt.Errorf("read the solution of %s: %w", t.ID, err)
		}
	}()
	if err := one.start(ctx); err != nil {
		return nil, err
	}
	before, changes, err := one.applied(ctx)
	if err != nil || before == nil || len(changes) == 0 {
		return nil, err
	}
	files = map[string][]byte{}
	for i, v := range before.judge(changes) {
		c := changes[i]
		if c.after.kind == env.KindFile && (v.Reason == "" || !one.reaches(c, v.Reason)) {
			files[c.after.name] = c.after.data
		}
	}
	return files, nil
}
