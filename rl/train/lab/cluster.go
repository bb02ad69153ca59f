package lab

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"time"

	"deepswe/agent/run"
	"deepswe/rl/train/config"
)

// cluster plays simulated rollouts.
type cluster struct {
	clock
	latencies config.Latencies
	// draw returns the rollout of a job.
	draw                               func(run.Job) *rollout
	sandboxes, starts, calls, gradings gate
	engine                             engine
}

func newCluster(l config.Latencies, r config.Rollouts) *cluster {
	c := &cluster{latencies: l, draw: func(j run.Job) *rollout { return draw(l, j) }}
	for g, limit := range map[*gate]int{
		&c.sandboxes: 0, &c.starts: r.Sandboxes, &c.calls: r.Models,
		&c.gradings: cmp.Or(r.Gradings, r.Workers),
	} {
		g.clock, g.limit = &c.clock, limit
	}
	c.engine.clock, c.engine.lockstep = &c.clock, l.Colocated
	return c
}

// rollout is one that a worker plays.
type rollout struct {
	turns int
	// times are how long a reply and its calls take, turn by turn.
	times []time.Duration
	// grading is how long its patch is graded; one that is ungraded has none.
	grading  time.Duration
	ungraded bool
	began    time.Duration
	// needed is how long it needs a worker, if nothing makes it wait.
	needed time.Duration
	// free is called when it no longer needs sandbox and worker, end when it has ended.
	free func()
	end  func(graded bool)
}

// play plays a job. The caller has entered worker for it, which play leaves. done is called when the rollout has
// ended.
func (c *cluster) play(j run.Job, worker *gate, done func(r *rollout, graded bool)) {
	r := c.draw(j)
	r.free = func() {
		c.sandboxes.leave()
		worker.leave()
	}
	r.end = func(graded bool) { done(r, graded) }
	c.starts.enter(func() {
		c.sandboxes.enter(func() {
			c.after(time.Duration(c.latencies.Start), func() {
				c.starts.leave()
				r.began = c.now
				c.turn(r, 0)
			})
		})
	})
}

// turn plays a turn of a rollout and those after it.
func (c *cluster) turn(r *rollout, i int) {
	limit := time.Duration(c.latencies.Timeout)
	left := func(took time.Duration) time.Duration {
		if limit > 0 {
			took = max(0, min(took, limit-(c.now-r.began)))
		}
		r.needed += took
		return took
	}
	c.calls.enter(func() {
		c.engine.sample(left(r.times[2*i]), func() {
			c.calls.leave()
			c.after(left(r.times[2*i+1]), func() {
				switch late := limit > 0 && c.now-r.began >= limit; {
				case !late && i+1 < r.turns:
					c.turn(r, i+1)
				case late, r.ungraded:
					r.free()
					r.end(false)
				default:
					r.free()
					c.grade(r)
				}
			})
		})
	})
}

// grade grades a rollout's patch, for which it needs no worker.
func (c *cluster) grade(r *rollout) {
	c.gradings.enter(func() {
		c.after(r.grading, func() {
			c.gradings.leave()
			r.end(true)
		})
	})
}

// draw returns a rollout with its times, which depend on its group's name and its place there.
func draw(l config.Latencies, j run.Job) *rollout {
	hard := rand.New(rand.NewPCG(uint64(run.Job{Group: j.Group}.Seed(1, 0)), 0)).Float64()
	own := rand.New(rand.NewPCG(uint64(run.Job{Group: j.Group, Index: j.Index}.Seed(1, 0)), 1))
	r := &rollout{
		turns:   l.MinTurns + int(float64(l.MaxTurns-l.MinTurns+1)*math.Pow(hard, l.Skew)),
		grading: time.Duration(l.Grading),
	}
	for range r.turns {
		r.times = append(r.times, lognormal(own, l.Model, l.ModelSigma), lognormal(own, l.Tool, l.ToolSigma))
	}
	return r
}

// lognormal draws a time from the lognormal distribution with the given mean and sigma.
func lognormal(r *rand.Rand, mean config.Duration, sigma float64) time.Duration {
	return time.Duration(min(float64(mean)*math.Exp(sigma*r.NormFloat64()-sigma*sigma/2), float64(config.MaxLatency)))
}

// engine is what samples. In lockstep, the trainer uses the same GPUs: the engine gathers the requests that wait,
// samples until the longest reply is there, and only then works for the trainer or gathers again.
type engine struct {
	clock    *clock
	lockstep bool
	// pauses is set if weights change in place: from an optimizer step to the publication no reply begins, and those
	// under way end before.
	pauses, paused bool
	running        int
	busy           bool
	asked          bool // the trainer waits
	pending        []reply
}

type reply struct {
	took time.Duration
	done func()
}

// train lets the trainer work for some time, and returns how long it waited and worked.
func (e *engine) train(ctx context.Context, d time.Duration) (time.Duration, error) {
	e.asked = true
	waited, err := e.clock.until(ctx, func() bool { return !e.lockstep || !e.busy })
	if err != nil || d == 0 {
		e.asked = false
		return waited, err
	}
	done := false
	e.clock.after(d, func() {
		done, e.asked = true, false
		e.gather()
	})
	worked, err := e.clock.until(ctx, func() bool { return done })
	return waited + worked, err
}

// sample calls done when a reply is there.
func (e *engine) sample(took time.Duration, done func()) {
	if !e.lockstep && !e.paused {
		e.running++
		e.clock.after(took, func() {
			e.running--
			done()
		})
		return
	}
	e.pending = append(e.pending, reply{took, done})
	e.clock.after(0, e.gather) // with all who ask at the same time
}

// pause waits until no reply is under way, and lets none begin until resume.
func (e *engine) pause(ctx context.Context) error {
	e.paused = e.pauses
	_, err := e.clock.until(ctx, func() bool { return !e.paused || e.running == 0 && !e.busy })
	return err
}

func (e *engine) resume() {
	e.paused = false
	if e.lockstep {
		e.gather()
		return
	}
	waiting := e.pending
	e.pending = nil
	for _, r := range waiting {
		e.sample(r.took, r.done)
	}
}

func (e *engine) gather() {
	if e.busy || e.asked || e.paused || !e.lockstep || len(e.pending) == 0 {
		return
	}
	batch, longest := e.pending, time.Duration(0)
	for _, r := range batch {
		longest = max(longest, r.took)
	}
	e.pending, e.busy = nil, true
	e.clock.after(longest, func() {
		e.busy = false
		for _, r := range batch {
			r.done()
		}
		e.clock.after(0, e.gather)
	})
}
