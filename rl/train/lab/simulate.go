package lab

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"deepswe/env/disk"
	"deepswe/rl/train/config"
)

// Simulated is the result of a simulation. Times are the cluster's.
type Simulated struct {
	Steps int
	// Step is the mean time of a step after the first 2 (MaxStaleness + 1), in which workers and trainer start idle, with
	// validations and checkpoints. Ideal is what it would be without any waiting: the maximum of the time that rollouts
	// need, divided by the number of workers, and the trainer's time for those that it learns from, in all epochs;
	// their sum if the trainer's GPUs sample.
	Step, Ideal time.Duration
	// Check is how long the soundness of the training tasks is checked before the first step; 0 if it is not. Total is all
	// of the run after it.
	Check, Total time.Duration
	// Validation and Checkpoint are how long the loop stands still for one; 0 for one beside training.
	Validation, Checkpoint time.Duration
	// Started is the number of started rollouts divided by that of trained ones. Turns is the mean number of turns of
	// trained rollouts divided by that of all.
	Started, Turns float64
	// MeanStaleness and MaxStaleness are the staleness of the trained groups' rollouts, in updates.
	MeanStaleness, MaxStaleness float64
	// WaitRollouts is how long the trainer waited for rollouts in a step, WaitTrainer how long free workers waited for
	// the trainer.
	WaitRollouts, WaitTrainer time.Duration
	// Sandboxes, Calls and Gradings say how many were in use at once.
	Sandboxes, Calls, Gradings Use
	// Lockstep says that the trainer's GPUs sample.
	Lockstep bool
}

// String returns the result as a table.
func (s Simulated) String() string {
	var b strings.Builder
	row := func(name, format string, v ...any) {
		fmt.Fprintf(&b, "%-24s"+format+"\n", append([]any{name}, v...)...)
	}
	row("steps", "%d", s.Steps)
	row("seconds a step", "%s, %.0f%% of the ideal %s", inSeconds(s.Step), 100*s.Ideal.Seconds()/s.Step.Seconds(),
		inSeconds(s.Ideal))
	row("the whole run", "%s", roughly(s.Total))
	if s.Check > 0 {
		row("before the first step", "%s for the soundness check", roughly(s.Check))
	}
	if s.Lockstep {
		row("sampling", "in lockstep, on the trainer's GPUs")
	}
	row("trainer waits", "%s s a step for rollouts", inSeconds(s.WaitRollouts))
	row("workers wait", "%s s a step for the trainer", inSeconds(s.WaitTrainer))
	row("stands still", "%s s for a validation, %s s for a checkpoint", inSeconds(s.Validation), inSeconds(s.Checkpoint))
	row("staleness", "%.2f updates in the mean, at most %.0f", s.MeanStaleness, s.MaxStaleness)
	row("rollouts", "%.3f started for each that was trained, whose turns are %.3f of those of all", s.Started, s.Turns)
	for _, u := range []struct {
		name string
		use  Use
	}{{"sandboxes", s.Sandboxes}, {"calls of the model", s.Calls}, {"gradings", s.Gradings}} {
		row(u.name, "%.0f at once in the mean, %d at most", u.use.Mean, u.use.Peak)
	}
	return b.String()
}

// roughly rounds to minutes, unless there are few.
func roughly(d time.Duration) time.Duration {
	if d < 10*time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(time.Minute)
}

// inSeconds returns the number of seconds, with a decimal if they are few.
func inSeconds(d time.Duration) string {
	decimals := 0
	if 0 < d && d < 10*time.Second {
		decimals = 1
	}
	return strconv.FormatFloat(d.Seconds(), 'f', decimals, 64)
}

// Simulate plays the schedule of the run that the configuration describes, in virtual time: the same configuration has
// the same result everywhere. Environment and trainer are not opened. All groups have rewards that differ. With m,
// which may be nil, rollouts take the times of a measured run, and so does the trainer where the configuration has
// none.
func Simulate(ctx context.Context, c config.Config, m *Measured) (Simulated, error) {
	s, err := newSchedule(c, m)
	if err != nil {
		return Simulated{}, err
	}
	if err := s.fits(); err != nil {
		return Simulated{}, err
	}
	if err := s.takeSteps(ctx); err != nil {
		return Simulated{}, fmt.Errorf("simulate: %w", err)
	}
	if s.sums.trained == 0 {
		return Simulated{}, fmt.Errorf("simulate: no rollout is graded: each takes longer than %s; to fix: a longer "+
			"environment.timeout or simulate.timeout, or shorter times for simulate.model and simulate.tool",
			time.Duration(s.latencies.Timeout))
	}
	return s.result(), nil
}

