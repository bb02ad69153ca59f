package lab

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"deepswe/agent/run"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/record"
)

// Measured holds the times of a run after its beginning, when workers and trainer start idle and servers compile:
// those of each rollout, and the trainer's mean times.
type Measured struct {
	groups [][]rollout
	// sizes are those of the run's steps.
	sizes sizes
	// passes is the time of a step's forward and backward passes and of what comes with them.
	passes, publish, checkpoint time.Duration
}

// ReadMeasured reads the times of the run in dir, which must have kept its rollouts (rollouts.keep_logs).
func ReadMeasured(dir string) (*Measured, error) {
	t, err := record.ReadTrained(dir)
	if err != nil {
		return nil, err
	}
	number := func(key string) int {
		n, wrong := strconv.Atoi(t.Keys[key])
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("%s of %s: %w", key, dir, wrong))
		}
		return n
	}
	m := &Measured{sizes: sizes{
		rollouts: number("rollouts.tasks") * number("rollouts.group"), epochs: number("optimizer.epochs"),
		minibatches: number("optimizer.minibatches"),
	}}
	first, every := warmUp(number("rollouts.max_staleness"))+1, number("checkpoint.every")
	points, wrong := metrics.ReadJSONL(filepath.Join(dir, record.MetricsFile))
	if err = errors.Join(err, wrong); err != nil {
		return nil, err
	}
	if err := m.readTrainer(points, first, every); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	for step := first; step <= t.Step; step++ {
		if err := m.readRollouts(dir, step); err != nil {
			return nil, err
		}
	}
	if share, _ := m.graded(); !(share > 0) {
		return nil, fmt.Errorf("%s has no rollout with a reward from step %d on", dir, first)
	}
	return m, nil
}

// readTrainer reads the trainer's times from the metrics of the steps from first on.
func (m *Measured) readTrainer(points []metrics.Point, first, every int) error {
	var passes, publish, saving float64
	steps, saved := 0, 0
	for i, p := range points {
		v := p.Values
		took, ok := v["time/step"]
		if !ok || p.Step < first {
			continue
		}
		steps++
		passes += took - v["time/wait_rollouts"] - v["time/publish"]
		publish += v["time/publish"]
		if before := points[max(0, i-1)]; i > 0 && before.Step == p.Step-1 && before.Step%every == 0 {
			saved++
			saving += max(0, p.Time.Sub(before.Time).Seconds()-took-v["time/evaluate"])
		}
	}
	if steps == 0 {
		return fmt.Errorf("the run has no step %d: it is too short to measure", first)
	}
	// A time of 0 would mean the default.
	mean := func(sum float64, n int) time.Duration { return max(1, seconds(sum/float64(max(1, n)))) }
	m.passes, m.publish, m.checkpoint = mean(passes, steps), mean(publish, steps), mean(saving, saved)
	return nil
}

func (m *Measured) readRollouts(dir string, step int) error {
	groups, err := record.ReadStep(dir, step)
	if err != nil {
		return err
	}
	for _, played := range groups {
		var group []rollout
		for _, p := range played {
			if p.Err == "" && len(p.Turns) > 0 {
				group = append(group, measuredRollout(len(p.Turns), p.Times, p.Reward != nil))
			}
		}
		if len(group) > 0 {
			m.groups = append(m.groups, group)
		}
	}
	return nil
}

// measuredRollout returns a rollout whose turns take equally long. What it spent elsewhere counts as its environment's.
func measuredRollout(turns int, t run.Times, graded bool) rollout {
	r := rollout{turns: turns, grading: seconds(t.Reward), ungraded: !graded}
	for range turns {
		r.times = append(r.times, seconds(t.Model/float64(turns)), seconds((t.Environment+t.Other())/float64(turns)))
	}
	return r
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// latencies fills the gaps in l with what the run's trainer would take for steps of other sizes. The run is assumed
// to have made a forward pass where these steps do.
func (m *Measured) latencies(l config.Latencies, s sizes) config.Latencies {
	graded, grading := m.graded()
	own := m.sizes
	own.plain = s.plain
	one := float64(m.passes) / own.passes(l.WithDefaults().Forward) / (graded * float64(m.sizes.rollouts))
	l.Update = cmp.Or(l.Update, config.Duration(one*float64(s.rollouts)))
	l.Publish = cmp.Or(l.Publish, config.Duration(m.publish))
	l.Checkpoint = cmp.Or(l.Checkpoint, config.Duration(m.checkpoint))
	l.Grading = cmp.Or(l.Grading, config.Duration(grading))
	return l
}

// graded returns the share of the rollouts that were graded, and their mean time for that.
func (m *Measured) graded() (share float64, took time.Duration) {
	all, graded := slices.Concat(m.groups...), 0
	for _, r := range all {
		if !r.ungraded {
			took += r.grading
			graded++
		}
	}
	return quotient(graded, len(all)), max(1, took/time.Duration(max(1, graded)))
}

// replay returns a function that returns the rollouts that were measured, one group after the other.
func (m *Measured) replay() func(run.Job) *rollout {
	groups := map[string][]rollout{}
	return func(j run.Job) *rollout {
		if groups[j.Group] == nil {
			groups[j.Group] = m.groups[len(groups)%len(m.groups)]
		}
		group := groups[j.Group]
		r := group[j.Index%len(group)]
		return &r
	}
}
