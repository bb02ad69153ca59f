package train

import (
	"fmt"
	"sync"

	"deepswe/agent/run"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// stages tracks which stages of a run have begun. Its limits method is safe for concurrent use.
type stages struct {
	list []config.Stage

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
	for len(s.starts) < len(s.list) && s.list[len(s.starts)].After == nil {
		s.starts = append(s.starts, s.list[len(s.starts)].From)
	}
}

// collect records the value of the metric that the next stage waits for.
func (s *stages) collect(p metrics.Point) {
	if len(s.starts) == len(s.list) {
		return
	}
	if n := len(s.starts); n > 0 && p.Step < s.starts[n-1] {
		return
	}
	if v, ok := p.Values[s.list[len(s.starts)].After.Metric]; ok && p.Step > 0 {
		s.values = append(s.values, v)
	}
}

// observeStep takes the metrics of a step, and reports whether the next stage begins because of them. It then begins
// with the given step, the first one that is not admitted yet.
func (s *stages) observeStep(p metrics.Point, first int) (notes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.starts) == len(s.list) {
		return nil
	}
	s.collect(p)
	next := s.list[len(s.starts)]
	if !next.After.Stalls(s.values) {
		return nil
	}
	s.values = nil
	s.starts = append(s.starts, first)
	return []string{fmt.Sprintf("%s has stopped rising: stage %d of %d begins at step %d", next.After.Metric,
		len(s.starts), len(s.list), first)}
}

// begun returns the first steps of the stages that have begun.
func (s *stages) begun() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.starts...)
}

// at returns the settings of the stages up to a step.
func (s *stages) at(step int) (set config.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, start := range s.starts {
		if start > step {
			break
		}
		own := s.list[i]
		if own.MaxSteps > 0 {
			set.MaxSteps = own.MaxSteps
		}
		if own.Context > 0 {
			set.Context = own.Context
		}
		if own.LearningRate > 0 {
			set.LearningRate = own.LearningRate
		}
	}
	return set
}

// limits returns the limits of a training rollout, which depend on the step that its group was admitted for.
func (s *stages) limits(j run.Job) part.Limits {
	set := s.at(record.StepOf(j.Group))
	return part.Limits{Steps: set.MaxSteps, Context: set.Context}
}
