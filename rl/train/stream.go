package train

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"deepswe/agent/run"
)

// stream plays the training rollouts of a run while the trainer works. The loop admits groups, the engine plays them in
// that order, and the loop takes them when they are complete. A rollout that has begun is never abandoned.
type stream struct {
	now func() time.Time
	// staleness is the maximum number of updates between a group's first rollout and the update that learns from it.
	staleness int

	mu      sync.Mutex
	changed *sync.Cond
	// queue holds the jobs that no worker has asked for yet; groups holds all groups that are admitted and not taken,
	// by name.
	queue  []run.Job
	groups map[string]*group
	// updates is the number of updates so far; version is the policy's version after them.
	updates int
	version int64
	closed  bool
	ended   bool
	err     error // why the engine ended
	// waited is the total time that free workers had nothing to play.
	waited time.Duration

	done sync.WaitGroup
	stop context.CancelFunc
}

// group is the rollouts of one task that are compared with each other.
type group struct {
	number   int // in the order of admission
	name     string
	jobs     []run.Job
	outcomes []run.Outcome // in the order of the jobs
	left     int           // rollouts that have not ended

	begun bool
	born  int // the updates when the first rollout began
	// version is the policy's version at that time.
	version int64
}

func newStream(staleness int, now func() time.Time) *stream {
	s := &stream{now: now, staleness: staleness, groups: map[string]*group{}}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// start plays admitted groups until close.
func (s *stream) start(ctx context.Context, e *run.Engine) {
	ctx, s.stop = context.WithCancel(ctx)
	shut := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed = true
		s.changed.Broadcast()
	}
	wake := context.AfterFunc(ctx, shut)
	s.done.Go(func() {
		defer wake()
		var failure error
		for o, err := range e.Stream(ctx, s.jobs()) {
			if err != nil {
				failure = err
				shut() // the engine waits for nextJob to return
				break
			}
			s.end(o)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed, s.ended, s.err = true, true, failure
		s.changed.Broadcast()
	})
}

// close ends the rollouts under way and waits for them.
func (s *stream) close() {
	if s.stop != nil {
		s.stop()
		s.done.Wait()
	}
}

// jobs is the sequence from which the engine takes a job when a worker is free.
func (s *stream) jobs() iter.Seq[run.Job] {
	return func(yield func(run.Job) bool) {
		for {
			job, ok := s.nextJob()
			if !ok || !yield(job) {
				return
			}
		}
	}
}

// nextJob waits for a job to play.
func (s *stream) nextJob() (run.Job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.now()
	for !s.closed && len(s.queue) == 0 {
		s.changed.Wait()
	}
	s.waited += s.now().Sub(asked)
	if s.closed {
		return run.Job{}, false
	}
	job := s.queue[0]
	s.queue = s.queue[1:]
	if g := s.groups[job.Group]; !g.begun {
		g.begun, g.born, g.version = true, s.updates, s.version
	}
	return job, true
}

// admit queues groups after all that were admitted before.
func (s *stream) admit(groups ...*group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range groups {
		g.outcomes, g.left = make([]run.Outcome, len(g.jobs)), len(g.jobs)
		s.groups[g.name] = g
		s.queue = append(s.queue, g.jobs...)
	}
	s.changed.Broadcast()
}

// end records the outcome of a rollout.
func (s *stream) end(o run.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[o.Group]
	g.outcomes[o.Index] = o
	g.left--
	// A rollout that was begun before the run was resumed may have turns of an older policy.
	for _, t := range o.Turns {
		if v := t.PolicyVersion; v != nil && *v < g.version {
			g.born -= int(g.version - *v)
			g.version = *v
		}
	}
	if g.left == 0 {
		s.changed.Broadcast()
	}
}

// updated is called when another policy was published.
func (s *stream) updated(version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates++
	s.version = version
	s.changed.Broadcast()
}

// takeGroups waits until at least one group is complete that the update has room for, and returns all of these, up to
// most, in the order of admission. The update keeps room for each group that later updates may not learn from.
func (s *stream) takeGroups(most int) ([]*group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if taken := s.complete(most); len(taken) > 0 {
			for _, g := range taken {
				delete(s.groups, g.name)
			}
			return taken, nil
		}
		if s.ended {
			return nil, cmp.Or(s.err, run.ErrInterrupted)
		}
		s.changed.Wait()
	}
}

// complete returns the groups that can be taken. The caller holds s.mu.
func (s *stream) complete(most int) []*group {
	var ready []*group
	due := 0 // groups under way that no later update may learn from
	last := func(g *group) bool { return g.begun && s.updates-g.born >= s.staleness }
	for _, g := range s.groups {
		if g.left == 0 {
			ready = append(ready, g)
		} else if last(g) {
			due++
		}
	}
	sortGroups(ready)
	// Groups that no later update may learn from come first. There is room for all of them, because admission is limited.
	var taken []*group
	for _, g := range ready {
		if last(g) && len(taken) < most {
			taken = append(taken, g)
		}
	}
	for _, g := range ready {
		if s.updates-g.born < s.staleness && len(taken) < most-due {
			taken = append(taken, g)
		}
	}
	sortGroups(taken)
	return taken
}

func sortGroups(groups []*group) {
	slices.SortFunc(groups, func(a, b *group) int { return cmp.Compare(a.number, b.number) })
}

// rest returns how long free workers have waited since the last call.
func (s *stream) rest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waited
	s.waited = 0
	return w
}
