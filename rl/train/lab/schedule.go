package lab

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"deepswe/agent/run"
	"deepswe/rl/train/config"
	"deepswe/rl/train/record"
)

// schedule is the loop of package train, as far as it takes time: who waits for whom, in which order. A test compares
// the two.
type schedule struct {
	*cluster
	config config.Config
	// streamed is set if the trainer computes gradients as groups come; otherwise it does so before the optimizer step.
	streamed bool
	// plain is set if the trainer computes a gradient whose scale is known without a forward pass.
	plain   bool
	workers gate
	// validators are the workers of a validation; one validation at a time passes measuring.
	validators, measuring gate

	updates, admitted int
	groups            []*group // admitted and not taken, in the order of admission
	news              bool     // a group is complete that was not looked at
	sums              sums
}

// group is the rollouts of a task.
type group struct {
	left int
	// births are the updates when its rollouts began.
	births []int
	// trained counts rollouts with a reward, turns theirs.
	trained, turns int
}

// sums are what the result is computed from.
type sums struct {
	ended                      []time.Duration // of each step
	started, trained           int
	forwarded                  int // rollouts with a forward pass before their gradient
	startedTurns, trainedTurns int
	work                       float64 // in seconds: those of many workers together do not fit in a Duration
	waited, validating, saving time.Duration
	check                      time.Duration
	staleness, taken, oldest   int
	measured, saved            int
}

func (s *schedule) takeSteps(ctx context.Context) error {
	if e := s.config.Evaluate; e.Before && e.Every > 0 {
		if err := s.validate(ctx, 0); err != nil {
			return err
		}
		if e.Workers > 0 {
			if err := s.save(ctx); err != nil {
				return err
			}
		}
	}
	for step := 1; step <= s.config.Steps; step++ {
		if err := s.step(ctx, step); err != nil {
			return err
		}
	}
	_, err := s.until(ctx, func() bool { return s.measuring.in == 0 })
	return err
}

// step learns from the groups of a step, publishes, validates and saves.
func (s *schedule) step(ctx context.Context, step int) error {
	if err := s.update(ctx); err != nil {
		return err
	}
	if _, err := s.engine.train(ctx, time.Duration(s.latencies.Publish)); err != nil {
		return err
	}
	s.updates = step
	s.engine.resume()
	if s.config.Rollouts.MaxStaleness > 0 {
		s.ahead()
	}
	e, last := s.config.Evaluate, step == s.config.Steps
	due := e.Every > 0 && (last || step%e.Every == 0)
	if due {
		if err := s.validate(ctx, step); err != nil {
			return err
		}
	}
	s.sums.ended = append(s.sums.ended, s.now)
	if last || step%s.config.Checkpoint.Every == 0 || due && e.Workers > 0 { // it is kept until it is measured
		return s.save(ctx)
	}
	return nil
}

// save saves a checkpoint.
func (s *schedule) save(ctx context.Context) error {
	took, err := s.engine.train(ctx, time.Duration(s.latencies.Checkpoint))
	s.sums.saving += took
	s.sums.saved++
	return err
}

// ahead admits the groups that the next update may learn from, and those after it up to the staleness.
func (s *schedule) ahead() {
	r := s.config.Rollouts
	steps := min(s.updates+1+min(r.MaxStaleness, s.config.Steps), s.config.Steps)
	for ; s.admitted < steps*r.Tasks; s.admitted++ {
		g, number := &group{left: r.Group}, s.admitted
		s.groups = append(s.groups, g)
		for i := range r.Group {
			job := run.Job{Group: record.GroupName(number/r.Tasks+1, number%r.Tasks), Index: i}
			s.workers.enter(func() { s.roll(g, job) })
		}
	}
}

// roll plays a rollout of a group.
func (s *schedule) roll(g *group, j run.Job) {
	g.births = append(g.births, s.updates)
	s.play(j, &s.workers, func(r *rollout, graded bool) {
		s.sums.started++
		s.sums.startedTurns += r.turns
		s.sums.work += r.needed.Seconds()
		if graded {
			g.trained++
			g.turns += r.turns
		}
		g.left--
		s.news = s.news || g.left == 0
	})
}

// probeRows is how many rows of a step package train compares before and after the update, for which it makes a forward
// pass at the end.
const probeRows = 64

// sizes are those of a step. plain is set if its gradients are computed without a forward pass.
type sizes struct {
	rollouts, epochs, minibatches int
	plain                         bool
}

// passes is the time of a step's passes over its rows, as a multiple of one forward and one backward pass over all of
// them, of which the forward pass has the given share.
func (s sizes) passes(forward float64) float64 {
	probed, epoch := quotient(min(s.rollouts/s.minibatches, probeRows), s.rollouts), 1.0
	if s.plain {
		epoch -= forward
	}
	return float64(s.epochs)*epoch + probed*forward
}

// warmUp is the number of steps at the beginning that do not count, because all start idle.
func warmUp(staleness int) int { return 2 * (staleness + 1) }

