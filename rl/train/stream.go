package train

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"deepswe/agent/run"
)

// stream is the training rollouts of a run: one flow of groups that is played while the trainer works. The loop admits
// groups, the engine plays them in that order, and the loop takes them when they are complete. Nothing that has begun
// is given up.
type stream struct {
	now func() time.Time
	// staleness is how many updates may lie between a group's first rollout and the update that learns from it.
	staleness int

	mu      sync.Mutex
	changed *sync.Cond
	// queue are the jobs that no worker has asked for yet, and groups all that were admitted and not taken, by name.
	queue  []run.Job
	groups map[string]*group
	// updates are those so far, version the policy's after them.
	updates int
	version int64
	closed  bool
	ended   bool
	err     error // what ended the engine
	// waited is how long a free worker had nothing to play.
	waited time.Duration

	done sync.WaitGroup
	stop context.CancelFunc
}

// group is one task's rollouts.
type group struct {
	number   int // in the order of admission
	name     string
	jobs     []run.Job
	outcomes []run.Outcome // in the order of the jobs
	left     int           // that have not ended

	begun bool
	born  int // the updates when the first rollout began
	// version was the policy's then.
	version int64
}

func newStream(staleness int, now func() time.Time) *stream {
	s := &stream{now: now, staleness: staleness, groups: map[string]*group{}}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// start plays what is admitted until close.
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
				shut() // the engine waits for whoever asks for the next job
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

// close ends what is under way and waits for it.
func (s *stream) close() {
	if s.stop != nil {
		s.stop()
		s.done.Wait()
	}
}

// jobs is the sequence that the engine draws from when a worker is free.
func (s *stream) jobs() iter.Seq[run.Job] {
	return func(yield func(run.Job) bool) {
		for {
			job, ok := s.next()
			if !ok || !yield(job) {
				return
			}
		}
	}
}

// next waits for a job to play.
func (s *stream) next() (run.Job, bool) {
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

// admit lets groups be played, after all that were admitted before.
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

// end notes how a rollout ended.
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

// updated tells that another policy was published.
func (s *stream) updated(version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates++
	s.version = version
	s.changed.Broadcast()
}

// take waits until at least one of the groups for which an update has room is complete, and returns all that are, up to
// most, in the order of their admission. A group that no later update may learn from keeps its place until it is
// complete.
func (s *stream) take(most int) ([]*group, error) {
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
			return nil, s.failure()
		}
		s.changed.Wait()
	}
}

// failure is why no more groups come. The caller holds s.mu.
func (s *stream) failure() error {
	if s.err != nil {
		return s.err
	}
	return run.ErrInterrupted
}

// complete returns the groups that can be taken. The caller holds s.mu.
func (s *stream) complete(most int) []*group {
	var ready []*group
	due := 0 // groups under way that must not be left for a later update
	for _, g := range s.groups {
		last := g.begun && s.updates-g.born >= s.staleness
		switch {
		case g.left == 0:
			ready = append(ready, g)
		case last:
			due++
		}
	}
	sortGroups(ready)
	// Those that must not wait come first, whatever their order: with the bound on admission there is room for all.
	var taken []*group
	for _, g := range ready {
		if g.begun && s.updates-g.born >= s.staleness && len(taken) < most {
			taken = append(taken, g)
		}
	}
	for _, g := range ready {
		if len(taken) >= most-due {
			break
		}
		if s.updates-g.born < s.staleness {
			taken = append(taken, g)
		}
	}
	sortGroups(taken)
	return taken
}

func sortGroups(groups []*group) {
	slices.SortFunc(groups, func(a, b *group) int { return cmp.Compare(a.number, b.number) })
}

// rest is how long free workers have waited since the last call.
func (s *stream) rest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waited
	s.waited = 0
	return w
}

// groupName names a group by the step that it was admitted for and its place there, and stepOf reads the step again.
func groupName(step, slot int) string { return fmt.Sprintf("%s.%d", stepName(step), slot) }

func stepOf(group string) int {
	step, _, _ := strings.Cut(group, ".")
	n, _ := strconv.Atoi(step) // 0 for a name that is not ours
	return n
}
