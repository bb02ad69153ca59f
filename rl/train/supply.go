package train

import (
	"context"
	"slices"

	"deepswe/agent/run"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// supply plays the groups that a run learns from: it gives them tasks, admits them to the stream, and keeps their
// journals.
type supply struct {
	rollouts config.Rollouts
	steps    int
	tasks    *tasks
	stages   *stages
	stream   *stream
	journals *record.Journals
	// progress shows how many rollouts of a step have ended, and occupancy measures how busy the workers are.
	progress  *counter
	occupancy *occupancy
	// admitted is the number of admitted groups.
	admitted int
}

// openSupply starts the stream of training rollouts. They are sampled by the model of the publisher.
func openSupply(
	ctx context.Context, w *site, p player, from *publisher, t *tasks, g *stages, steps int, at state,
) *supply {
	version := func() int64 { return from.live.current.Load().Version }
	s := &supply{
		rollouts: p.rollouts, steps: steps, tasks: t, stages: g, stream: newStream(p.rollouts.MaxStaleness, w.now),
		journals: &record.Journals{Dir: w.dir, Version: version}, progress: &counter{observer: w.observer},
		occupancy: newOccupancy(p.rollouts.Workers, w.now), admitted: at.Cursor,
	}
	s.stream.updates, s.stream.version = at.weights(), from.policy.Version
	if at.Pending != nil {
		s.admitted = at.Pending.Cursor
	}
	runner := p.environment.Runner(part.Train, p.calls.Guard(&from.live))
	s.stream.start(ctx, p.engine(runner, version, s.journals, func(e run.Event) {
		s.occupancy.observeEvent(e)
		if ended(e) {
			s.progress.ended()
		}
	}))
	return s
}

// close ends the stream and closes its journals.
func (s *supply) close() error {
	s.stream.close()
	return s.journals.CloseAll()
}

// waited adds how long free workers had nothing to play, and how busy workers were, since the last call.
func (s *supply) waited(values map[string]float64) {
	values["time/wait_trainer"] = s.stream.rest().Seconds()
	values["workers/busy"] = s.occupancy.takeShare()
	values["workers/idle"] = 1 - values["workers/busy"]
}

// unadmitted returns the first step after the given one of which no group has been admitted.
func (s *supply) unadmitted(step int) int {
	if s.rollouts.MaxStaleness == 0 {
		return step + 1
	}
	next, _ := s.stages.slot(s.admitted)
	return next
}

// ahead admits the groups of the steps up to MaxStaleness after the given one, which is enough for each of their
// updates.
func (s *supply) ahead(step int, at place) error {
	limit := s.stages.groups(min(step+s.rollouts.MaxStaleness, s.steps))
	_, err := s.admit(at, limit, s.stages.slot)
	return err
}

// rounds plays the groups of a single step, and returns them when all are complete: one round and, with Refill,
// further rounds with as many groups as have had equal rewards.
func (s *supply) rounds(step int, from place) ([]*group, error) {
	var all []*group
	now := s.stages.at(step).Rollouts
	size, want := now.Group, now.Tasks
	for round := 0; round <= now.Refill && want > 0; round++ {
		s.progress.beginStep(step, want*size)
		groups, err := s.admit(from, s.admitted+want, func(n int) (int, int) { return step, n - from.Cursor })
		if err != nil {
			return nil, err
		}
		for left := len(groups); left > 0; {
			taken, err := s.stream.takeGroups(left)
			if err != nil {
				return nil, err
			}
			left -= len(taken)
		}
		all = append(all, groups...)
		want -= differing(groups)
	}
	return all, nil
}

// admit admits the groups with numbers below the limit. slot returns the step that a group is admitted for, and its
// slot there.
func (s *supply) admit(at place, limit int, slot func(number int) (int, int)) ([]*group, error) {
	var groups []*group
	for ; s.admitted < limit; s.admitted++ {
		n := s.admitted
		if slices.Contains(at.Ahead, n) {
			continue
		}
		step, slot := slot(n)
		if err := s.journals.Open(step); err != nil {
			return nil, err
		}
		now := s.stages.at(step)
		chosen, err := s.tasks.at(n, now)
		if err != nil {
			return nil, err
		}
		g := &group{number: n, name: record.GroupName(step, slot)}
		s.tasks.prefixes.beginGroup(g.name, chosen.Prefix)
		for i := range now.Rollouts.Group {
			g.jobs = append(g.jobs, run.Job{Task: chosen.Task, Group: g.name, Index: i})
		}
		groups = append(groups, g)
	}
	s.stream.admit(groups...)
	return groups, nil
}

// differing counts the groups whose rewards are not all equal.
func differing(groups []*group) int {
	n := 0
	for _, g := range groups {
		seen := map[float64]bool{}
		for _, o := range g.outcomes {
			if r := o.Reward; r != nil {
				seen[*r] = true
			}
		}
		if len(seen) > 1 {
			n++
		}
	}
	return n
}
