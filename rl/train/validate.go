package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/rl"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
	"deepswe/verify/swe"
)

// validationGroup is the prefix of the names of validation groups.
const validationGroup = "validation-"

// examiner measures policies on validation tasks.
type examiner struct {
	player
	*site
	settings         config.Evaluate
	steps, maxLength int
}

// splits returns the sets of validation tasks: Validation, and the environment's suites.
func (x examiner) splits() []part.Split {
	splits := []part.Split{}
	if len(x.environment.Tasks(part.Validation)) > 0 {
		splits = append(splits, part.Validation)
	}
	return append(splits, x.environment.Suites...)
}

// due reports whether the policy is validated after a step.
func (x examiner) due(step int) bool {
	e := x.settings
	switch {
	case e.Every == 0:
		return false
	case step == 0:
		return e.Before
	}
	return step == x.steps || step%e.Every == 0
}

// validate plays the tasks of all validation splits with a policy, one split after the other.
func (x examiner) validate(ctx context.Context, step int, p rl.Policy, workers int) (map[string]float64, error) {
	start := x.now()
	splits := x.splits()
	if len(splits) == 0 {
		return nil, errors.New("evaluate: the environment has no validation tasks; set evaluate.every to 0")
	}
	values := map[string]float64{}
	for _, s := range splits {
		outcomes, err := x.examine(ctx, step, s, p, workers)
		if err != nil {
			return nil, fmt.Errorf("evaluate: %w", err)
		}
		prefix := "val/"
		if s != part.Validation {
			prefix += string(s) + "/"
		}
		score(values, prefix, outcomes, x.settings.Attempts, x.maxLength)
	}
	values["time/evaluate"] = x.now().Sub(start).Seconds()
	return values, nil
}

// examine plays the tasks of one split.
func (x examiner) examine(
	ctx context.Context, step int, s part.Split, p rl.Policy, workers int,
) ([]run.Outcome, error) {
	tasks := x.limited(x.environment.Tasks(s))
	j, err := record.OpenJournal(record.JournalPath(x.dir, step, s), p.Version)
	if err != nil {
		return nil, err
	}
	attempts := x.settings.Attempts
	plan := run.Plan(tasks, attempts)
	for i := range plan {
		// Each step has its own group names, because seeds depend on them.
		plan[i].Group = fmt.Sprintf("%s%s.%d", groupsOf(s), record.StepName(step), i/attempts)
	}
	outcomes, err := x.play(ctx, s, p, plan, j, workers, func(done int) {
		x.observer.Playing(step, s, done, len(plan))
	})
	return outcomes, errors.Join(err, j.Close())
}

// groupsOf returns the prefix of the names of a validation split's groups.
func groupsOf(s part.Split) string {
	if s == part.Validation {
		return validationGroup
	}
	return validationGroup + string(s) + "-"
}

// random measures random play on the validation tasks, if the environment offers it.
func (x examiner) random(ctx context.Context, values map[string]float64) error {
	runner := x.environment.Random
	if runner == nil {
		return nil
	}
	e := run.Engine{Runner: runner, Log: x.player.log, Options: run.Options{Workers: x.rollouts.Workers}}
	// More attempts than the policy's, because they cost nothing without a model, and a baseline should be exact.
	tasks := x.limited(x.environment.Tasks(part.Validation))
	outcomes, err := e.Run(ctx, run.Plan(tasks, max(16, x.settings.Attempts)))
	if err != nil {
		return fmt.Errorf("random policy: %w", err)
	}
	all := map[string]float64{}
	score(all, "", outcomes, 1, 0)
	values["val/random"] = all["pass@1"]
	return nil
}

// limited returns the first evaluate.tasks tasks.
func (x examiner) limited(tasks []string) []string {
	return tasks[:min(cmp.Or(x.settings.Tasks, len(tasks)), len(tasks))]
}

// score adds the results of a policy. Attempts without a reward do not count.
func score(values map[string]float64, prefix string, outcomes []run.Outcome, attempts, maxLength int) {
	at := map[string]int{}
	var tasks []swe.Attempts // in the order of the plan, so that sums are rounded the same way every time
	stops := map[agent.StopReason]float64{}
	var played, failed, turns, sampled, observed, submitted float64
	for _, o := range outcomes {
		if o.Reward == nil {
			failed++
			continue
		}
		if _, known := at[o.Task]; !known {
			at[o.Task] = len(tasks)
			tasks = append(tasks, swe.Attempts{Task: o.Task})
		}
		t := &tasks[at[o.Task]]
		t.Made++
		if swe.Solved(o) {
			t.Solved++
			if o.StopReason == agent.Submitted {
				submitted++
			}
		}
		r := record.RolloutOf(o, "")
		shape := rl.Measure(&r, maxLength).Shape
		played++
		turns += float64(shape.Turns)
		sampled += float64(shape.Sampled)
		observed += float64(shape.Environment)
		stops[o.StopReason]++
	}
	values[prefix+"failed"] = failed
	if played == 0 {
		return
	}
	rate := 0.0
	for _, t := range tasks {
		rate += float64(t.Solved) / float64(t.Made) / float64(len(tasks))
	}
	values[prefix+"pass@1"] = rate
	// A task's mean over several attempts counts as one draw, which can only make the interval wider than necessary.
	values[prefix+"pass@1_low"], values[prefix+"pass@1_high"] = swe.Wilson(rate, float64(len(tasks)))
	for k := 2; k < 2*attempts; k *= 2 {
		if e := swe.PassRate(tasks, min(k, attempts)); e.Tasks > 0 {
			values[fmt.Sprintf("%spass@%d", prefix, e.K)] = e.Rate
		}
	}
	maps.Copy(values, map[string]float64{
		prefix + "turns": turns / played, prefix + "tokens/sampled": sampled / played,
		prefix + "tokens/environment": observed / played, prefix + "submitted_pass@1": submitted / played,
	})
	for _, r := range trajectory.StopReasons() {
		values[prefix+"stop/"+string(r)] = stops[r] / played
	}
}
