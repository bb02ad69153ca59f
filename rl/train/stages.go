package train

import (
	"fmt"
	"slices"
	"sync"

	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// stages tracks which stages of a run have begun. Its limits method is safe for concurrent use.
type stages struct {
	config *config.Config

	mu     sync.Mutex
	starts []int     // first steps of the stages that have begun
	values []float64 // values of the metric that the next stage waits for, since the last stage began
}

// resume restores the stages of a checkpoint.
func (s *stages) resume(starts []int, history []metrics.Point) {
	s.starts, s.values = starts, nil
	s.beginKnown()
	for _, p := range history {
		s.collect(p)
	}
}

// beginKnown records the stages whose first steps are known: those before the first that waits for a metric.
func (s *stages) beginKnown() {
	list := s.config.Stages
	for len(s.starts) < len(list) && list[len(s.starts)].After == nil {
		s.starts = append(s.starts, list[len(s.starts)].From)
	}
}

// collect records the value of the metric that the next stage waits for.
func (s *stages) collect(p metrics.Point) {
	if len(s.starts) == len(s.config.Stages) {
		return
	}
	if n := len(s.starts); n > 0 && p.Step < s.starts[n-1] {
		return
	}
	if v, ok := p.Values[s.config.Stages[len(s.starts)].After.Metric]; ok && p.Step > 0 {
		s.values = append(s.values, v)
	}
}

// observeStep takes the metrics of a step, and returns a note if the next stage begins because of them. That stage
// begins with the given step, the first one of which no group is admitted yet.
func (s *stages) observeStep(p metrics.Point, first int) (notes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.config.Stages
	if len(s.starts) == len(list) {
		return nil
	}
	s.collect(p)
	next := list[len(s.starts)]
	if !next.After.Stalls(s.values) {
		return nil
	}
	s.values = nil
	s.starts = append(s.starts, first)
	return []string{fmt.Sprintf("%s has stopped rising: stage %d of %d begins at step %d", next.After.Metric,
		len(s.starts), len(list), first)}
}

// begun returns the first steps of the stages that have begun.
func (s *stages) begun() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.starts)
}

// number returns how many stages have begun at a step.
func (s *stages) number(step int) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n < len(s.starts) && s.starts[n] <= step {
		n++
	}
	return n
}

// at returns the configuration in force at a step.
func (s *stages) at(step int) *config.Config { return s.config.Stage(s.number(step)) }

// limits returns the limits of a training rollout, which depend on the step that its group was admitted for.
func (s *stages) limits(j run.Job) part.Limits { return s.at(record.StepOf(j.Group)).Limits }

// grades reports whether any stage needs the rewards of rollouts that end for the reason: a group may be learned from
// in a later stage than it was played in.
func (s *stages) grades(r trajectory.StopReason) bool {
	return s.any(func(c *config.Config) bool {
		a := c.RL()
		return a.Grades(r)
	})
}

// slot returns the step that a group is admitted for while the trainer works, and its place there.
func (s *stages) slot(number int) (step, slot int) {
	for step = 1; ; step++ {
		tasks := s.at(step).Rollouts.Tasks
		if number < tasks {
			return step, number
		}
		number -= tasks
	}
}

// groups returns how many groups are admitted for the steps up to the given one.
func (s *stages) groups(step int) (n int) {
	for i := range step {
		n += s.at(i + 1).Rollouts.Tasks
	}
	return n
}

// complete returns the last step all of whose groups have been learned from once the given step is done.
func (s *stages) complete(at place, step int) int {
	if s.config.Rollouts.MaxStaleness > 0 {
		step, _ = s.slot(at.Cursor)
		step--
	}
	return step
}

// any reports whether has is true of a stage, or of the configuration before the first one.
func (s *stages) any(has func(*config.Config) bool) bool {
	for n := range len(s.config.Stages) + 1 {
		if has(s.config.Stage(n)) {
			return true
		}
	}
	return false
}

// prefixes reports whether any stage begins with earlier rollouts.
func (s *stages) prefixes() bool { return s.any(func(c *config.Config) bool { return c.Prefix.On }) }
