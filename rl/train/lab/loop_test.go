package lab

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/env/testkit"
	"deepswe/rl"
	"deepswe/rl/train"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
)

// The simulated schedule takes as long as the real loop and engine, if only replies, tool calls, gradings and the
// trainer take time. At gates they may differ: there, Go's scheduler decides which waiting goroutine is next.
func TestScheduleOfTheLoop(t *testing.T) {
	for _, c := range []struct {
		name, trainer string
		set           []string
	}{
		{"taking turns", "", []string{"rollouts.max_staleness=0"}},
		{"one update ahead", "", []string{"rollouts.max_staleness=1", "rollouts.gradings=8"}},
		{"two, in minibatches", "", []string{"rollouts.max_staleness=2", "optimizer.minibatches=4"}},
		{"a limit of time, two epochs", "", []string{
			"rollouts.max_staleness=2", "simulate.timeout=8m", "optimizer.epochs=2",
		}},
		{"gates", "", []string{"rollouts.max_staleness=1", "rollouts.models=20", "rollouts.gradings=2"}},
		{"validation and checkpoints", "", []string{
			"evaluate={every: 2, before: true, tasks: 40}", "checkpoint.every=3", "rollouts.max_staleness=1",
		}},
		{"validation beside the training, and checkpoints", "", []string{
			"evaluate={every: 2, before: true, tasks: 40, workers: 8}", "checkpoint.every=3", "rollouts.max_staleness=1",
			"simulate.checkpoint=120s",
		}},
		{"gradients once all tokens are counted", "", []string{
			"rollouts.max_staleness=1", "algorithm.set={aggregation: token_mean}",
		}},
		{"the server's own loss", "", []string{
			"rollouts.max_staleness=1", "algorithm.set={surrogate: importance_sampling}", "optimizer.epochs=2",
		}},
		{"the server's own loss, taking turns", "", []string{
			"rollouts.max_staleness=0", "algorithm.set={surrogate: importance_sampling, aggregation: token_mean}",
			"optimizer.minibatches=2",
		}},
		{"the server's own loss, once all tokens are counted", "", []string{
			"rollouts.max_staleness=1", "algorithm.set={surrogate: importance_sampling, aggregation: token_mean}",
		}},
		{"a server that samples itself", alone, []string{"rollouts.max_staleness=2"}},
		{"few workers, and gradients as groups come", "{name: embedded}", []string{
			"rollouts.workers=12", "rollouts.max_staleness=1",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testkit.SkipUnderRace(t)
			cfg, err := config.Load([]byte(small+"trainer: "+cmp.Or(c.trainer, server)), builtin.Parts(), c.set...)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				real := newWorld(t, cfg)
				s, want := real.schedule, real.takeSteps(t, cfg, filepath.Join(t.TempDir(), "run"))
				if err := s.takeSteps(t.Context()); err != nil {
					t.Fatal(err)
				}
				if s.sums.taken != cfg.Steps*16 {
					t.Errorf("%d rollouts were learned from, want %d", s.sums.taken, cfg.Steps*16)
				}
				within := 0.005
				if c.name == "gates" {
					within = 0.05
				}
				for i, at := range s.sums.ended {
					if d := math.Abs(at.Seconds()/want[i].Seconds() - 1); d > within {
						t.Errorf("step %d ended after %s, and in the loop after %s", i+1, at, want[i])
					}
				}
			})
		})
	}
}

const (
	server = `{name: tinker, base_url: "http://trainer", model: m, vocabulary: 10, samplers: ["http://vllm"]}`
	alone  = `{name: tinker, base_url: "http://trainer", model: m, vocabulary: 10}`
)

const small = `
steps: 8
environment: {name: frozenlake}
rollouts: {tasks: 4, group: 4, workers: 40}
evaluate: {every: 0}
checkpoint: {every: 100}
guards: {collapse: {action: off}, mismatch_kl: 0}
`

// world is an environment and a trainer that do nothing but take the time that the schedule assumes.
type world struct {
	*schedule
	start   time.Time
	version int64
	learned int // rollouts in the gradients of the next optimizer step
	// While paused is set, replies wait; an optimizer step waits until no reply is running.
	mu      sync.Mutex
	changed *sync.Cond
	running int
	paused  bool
}

