package train

import (
	"context"
	"errors"
	"fmt"

	"deepswe/agent/run"
	"deepswe/verify/swe"
)

// validationGroup begins the names of the groups of a validation.
const validationGroup = "validation-"

// evaluate plays the validation tasks with the published policy.
func (l *loop) evaluate(ctx context.Context, step int, values map[string]float64) error {
	start := l.now()
	tasks := l.validation()
	if len(tasks) == 0 {
		return errors.New("evaluate: the environment has no validation tasks; set evaluate.every to 0")
	}
	j, err := openJournal(journalPath(l.dir, step, Validation), l.policy.Version)
	if err != nil {
		return fmt.Errorf("evaluate: %w", err)
	}
	plan := run.Plan(tasks, l.config.Evaluate.Attempts)
	for i := range plan {
		// Each step has groups of its own: their names are in the seeds.
		plan[i].Group = fmt.Sprintf("%s%s.%d", validationGroup, stepName(step), i/l.config.Evaluate.Attempts)
	}
	outcomes, err := l.play(ctx, step, Validation, plan, j)
	if err = errors.Join(err, j.close()); err != nil {
		return fmt.Errorf("evaluate: %w", err)
	}
	s := score(outcomes)
	values["val/pass@1"] = s.mean
	// A task's mean over several attempts counts as one draw, which can only make the interval wider than need be.
	values["val/pass@1_low"], values["val/pass@1_high"] = swe.Wilson(s.mean, float64(s.tasks))
	if k := l.config.Evaluate.Attempts; k > 1 {
		values["val/pass@k"] = s.any
	}
	values["val/turns"], values["val/failed"] = s.turns, float64(s.failed)
	values["time/evaluate"] = l.now().Sub(start).Seconds()
	return nil
}

// random measures random play on the same tasks, where the environment offers it.
func (l *loop) random(ctx context.Context, values map[string]float64) error {
	runner := l.environment.Random()
	if runner == nil {
		return nil
	}
	e := run.Engine{Runner: runner, Log: l.log, Options: run.Options{Workers: l.config.Rollouts.Workers}}
	// The policy's attempts are for an interval; here the mean alone counts, and moves without a model cost nothing.
	outcomes, err := e.Run(ctx, run.Plan(l.validation(), max(16, l.config.Evaluate.Attempts)))
	if err != nil {
		return fmt.Errorf("random policy: %w", err)
	}
	values["val/random"] = score(outcomes).mean
	return nil
}

func (l *loop) validation() []string {
	tasks := l.environment.Tasks(Validation)
	if n := l.config.Evaluate.Tasks; n > 0 {
		tasks = tasks[:min(n, len(tasks))]
	}
	return tasks
}

// result is what a policy reaches. An attempt without a reward says nothing about it.
type result struct {
	mean, any, turns float64
	tasks, failed    int
}

func score(outcomes []run.Outcome) result {
	type tally struct{ attempts, solved int }
	byTask := map[string]tally{}
	var r result
	var played float64
	for _, o := range outcomes {
		if o.Reward == nil {
			r.failed++
			continue
		}
		t := byTask[o.Task]
		t.attempts++
		if *o.Reward >= 1 {
			t.solved++
		}
		byTask[o.Task] = t
		played++
		r.turns += float64(len(o.Turns))
	}
	// The order of the tasks, not of a map, so that the sum has the same last bit every time.
	for _, o := range outcomes {
		t, ok := byTask[o.Task]
		if !ok {
			continue
		}
		delete(byTask, o.Task)
		r.tasks++
		r.mean += float64(t.solved) / float64(t.attempts)
		if t.solved > 0 {
			r.any++
		}
	}
	if r.tasks > 0 {
		r.mean /= float64(r.tasks)
		r.any /= float64(r.tasks)
		r.turns /= played
	}
	return r
}
