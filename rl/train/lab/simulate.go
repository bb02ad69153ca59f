package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/train"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
)

// Simulated is the result of a simulation. Times are the cluster's.
type Simulated struct {
	Steps int
	// Step is the mean time of a step after the first 2 (MaxStaleness + 1), in which workers and trainer start idle.
	// Ideal is what it would be without any waiting: the maximum of the trained rollouts' time divided by the number of
	// workers, and the trainer's time.
	Step, Ideal time.Duration
	// Started is the number of started rollouts divided by that of trained ones. Turns is the mean number of turns of
	// trained rollouts divided by that of all.
	Started, Turns float64
	// MeanStaleness and MaxStaleness are the staleness of the trained rollouts, in updates.
	MeanStaleness, MaxStaleness float64
	// WaitRollouts is how long the trainer waited for rollouts in a step, WaitTrainer how long free workers waited for
	// the trainer.
	WaitRollouts, WaitTrainer time.Duration
	// Sandboxes, Calls and Gradings say how many were in use at once.
	Sandboxes, Calls, Gradings Use
}

// Use says how many of something were in use at once.
type Use struct {
	Mean float64
	Peak int
}

// String returns the result as a table.
func (s Simulated) String() string {
	var b strings.Builder
	row := func(name, format string, v ...any) {
		fmt.Fprintf(&b, "%-24s"+format+"\n", append([]any{name}, v...)...)
	}
	row("steps", "%d", s.Steps)
	row("seconds a step", "%.0f, %.0f%% of the ideal %.0f", s.Step.Seconds(), 100*s.Ideal.Seconds()/s.Step.Seconds(),
		s.Ideal.Seconds())
	row("trainer waits", "%.0f s a step for rollouts", s.WaitRollouts.Seconds())
	row("workers wait", "%.0f s a step for the trainer", s.WaitTrainer.Seconds())
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

// Simulate runs the loop that the configuration describes, with everything that takes time simulated. Engine, schedule
// and records are those of a real run.
func Simulate(ctx context.Context, c config.Config) (_ Simulated, err error) {
	dir, err := os.MkdirTemp("", "deepswe-simulate-")
	if err != nil {
		return Simulated{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	latencies := config.Latencies{}
	if c.Simulate != nil {
		latencies = *c.Simulate
	}
	s := newCluster(latencies.WithDefaults(), c.Rollouts)
	c.Environment, c.Trainer, c.Ablation = simulatedEnvironment{s}, simulatedTrainer{s}, nil
	c.Evaluate.Every, c.Rollouts.KeepLogs = 0, false
	// Simulated replies have no content that could be judged.
	c.Guards.Collapse.Action, c.Guards.Stuck.Action, c.Guards.MismatchKL = config.Off, config.Off, 0
	result, err := train.Start(ctx, c, train.Options{Dir: filepath.Join(dir, "run"), Now: s.now})
	if err != nil {
		return Simulated{}, err
	}
	return s.sum(result), nil
}

// cluster is an environment and a trainer that do nothing but take time.
type cluster struct {
	latencies config.Latencies
	rollouts  config.Rollouts
	epoch     time.Time

	version int64

	mu              sync.Mutex
	calls, gradings usage
	sandboxes       usage
	// Of all rollouts, and of trained ones.
	started, trained           int
	startedTurns, trainedTurns int
	work                       time.Duration
}

func newCluster(l config.Latencies, r config.Rollouts) *cluster {
	return &cluster{latencies: l, rollouts: r, epoch: time.Now()}
}

// now returns the time on the cluster.
func (c *cluster) now() time.Time {
	return c.epoch.Add(time.Duration(float64(time.Since(c.epoch)) * c.latencies.Speed))
}

// sleep waits for some time on the cluster.
func (c *cluster) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(time.Duration(float64(d) / c.latencies.Speed))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// usage counts how many of something are in use, over time.
type usage struct {
	now, peak int
	since     time.Time
	sum       time.Duration
}

// use changes a count by n.
func (c *cluster) use(u *usage, n int) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !u.since.IsZero() {
		u.sum += time.Duration(u.now) * now.Sub(u.since)
	}
	u.now += n
	u.peak, u.since = max(u.peak, u.now), now
}

func (u usage) over(d time.Duration) Use {
	return Use{Mean: u.sum.Seconds() / d.Seconds(), Peak: u.peak}
}

// simulatedEnvironment is the cluster as an environment's configuration. It has no keys.
type simulatedEnvironment struct{ c *cluster }

func (e simulatedEnvironment) Complete(*config.Config) error { return nil }

func (e simulatedEnvironment) Open(context.Context, part.EnvironmentOptions) (part.Environment, error) {
	return part.Environment{Player: e.c}, nil
}

// Tasks returns more tasks than a run takes.
func (c *cluster) Tasks(part.Split) []string {
	tasks := make([]string, 1<<16)
	for i := range tasks {
		tasks[i] = strconv.Itoa(i)
	}
	return tasks
}

// Runner returns a player of simulated rollouts.
func (c *cluster) Runner(_ part.Split, m agent.Model) run.Runner {
	sandboxes := run.NewGate(c.rollouts.Sandboxes)
	gradings := run.NewGate(cmp.Or(c.rollouts.Gradings, c.rollouts.Workers))
	return run.RunnerFunc(func(ctx context.Context, j run.Job) (run.Result, error) {
		turns, tools := c.draw(j)
		leave, err := sandboxes.Enter(ctx)
		if err != nil {
			return run.Result{}, err
		}
		start := c.now()
		c.use(&c.sandboxes, 1)
		res, err := c.play(ctx, m, turns, tools)
		c.use(&c.sandboxes, -1)
		leave()
		if err != nil {
			return res, err
		}
		if res.StopReason == agent.Submitted {
			run.Release(ctx)
			if leave, err = gradings.Enter(ctx); err != nil {
				return res, err
			}
			c.use(&c.gradings, 1)
			err = c.sleep(ctx, time.Duration(c.latencies.Grading))
			c.use(&c.gradings, -1)
			leave()
			res.Reward = new(float64(j.Index % 2))
		}
		c.count(res, turns, c.now().Sub(start))
		return res, err
	})
}

// draw returns the number of turns of a rollout, and how long the calls of each take.
func (c *cluster) draw(j run.Job) (turns int, tools []time.Duration) {
	l := c.latencies
	hard := rand.New(rand.NewPCG(uint64(run.Job{Group: j.Group}.Seed(1, 0)), 0)).Float64()
	own := rand.New(rand.NewPCG(uint64(j.Seed(1, 0)), 1))
	turns = l.MinTurns + int(float64(l.MaxTurns-l.MinTurns+1)*math.Pow(hard, l.Skew))
	tools = make([]time.Duration, 2*turns)
	for i := range turns {
		tools[2*i] = lognormal(own, l.Model, l.ModelSigma)
		tools[2*i+1] = lognormal(own, l.Tool, l.ToolSigma)
	}
	return turns, tools
}

// lognormal draws a time from the lognormal distribution with the given mean and sigma.
func lognormal(r *rand.Rand, mean config.Duration, sigma float64) time.Duration {
	return time.Duration(float64(mean) * math.Exp(sigma*r.NormFloat64()-sigma*sigma/2))
}

// replyTime is the context key of the time that the model takes for a reply.
type replyTime struct{}

// play simulates the part of a rollout that needs a sandbox.
func (c *cluster) play(ctx context.Context, m agent.Model, turns int, times []time.Duration) (run.Result, error) {
	res := run.Result{StopReason: agent.Submitted}
	start := c.now()
	left := func(took time.Duration) time.Duration {
		if limit := time.Duration(c.latencies.Timeout); limit > 0 {
			return min(took, limit-c.now().Sub(start))
		}
		return took
	}
	for i := range turns {
		reply, err := m.Complete(context.WithValue(ctx, replyTime{}, left(times[2*i])), agent.Request{})
		if err != nil {
			return res, err
		}
		res.Turns = append(res.Turns, *reply.Tokens)
		if err := c.sleep(ctx, left(times[2*i+1])); err != nil {
			return res, err
		}
		if left(1) <= 0 {
			res.StopReason, res.NotGraded = agent.Timeout, true
			break
		}
	}
	return res, nil
}

func (c *cluster) count(res run.Result, turns int, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started++
	c.startedTurns += turns
	if res.Reward != nil {
		c.trained++
		c.trainedTurns += turns
		c.work += took
	}
}

func (c *cluster) sum(r train.Result) Simulated {
	d := c.now().Sub(c.epoch)
	s := Simulated{
		Steps: len(r.Points), Sandboxes: c.sandboxes.over(d), Calls: c.calls.over(d), Gradings: c.gradings.over(d),
		Started: float64(c.started) / float64(c.trained),
		Turns:   float64(c.trainedTurns) / float64(c.trained) / (float64(c.startedTurns) / float64(c.started)),
	}
	n := float64(s.Steps)
	for _, p := range r.Points {
		s.MeanStaleness += p.Values["staleness/mean"] / n
		s.MaxStaleness = max(s.MaxStaleness, p.Values["staleness/max"])
		s.WaitRollouts += time.Duration(p.Values["time/wait_rollouts"] / n * float64(time.Second))
		s.WaitTrainer += time.Duration(p.Values["time/wait_trainer"] / n * float64(time.Second))
	}
	s.Step = d / time.Duration(s.Steps)
	if first := 2*c.rollouts.MaxStaleness + 1; first+1 < s.Steps {
		s.Step = r.Points[s.Steps-1].Time.Sub(r.Points[first].Time) / time.Duration(s.Steps-1-first)
	}
	s.Ideal = max(c.work/time.Duration(s.Steps*c.rollouts.Workers), time.Duration(c.latencies.Update+c.latencies.Publish))
	return s
}

// simulatedTrainer is the configuration of a trainer whose weights are those of the simulated cluster.
type simulatedTrainer struct{ c *cluster }

func (t simulatedTrainer) Complete(*config.Config) error { return nil }

func (t simulatedTrainer) Open(context.Context, part.TrainerOptions) (part.Trainer, error) {
	return part.Trainer{Trainer: simulatedWeights(t)}, nil
}

// simulatedWeights is the cluster as a trainer and as a model.
type simulatedWeights struct{ c *cluster }

// Complete takes the time of a reply and returns an empty one.
func (w simulatedWeights) Complete(ctx context.Context, _ agent.Request) (agent.Reply, error) {
	took, _ := ctx.Value(replyTime{}).(time.Duration)
	w.c.use(&w.c.calls, 1)
	err := w.c.sleep(ctx, took)
	w.c.use(&w.c.calls, -1)
	return agent.Reply{Tokens: &agent.Sample{
		PromptIDs: []int32{0}, CompletionIDs: []int32{0}, Logprobs: []float64{-1},
	}}, err
}

// Forward returns no log-probabilities, because there are no weights.
func (w simulatedWeights) Forward(context.Context, []rl.Row) ([][]float64, error) { return nil, nil }

// ForwardBackward takes the time of an update in proportion to the rollouts.
func (w simulatedWeights) ForwardBackward(ctx context.Context, rows []rl.Row, _ rl.Objective) (rl.Stats, error) {
	rollouts := 0
	for _, r := range rows {
		if r.Row == 0 {
			rollouts++
		}
	}
	all := w.c.rollouts.Tasks * w.c.rollouts.Group
	err := w.c.sleep(ctx, time.Duration(w.c.latencies.Update)*time.Duration(rollouts)/time.Duration(all))
	return rl.Stats{Rows: len(rows), Tokens: len(rows)}, err
}

func (w simulatedWeights) Step(context.Context, rl.Optimizer) (rl.StepStats, error) {
	w.c.version++
	return rl.StepStats{GradientNorm: 1}, nil
}

func (w simulatedWeights) Publish(ctx context.Context) (rl.Policy, error) {
	var err error
	if w.c.version > 0 {
		err = w.c.sleep(ctx, time.Duration(w.c.latencies.Publish))
	}
	return rl.Policy{Model: w, Version: w.c.version}, err
}

func (w simulatedWeights) Save(context.Context, string) error   { return nil }
func (w simulatedWeights) Load(context.Context, string) error   { return nil }
func (w simulatedWeights) Remove(context.Context, string) error { return nil }
func (w simulatedWeights) Close() error                         { return nil }