func newSchedule(c config.Config, m *Measured) (*schedule, error) {
	keys, err := c.Keys()
	if err != nil {
		return nil, err
	}
	var l config.Latencies
	if c.Simulate != nil {
		l = *c.Simulate
	}
	streamed, plain := passesOf(c, keys)
	step := sizes{
		c.Rollouts.Tasks * c.Rollouts.Group, c.Optimizer.Epochs, c.Optimizer.Minibatches,
		plain && (streamed || c.Rollouts.MaxStaleness == 0),
	}
	if m != nil {
		l = m.latencies(l, step)
	}
	l = l.WithDefaults()
	if limit, err := time.ParseDuration(keys["environment.timeout"]); err == nil {
		l.Timeout = cmp.Or(l.Timeout, config.Duration(limit))
	}
	own := keys["trainer.samplers[0]"] == "" && keys["trainer.samplers_file"] == ""
	rollouts := c.Rollouts
	if servers, err := samplers(keys, rollouts.Models > 0); err != nil {
		return nil, fmt.Errorf("simulate: trainer.samplers_file: %w", err)
	} else if servers > 1 {
		rollouts.Models *= servers
	}
	s := &schedule{cluster: newCluster(l, rollouts), config: c, streamed: streamed, plain: plain}
	s.engine.pauses = own && keys["trainer.name"] == "tinker"
	if m != nil {
		s.draw = m.replay()
	}
	for g, limit := range map[*gate]int{
		&s.workers: c.Rollouts.Workers, &s.validators: cmp.Or(c.Evaluate.Workers, c.Rollouts.Workers), &s.measuring: 1,
	} {
		g.clock, g.limit = &s.clock, limit
	}
	if keys["environment.census"] == "check" {
		mutants, _ := strconv.Atoi(keys["environment.census_mutants"]) // valid, because the configuration was loaded
		rounds := math.Ceil(float64(l.Tasks*(2+mutants)) / float64(c.Rollouts.Workers))
		s.sums.check = time.Duration(rounds * float64(l.Grading))
	}
	return s, nil
}

// passesOf reports whether the trainer computes gradients as groups come, and whether those whose scale is known need
// no forward pass. A server is assumed to sum gradients unless it is known not to.
func passesOf(c config.Config, keys map[string]string) (streamed, plain bool) {
	if keys["trainer.name"] != "tinker" {
		return true, false
	}
	a := c.RL()
	_, sure := a.Total(0)
	sums := keys["trainer.normalisation"] != "mean"
	return sums && sure, sums && a.Objective.Plain()
}

// samplers is the number of servers that sample beside the trainer. Those that a file names are counted only if their
// number matters, because the file may be on another machine.
func samplers(keys map[string]string, matters bool) (n int, _ error) {
	for keys[fmt.Sprintf("trainer.samplers[%d]", n)] != "" {
		n++
	}
	if file := keys["trainer.samplers_file"]; file != "" && matters {
		named, err := disk.ReadList(file)
		return len(named), err
	}
	return n, nil
}

// mostRollouts is the most rollouts at once that a simulation keeps track of, which takes a few hundred bytes each.
const mostRollouts = 1_000_000

// fits returns an error for more rollouts at once than a simulation keeps track of.
func (s *schedule) fits() error {
	r, e := s.config.Rollouts, s.config.Evaluate
	steps := min(float64(r.MaxStaleness), float64(s.config.Steps)) + 1
	if n := float64(r.Tasks) * float64(r.Group) * steps; n > mostRollouts {
		return fmt.Errorf("simulate: %.3g rollouts would be under way or waiting at once, and %d can be simulated; to fix: "+
			"lower rollouts.tasks, rollouts.group or rollouts.max_staleness", n, mostRollouts)
	}
	tasks := min(cmp.Or(e.Tasks, s.latencies.Validation), s.latencies.Validation)
	if n := float64(tasks) * float64(e.Attempts); n > mostRollouts && e.Every > 0 {
		return fmt.Errorf("simulate: a validation has %.3g rollouts, and %d can be simulated; to fix: lower evaluate.tasks "+
			"or evaluate.attempts", n, mostRollouts)
	}
	return nil
}

func (s *schedule) result() Simulated {
	n, sums, r, l := s.config.Steps, s.sums, s.config.Rollouts, s.latencies
	out := Simulated{
		Steps: n, Check: sums.check, Total: s.now, Lockstep: l.Colocated,
		Step: s.now / time.Duration(n), WaitRollouts: sums.waited / time.Duration(n),
		WaitTrainer: s.workers.idle / time.Duration(n),
		Validation:  sums.validating / time.Duration(max(1, sums.measured)),
		Checkpoint:  sums.saving / time.Duration(sums.saved),
		Sandboxes:   s.sandboxes.use(), Calls: s.calls.use(), Gradings: s.gradings.use(),
		Started: quotient(sums.started, sums.trained), MaxStaleness: float64(sums.oldest),
		MeanStaleness: quotient(sums.staleness, sums.taken),
		Turns:         quotient(sums.trainedTurns, sums.trained) / quotient(sums.startedTurns, sums.started),
	}
	if first := warmUp(min(r.MaxStaleness, n)) - 1; first+1 < n {
		out.Step = (sums.ended[n-1] - sums.ended[first]) / time.Duration(n-1-first)
	}
	work := seconds(sums.work / float64(n*r.Workers))
	learned := quotient(sums.trained*s.config.Optimizer.Epochs, n*r.Tasks*r.Group)
	forwarded := quotient(sums.forwarded*s.config.Optimizer.Epochs, n*r.Tasks*r.Group)
	passes := l.Forward*forwarded + (1-l.Forward)*learned
	update := time.Duration(passes*float64(l.Update)) + time.Duration(l.Publish)
	out.Ideal = max(work, update)
	if l.Colocated {
		out.Ideal = work + update
	}
	return out
}

func quotient(a, b int) float64 { return float64(a) / float64(b) }