// update learns from the groups of a step.
func (s *schedule) update(ctx context.Context) error {
	n, parts := s.config.Rollouts.Tasks, s.config.Optimizer.Minibatches
	s.ahead()
	if s.config.Rollouts.MaxStaleness == 0 {
		waited, err := s.until(ctx, func() bool {
			return !slices.ContainsFunc(s.groups, func(g *group) bool { return g.left > 0 })
		})
		if err != nil {
			return err
		}
		s.sums.waited += waited
	}
	probed, learned, forwarded := 0, 0, 0
	for k := range parts {
		part, size := 0, (k+1)*n/parts-k*n/parts
		for left := size; left > 0; {
			groups, rollouts, err := s.nextGroups(ctx, left)
			if err != nil {
				return err
			}
			left -= groups
			part += rollouts
			if k == 0 {
				probed = min(probed+rollouts, probeRows)
			}
			forward := when(!s.plain || !s.streamed && groups < size, rollouts)
			forwarded += forward
			if err := s.pass(ctx, forward, when(s.streamed, rollouts)); err != nil {
				return err
			}
		}
		if err := s.pass(ctx, 0, when(!s.streamed, part)); err != nil {
			return err
		}
		if err := s.engine.pause(ctx); err != nil {
			return err
		}
		learned += part
	}
	s.sums.forwarded += forwarded
	more := s.config.Optimizer.Epochs - 1
	return s.pass(ctx, more*forwarded+probed, more*learned)
}

func when(ok bool, n int) int {
	if ok {
		return n
	}
	return 0
}

// nextGroups waits for groups, at most as many as given, and returns how many came, with how many rollouts to learn
// from.
func (s *schedule) nextGroups(ctx context.Context, most int) (groups, rollouts int, err error) {
	var taken []*group
	s.news = true
	waited, err := s.until(ctx, func() bool {
		if s.news {
			s.news = false
			taken = s.complete(most)
		}
		return len(taken) > 0
	})
	s.sums.waited += waited
	for _, g := range taken {
		for _, born := range g.births {
			s.sums.staleness += s.updates - born
			s.sums.oldest = max(s.sums.oldest, s.updates-born)
		}
		s.sums.taken += len(g.births)
		s.sums.trained += g.trained
		s.sums.trainedTurns += g.turns
		rollouts += g.trained
	}
	s.groups = slices.DeleteFunc(s.groups, func(g *group) bool { return slices.Contains(taken, g) })
	return len(taken), rollouts, err
}

// complete returns the groups that an update takes: of those that are complete, first those that no later update may
// learn from, and it keeps room for such groups under way.
func (s *schedule) complete(most int) []*group {
	due := func(g *group) bool {
		return len(g.births) > 0 && s.updates-g.births[0] >= s.config.Rollouts.MaxStaleness
	}
	var taken []*group
	room := most
	for _, g := range s.groups {
		if due(g) {
			room--
			if g.left == 0 && len(taken) < most {
				taken = append(taken, g)
			}
		}
	}
	for _, g := range s.groups {
		if g.left == 0 && !due(g) && room > 0 {
			taken = append(taken, g)
			room--
		}
	}
	return taken
}

// pass lets the trainer compute the logprobs of forward rollouts and the gradients of backward rollouts.
func (s *schedule) pass(ctx context.Context, forward, backward int) error {
	share := s.latencies.Forward*float64(forward) + (1-s.latencies.Forward)*float64(backward)
	all := s.config.Rollouts.Tasks * s.config.Rollouts.Group
	_, err := s.engine.train(ctx, time.Duration(share/float64(all)*float64(s.latencies.Update)))
	return err
}

// validate measures the policy of a step, and waits for it unless there are workers for that beside training. Then it
// waits only if another policy waits already.
func (s *schedule) validate(ctx context.Context, step int) error {
	start, beside := s.now, s.config.Evaluate.Workers > 0
	if beside {
		if _, err := s.until(ctx, func() bool { return len(s.measuring.waiting) == 0 }); err != nil {
			return err
		}
	}
	s.sums.measured++
	left, attempts := s.validations(), s.config.Evaluate.Attempts
	s.measuring.enter(func() {
		for i := range left {
			job := run.Job{Group: fmt.Sprintf("validation-%s.%d", record.StepName(step), i/attempts), Index: i % attempts}
			s.validators.enter(func() {
				s.play(job, &s.validators, func(*rollout, bool) {
					if left--; left == 0 {
						s.measuring.leave()
					}
				})
			})
		}
	})
	if beside {
		return nil
	}
	_, err := s.until(ctx, func() bool { return s.measuring.in == 0 })
	s.sums.validating += s.now - start
	return err
}

// validations is the number of rollouts of a validation.
func (s *schedule) validations() int {
	e, all := s.config.Evaluate, s.latencies.Validation
	return min(cmp.Or(e.Tasks, all), all) * e.Attempts
}
