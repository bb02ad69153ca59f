package train

import (
	"maps"
	"slices"

	"deepswe/agent/run"
	"deepswe/rl/train/record"
	"deepswe/verify/swe"
)

// learned notes how the rollouts of each group of an update ended. What was not graded says nothing about its task.
func (l *loop) learned(step int, outcomes []run.Outcome, values map[string]float64) error {
	for group := range slices.Chunk(outcomes, l.config.Rollouts.Group) {
		first := group[0]
		v := record.Visit{Update: step, Step: record.StepOf(first.Group), Group: first.Group, Task: first.Task}
		solved, graded := 0, 0
		for _, o := range group {
			v.Rewards, v.Stops = append(v.Rewards, o.Reward), append(v.Stops, o.StopReason)
			if o.Reward != nil {
				graded++
			}
			if swe.Solved(o) {
				solved++
			}
		}
		l.tasks.observe(v.Task, solved, graded)
		if err := l.visits.Append(v); err != nil {
			return err
		}
	}
	maps.Copy(values, l.tasks.values())
	return nil
}