// newWorld returns the world for a configuration's schedule.
func newWorld(t *testing.T, c config.Config) *world {
	t.Helper()
	s, err := newSchedule(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{schedule: s, start: time.Now()}
	w.changed = sync.NewCond(&w.mu)
	return w
}

// takeSteps runs the loop in a directory, and returns when each step ended.
func (w *world) takeSteps(t *testing.T, c config.Config, dir string) []time.Duration {
	t.Helper()
	c.Environment, c.Trainer, c.Simulate = worldEnvironment{w}, worldTrainer{w}, nil
	result, err := train.Start(t.Context(), c, train.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	var ended []time.Duration
	for _, p := range result.Points {
		if _, ok := p.Values["time/step"]; ok { // a measurement beside the training is another point
			ended = append(ended, p.Time.Sub(w.start))
		}
	}
	return ended
}

type worldEnvironment struct{ w *world }

func (e worldEnvironment) Complete(*config.Config) error { return nil }
func (e worldEnvironment) Check(*slog.Logger) error      { return nil }

func (e worldEnvironment) Open(_ context.Context, o part.EnvironmentOptions) (part.Environment, error) {
	return part.Environment{Player: worldPlayer{e.w, o.Gates}}, nil
}

type worldPlayer struct {
	w     *world
	gates run.Gates
}

func (p worldPlayer) Close() error { return nil }

func (p worldPlayer) Tasks(part.Split) []string {
	tasks := make([]string, 1<<10)
	for i := range tasks {
		tasks[i] = strconv.Itoa(i)
	}
	return tasks
}

// Runner plays rollouts as the schedule draws them.
func (p worldPlayer) Runner(_ part.Split, m agent.Model) run.Runner {
	return run.RunnerFunc(func(ctx context.Context, j run.Job) (run.Result, error) {
		drawn, start := draw(p.w.latencies, j), time.Now()
		left := func(took time.Duration) time.Duration {
			if limit := time.Duration(p.w.latencies.Timeout); limit > 0 {
				return min(took, limit-time.Since(start))
			}
			return took
		}
		res := run.Result{StopReason: agent.Submitted}
		spend := func(took time.Duration, total *float64) {
			time.Sleep(took)
			*total += took.Seconds()
		}
		for i := range drawn.turns {
			// A turn's prompt extends the turn before, so that a rollout is one row.
			r := agent.Request{MaxTokens: 1 + 2*i}
			asked := time.Now()
			reply, err := m.Complete(context.WithValue(ctx, replyTime{}, left(drawn.times[2*i])), r)
			if err != nil {
				return res, err
			}
			res.Times.Model += time.Since(asked).Seconds()
			res.Turns = append(res.Turns, *reply.Tokens)
			spend(left(drawn.times[2*i+1]), &res.Times.Environment)
			if left(1) <= 0 {
				res.StopReason, res.NotGraded = agent.Timeout, true
				return res, nil
			}
		}
		run.Release(ctx)
		leave, err := p.gates.Grading.Enter(ctx)
		if err != nil {
			return res, err
		}
		defer leave()
		spend(time.Duration(p.w.latencies.Grading), &res.Times.Reward)
		res.Reward = new(float64(j.Index % 2))
		return res, nil
	})
}

// replyTime is the context key of the time that a reply takes.
type replyTime struct{}

// worldTrainer is the configuration of a trainer whose weights are a number.
type worldTrainer struct{ w *world }

func (t worldTrainer) Complete(*config.Config) error { return nil }

func (t worldTrainer) Open(context.Context, part.TrainerOptions) (part.Trainer, error) {
	return part.Trainer{Trainer: weights(t)}, nil
}

type weights struct{ w *world }

// Complete takes the time of a reply. The request's MaxTokens is the length of its prompt.
func (m weights) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	took, _ := ctx.Value(replyTime{}).(time.Duration)
	m.wait(func() bool { return !m.w.paused }, func() { m.w.running++ })
	time.Sleep(took)
	m.wait(func() bool { return true }, func() { m.w.running-- })
	return agent.Reply{Tokens: &agent.Sample{
		PromptIDs: make([]int32, r.MaxTokens), CompletionIDs: []int32{0}, Logprobs: []float64{-1},
	}}, nil
}

// wait waits for a condition, and then changes the state.
func (m weights) wait(until func() bool, change func()) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	for !until() {
		m.w.changed.Wait()
	}
	change()
	m.w.changed.Broadcast()
}

// spend takes that share of an update's time for some rollouts.
func (m weights) spend(share float64, rollouts int) {
	all := float64(m.w.config.Rollouts.Tasks * m.w.config.Rollouts.Group)
	time.Sleep(time.Duration(share * float64(m.w.latencies.Update) * float64(rollouts) / all))
}

func (m weights) Forward(_ context.Context, rows []rl.Row) ([][]float64, error) {
	m.spend(m.w.latencies.Forward, rollouts(rows))
	return zeros(rows), nil
}

// zeros returns a logprob of 0 for every token.
func zeros(rows []rl.Row) [][]float64 {
	out := make([][]float64, len(rows))
	for i := range rows {
		out[i] = make([]float64, len(rows[i].IDs))
	}
	return out
}

// rollouts counts the rollouts that have a row with trained tokens.
func rollouts(rows []rl.Row) (n int) {
	for _, r := range rows {
		if r.Row == 0 && r.Trained {
			n++
		}
	}
	return n
}

func (m weights) ForwardBackward(_ context.Context, rows []rl.Row, o rl.Objective) (rl.Pass, error) {
	n := rollouts(rows)
	if !o.Plain() || o.Estimated {
		m.spend(m.w.latencies.Forward, n)
	}
	if o.Estimated {
		m.w.learned += n
	} else {
		m.spend(1-m.w.latencies.Forward, n)
	}
	stats := rl.Stats{Rows: len(rows), Distance: rl.Distance{Tokens: len(rows)}}
	return rl.Pass{Stats: stats, Logprobs: zeros(rows)}, nil
}

func (m weights) Step(context.Context, rl.Optimizer) (rl.StepStats, error) {
	m.spend(1-m.w.latencies.Forward, m.w.learned)
	m.w.learned = 0
	m.wait(func() bool { return true }, func() { m.w.paused = m.w.engine.pauses })
	m.wait(func() bool { return !m.w.paused || m.w.running == 0 }, func() {})
	m.w.version++
	return rl.StepStats{GradientNorm: 1}, nil
}

func (m weights) Publish(context.Context) (rl.Policy, error) {
	if m.w.version > 0 {
		time.Sleep(time.Duration(m.w.latencies.Publish))
	}
	m.wait(func() bool { return true }, func() { m.w.paused = false })
	return rl.Policy{Model: m, Version: m.w.version}, nil
}

func (m weights) Save(context.Context, string) error {
	time.Sleep(time.Duration(m.w.latencies.Checkpoint))
	return nil
}

func (m weights) Load(context.Context, string) error   { return nil }
func (m weights) Remove(context.Context, string) error { return nil }
func (m weights) Close() error                         { return nil }
