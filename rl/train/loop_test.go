package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// coin is an environment whose rewards a function gives, with a trainer that only counts: it shows what the loop does
// with groups and updates without a network.
type coin struct {
	Reward  func(a run.Job) (float64, error) `yaml:"-"`
	Trainer *counting                        `yaml:"-"`
}

func (c *coin) Complete(*config.Config) error { return nil }

func (c *coin) Open(context.Context, part.EnvironmentOptions) (part.Environment, error) {
	return part.Environment{Player: c}, nil
}

func (c *coin) Tasks(s part.Split) []string {
	if s == part.Validation {
		return []string{"v0", "v1", "v2", "v3"}
	}
	return []string{"t0", "t1", "t2", "t3", "t4"}
}

func (c *coin) Runner(_ part.Split, m agent.Model) run.Runner {
	return run.RunnerFunc(func(ctx context.Context, a run.Job) (run.Result, error) {
		if _, err := m.Complete(ctx, agent.Request{}); err != nil {
			return run.Result{}, err
		}
		reward, err := c.Reward(a)
		return run.Result{
			Reward: &reward, StopReason: agent.Submitted,
			Turns:   []rl.Turn{{PromptIDs: []int32{1}, CompletionIDs: []int32{2}, Logprobs: []float64{-1}}},
			Metrics: map[string]float64{"flips": 2},
		}, err
	})
}

// counting is a trainer that records its calls.
type counting struct {
	calls   []string
	steps   int
	norm    float64
	skip    bool
	err     error
	mu      sync.Mutex // of asked
	asked   []int
	removed []string
	closed  int
}

func (c *counting) Forward(context.Context, []rl.Row) ([][]float64, error) { return nil, nil }

func (c *counting) ForwardBackward(_ context.Context, rows []rl.Row, _ rl.Objective) (rl.Pass, error) {
	c.calls = append(c.calls, fmt.Sprintf("rows %d", len(rows)))
	return rl.Pass{Stats: rl.Stats{Rows: len(rows), Distance: rl.Distance{Tokens: len(rows)}, Loss: math.NaN()}}, c.err
}

func (c *counting) Step(_ context.Context, o rl.Optimizer) (rl.StepStats, error) {
	c.calls = append(c.calls, fmt.Sprintf("step %.3g", o.LearningRate))
	c.steps++
	return rl.StepStats{GradientNorm: c.norm, Skipped: c.skip}, nil
}

func (c *counting) Publish(context.Context) (rl.Policy, error) {
	c.calls = append(c.calls, "publish")
	return rl.Policy{Model: published{c, c.steps}, Version: int64(c.steps)}, nil
}

// published records the version that is asked.
type published struct {
	c       *counting
	version int
}

func (p published) Complete(context.Context, agent.Request) (agent.Reply, error) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.asked = append(p.c.asked, p.version)
	return agent.Reply{}, nil
}

func (c *counting) Save(_ context.Context, name string) error {
	c.calls = append(c.calls, "save "+name)
	return nil
}

func (c *counting) Load(_ context.Context, name string) error {
	c.calls = append(c.calls, "load "+name)
	return nil
}

func (c *counting) Remove(_ context.Context, name string) error {
	c.removed = append(c.removed, name)
	return nil
}

func (c *counting) Close() error {
	c.closed++
	return nil
}

// counted are the settings of a counting trainer.
type counted struct {
	t *counting
}

func (c *counted) Complete(*config.Config) error { return nil }

func (c *counted) Open(context.Context, part.TrainerOptions) (part.Trainer, error) {
	return part.Trainer{Trainer: c.t}, nil
}

const coins = `
steps: 2
environment: {name: coin}
trainer: {name: counting}
rollouts: {tasks: 4, group: 2, retries: 0, workers: 1}
algorithm: {max_length: 10}
optimizer: {learning_rate: 0.1}
evaluate: {every: 0}
checkpoint: {every: 1}
`

// flip runs coins in a new directory.
func flip(t *testing.T, c *counting, reward func(a run.Job) (float64, error), set ...string) (Result, string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	r, err := flipIn(t, dir, false, c, reward, set...)
	return r, dir, err
}

func flipIn(t *testing.T, dir string, resume bool, c *counting, reward func(a run.Job) (float64, error),
	set ...string) (Result, error) {
	t.Helper()
	parts := config.Parts{
		Environments: map[string]func() config.EnvironmentSettings{
			"coin": func() config.EnvironmentSettings { return &coin{Reward: reward} },
		},
		Trainers: map[string]func() config.TrainerSettings{"counting": func() config.TrainerSettings { return &counted{c} }},
	}
	cfg, err := config.Load([]byte(coins), parts, set...)
	if err != nil {
		t.Fatal(err)
	}
	result, err := Start(t.Context(), cfg, Options{Dir: dir, Resume: resume})
	return result, err
}

// heads gives the even attempts a reward.
func heads(a run.Job) (float64, error) { return float64((a.Index + 1) % 2), nil }

// Each step is played with the policy that was published last, and the trainer is closed once at the end.
func TestLoopPlaysThePublishedPolicy(t *testing.T) {
	t.Parallel()
	c := &counting{}
	if _, _, err := flip(t, c, heads, "steps=4", "checkpoint.keep=2"); err != nil {
		t.Fatal(err)
	}
	var want []int
	for step := range 4 {
		want = append(want, slices.Repeat([]int{step}, 8)...)
	}
	if !slices.Equal(c.asked, want) {
		t.Errorf("versions that played %v, want %v", c.asked, want)
	}
	if want := []string{"step-000001", "step-000002"}; !slices.Equal(c.removed, want) || c.closed != 1 {
		t.Errorf("removed %q, want %q; closed %d times, want once", c.removed, want, c.closed)
	}
}

func TestOrderOfCalls(t *testing.T) {
	t.Parallel()
	c := &counting{norm: 3}
	r, _, err := flip(t, c, heads, "optimizer.minibatches=2", "optimizer.epochs=2", "optimizer.warmup=4")
	if err != nil {
		t.Fatal(err)
	}
	update := func(rate string) []string {
		part := []string{"rows 4", "step " + rate}
		return slices.Concat(part, part, part, part, []string{"publish"})
	}
	want := slices.Concat([]string{"publish"}, update("0.025"), []string{"save step-000001"}, update("0.05"),
		[]string{"save step-000002"})
	if !slices.Equal(c.calls, want) {
		t.Errorf("got  %q\nwant %q", c.calls, want)
	}
	v := r.Points[1].Values
	for name, want := range map[string]float64{
		"optim/updates": 4, "optim/lr": 0.05, "optim/grad_norm": 3, "rollout/flips": 2, "groups/solve_partial": 4,
		"reward/mean":    0.5,
		"policy/version": 8, "staleness/mean": 0, "rollouts/total": 8,
	} {
		if v[name] != want {
			t.Errorf("%s is %v, want %v", name, v[name], want)
		}
	}
	if _, ok := v["loss/total"]; ok {
		t.Error("a loss that is not a number was recorded")
	}
}

func TestNothingToLearn(t *testing.T) {
	t.Parallel()
	c := &counting{}
	_, _, err := flip(t, c, func(run.Job) (float64, error) { return 1, nil }, "steps=1")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"publish", "publish", "save step-000001"}; !slices.Equal(c.calls, want) {
		t.Errorf("groups that all agree led to %q", c.calls)
	}
}

// With refills, groups whose rewards agree are replaced until there are enough groups or no rounds are left.
func TestRefill(t *testing.T) {
	t.Parallel()
	var tasks []string
	reward := func(a run.Job) (float64, error) {
		if a.Index == 0 {
			tasks = append(tasks, a.Task)
		}
		if len(tasks) <= 2 {
			return 0, nil
		}
		return heads(a)
	}
	r, _, err := flip(t, &counting{}, reward, "steps=1", "rollouts.refill=2", "uniform=drop")
	if err != nil {
		t.Fatal(err)
	}
	v := r.Points[0].Values
	if v["groups/total"] != 6 || v["groups/effective"] != 4 || v["groups/dropped"] != 2 {
		t.Errorf("%v groups, %v effective, %v dropped", v["groups/total"], v["groups/effective"], v["groups/dropped"])
	}
	if len(tasks) != 6 {
		t.Errorf("played %q", tasks)
	}
}

// Each task comes once before any comes again. The order differs between rounds, and depends only on the seed.
func TestOrderOfTasks(t *testing.T) {
	t.Parallel()
	tasks := []string{"a", "b", "c", "d", "e", "f", "g"}
	rounds := map[string]bool{}
	for seed := range uint64(2) {
		o := order{seed: seed, tasks: tasks}
		for round := range 3 {
			var got []string
			for i := range tasks {
				got = append(got, o.at(round*len(tasks)+i))
			}
			rounds[strings.Join(got, "")] = true
			slices.Sort(got)
			if !slices.Equal(got, tasks) {
				t.Errorf("round %d: %q", round, got)
			}
		}
		again := order{seed: seed, tasks: tasks}
		for _, place := range []int{20, 3, 11, 3} {
			if again.at(place) != o.at(place) {
				t.Errorf("place %d depends on what was asked before", place)
			}
		}
	}
	if len(rounds) != 6 {
		t.Errorf("only %d different orders", len(rounds))
	}
}

// A failed attempt has no reward and does not count in its group.
func TestFailedAttempts(t *testing.T) {
	t.Parallel()
	reward := func(a run.Job) (float64, error) {
		if a.Index == 1 {
			return 1, errors.New("no sandbox")
		}
		return heads(a)
	}
	r, _, err := flip(t, &counting{}, reward, "rollouts.group=3", "steps=1")
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Points[0].Values; v["rollouts/no_reward"] != 4 || v["reward/mean"] != 1 || v["groups/solve_all"] != 4 {
		t.Errorf("%v without a reward, mean %v, %v solved by all", v["rollouts/no_reward"], v["reward/mean"],
			v["groups/solve_all"])
	}
}

func TestEverythingFails(t *testing.T) {
	t.Parallel()
	down := errors.New("connection refused")
	_, _, err := flip(t, &counting{}, func(run.Job) (float64, error) { return 0, down }, "rollouts.max_failures=3")
	if !errors.Is(err, down) || !strings.Contains(err.Error(), "3 attempts in a row") {
		t.Errorf("got %v", err)
	}
}

func TestTrainerThatFails(t *testing.T) {
	t.Parallel()
	out := errors.New("out of memory")
	c := &counting{err: out}
	_, _, err := flip(t, c, heads)
	if !errors.Is(err, out) || !strings.Contains(err.Error(), "step 1") {
		t.Errorf("got %v", err)
	}
	for _, call := range c.calls {
		if strings.HasPrefix(call, "save") {
			t.Errorf("saved after the trainer had failed, want no save: %q", c.calls)
		}
	}
}

func TestSkippedStepsStopTheRun(t *testing.T) {
	t.Parallel()
	c := &counting{skip: true}
	r, dir, err := flip(t, c, heads, "guards.max_skipped=3", "steps=9", "checkpoint.every=100")
	if !errors.Is(err, errGuard) {
		t.Fatalf("got %v", err)
	}
	if len(r.Points) != 3 || !slices.Contains(c.calls, "save step-000003") {
		t.Errorf("%d steps, calls %q", len(r.Points), c.calls)
	}
	// A resumed run gets another chance.
	c.skip = false
	if r, err = flipIn(t, dir, true, c, heads, "guards.max_skipped=3", "steps=9",
		"checkpoint.every=100"); err != nil || len(r.Points) != 9 {
		t.Errorf("%d steps, %v", len(r.Points), err)
	}
}

func TestGuards(t *testing.T) {
	t.Parallel()
	g := guard{settings: config.Guards{MaxSkipped: 2, MismatchKL: 0.1,
		Collapse: config.Collapse{Window: 2, Fraction: 0.5, Patience: 3, Action: config.Warn}}}
	var all []string
	for step, v := range []map[string]float64{
		{"reward/mean": 9}, // step 0 is no step
		{"reward/mean": 0.8, "optim/updates": 1},
		{"reward/mean": 0.8, "optim/updates": 1, "mismatch/kl_k3": 0.2},
		{"reward/mean": 0.1, "optim/skipped": 1},
		{"reward/mean": 0.1, "optim/updates": 1},
		{"reward/mean": 0.1, "optim/skipped": 1},
		{"reward/mean": 0.1, "optim/updates": 1},
		{"reward/mean": 0.1, "optim/updates": 1},
		{"reward/mean": 0.1, "optim/updates": 1},
	} {
		warnings, err := g.observeStep(metrics.Point{Step: step, Values: v})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range warnings {
			all = append(all, fmt.Sprint(step, " ", w[:min(len(w), 22)]))
		}
	}
	// Windows: .8, .45, .1, .1, .1: below half of .8 from step 4 on, for the third time at step 6, and told once.
	want := []string{"2 sampler and trainer di", "3 1 optimizer steps ski", "5 1 optimizer steps ski",
		"6 the mean reward over"}
	for i, w := range all {
		if i >= len(want) || !strings.HasPrefix(w, want[i][:20]) {
			t.Errorf("warning %q", w)
		}
	}
	if len(all) != len(want) {
		t.Errorf("warnings %q", all)
	}
	g.settings.Collapse.Action = config.Stop
	if _, err := g.observeStep(metrics.Point{Step: 9, Values: map[string]float64{"reward/mean": 0}}); !errors.Is(err,
		errGuard) {
		t.Errorf("got %v", err)
	}
}

// Steps whose rollouts are all masked or dropped teach nothing. There is a warning at the first of them and at every
// tenth that follows.
func TestNothingLeftToLearnFrom(t *testing.T) {
	t.Parallel()
	g := guard{settings: config.Guards{Collapse: config.Collapse{Window: 9}}}
	var said []int
	for step := 1; step <= 24; step++ {
		values := map[string]float64{
			"rollouts/total": 32, "rollouts/masked": 30, "rollouts/filtered": 2, "masked/max_context": 30. / 32,
			"dropped/timeout": 2. / 32, "masked/max_steps": 0,
		}
		if step == 13 {
			values["rollouts/masked"] = 29
		}
		warnings, err := g.observeStep(metrics.Point{Step: step, Values: values})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range warnings {
			said = append(said, step)
			if !strings.Contains(w, "all 32 rollouts ended by max_context or timeout") ||
				!strings.Contains(w, "filter.max_context=keep") {
				t.Error(w)
			}
		}
	}
	if want := []int{1, 11, 14, 24}; !slices.Equal(said, want) {
		t.Errorf("warned at steps %d, want %d", said, want)
	}
}

// At the first step, the entropy of a pretrained policy must lie within bounds: below them there is a warning, and
// above them the guard acts. Later steps are not checked.
func TestEntropyOfThePolicyToBeginWith(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entropy    float64
		pretrained bool
		action     config.Action
		warns      bool
		stops      bool
	}{
		{0.29, true, config.Warn, true, false},
		{0.3, true, config.Warn, false, false},
		{1, true, config.Stop, false, false},
		{1.01, true, config.Stop, false, true},
		{1.01, true, config.Off, false, false},
		{1.01, false, config.Stop, false, false}, // random weights, or an entropy term
	} {
		g := guard{pretrained: c.pretrained, settings: config.Guards{
			Entropy: config.Entropy{Min: 0.3, Max: 1, Action: c.action}, Collapse: config.Collapse{Window: 9},
		}}
		warnings, err := g.observeStep(metrics.Point{Step: 1, Values: map[string]float64{entropyMetric: c.entropy}})
		if (len(warnings) > 0) != c.warns || errors.Is(err, errGuard) != c.stops {
			t.Errorf("%+v: %q, %v", c, warnings, err)
		}
		if _, err := g.observeStep(metrics.Point{Step: 2, Values: map[string]float64{entropyMetric: 9}}); err != nil {
			t.Errorf("a policy that has learned: %v", err)
		}
	}
	// The sampler's probabilities of the first two rollouts in switches_test.go: minus their mean logarithm is
	// 0.881725.
	values := map[string]float64{}
	var rollouts []rl.Rollout
	for _, ps := range [][]float64{{.5, .4, .3}, {.6, .2, .7}} {
		var r rl.Rollout
		for _, p := range ps {
			r.Turns = append(r.Turns, rl.Turn{Logprobs: []float64{math.Log(p)}})
		}
		rollouts = append(rollouts, r)
	}
	if entropy(values, rollouts); math.Abs(values[entropyMetric]-0.881725) > 1e-6 {
		t.Errorf("entropy %v", values)
	}
}

// pretrained are the settings of a counting trainer that claims to have a pretrained language model.
type pretrained struct {
	counted `yaml:"-"`
	experts int
}

func (p *pretrained) Open(context.Context, part.TrainerOptions) (part.Trainer, error) {
	return part.Trainer{Trainer: p.t, Pretrained: true, Experts: p.experts}, nil
}

// A coin's policy has an entropy of 1. A run that the guard stopped can be resumed, and a run with an entropy term is
// not stopped.
func TestEntropyStopsTheRun(t *testing.T) {
	t.Parallel()
	parts := config.Parts{
		Environments: map[string]func() config.EnvironmentSettings{
			"coin": func() config.EnvironmentSettings { return &coin{Reward: heads} },
		},
		Trainers: map[string]func() config.TrainerSettings{
			"counting": func() config.TrainerSettings { return &pretrained{counted: counted{&counting{}}} },
		},
	}
	for _, c := range []struct {
		set  []string
		ends bool
	}{{[]string{"guards.entropy.max=0.5"}, true}, {[]string{"guards.entropy.max=0.5", "entropy=0.01"}, false}, {nil, false}} {
		cfg, err := config.Load([]byte(coins), parts, append(c.set, "guards.entropy.action=stop")...)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Dir: filepath.Join(t.TempDir(), "run")}
		if _, err := Start(t.Context(), cfg, o); errors.Is(err, errGuard) != c.ends || !c.ends && err != nil {
			t.Errorf("%q: %v", c.set, err)
		}
		o.Resume = true
		if _, err := Start(t.Context(), cfg, o); err != nil {
			t.Errorf("%q, resumed: %v", c.set, err)
		}
	}
}

// A run with a mixture of experts warns, unless a correction limits the difference from the sampler.
func TestMixtureOfExperts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		experts int
		set     []string
		warns   bool
	}{
		{0, nil, false}, {1, nil, false}, {8, nil, true}, {8, []string{"decoupled=true"}, true},
		{8, []string{"decoupled=true", "corrections.token_min=0.5", "corrections.token_max=5",
			"corrections.truncate_token=5"}, false},
		{8, []string{"corrections.geometric_min=0.99", "corrections.geometric_max=1.01"}, false},
	} {
		cfg, err := config.Load([]byte(coins), config.Parts{
			Environments: map[string]func() config.EnvironmentSettings{
				"coin": func() config.EnvironmentSettings { return &coin{Reward: heads} },
			},
			Trainers: map[string]func() config.TrainerSettings{
				"counting": func() config.TrainerSettings { return &pretrained{counted{&counting{}}, c.experts} },
			},
		}, append(c.set, "steps=1")...)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		o := Options{Dir: filepath.Join(t.TempDir(), "run"), World: cli.World{Log: slog.New(slog.NewTextHandler(&log, nil))}}
		if _, err := Start(t.Context(), cfg, o); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(log.String(), "the model is a mixture of experts") == 1; got != c.warns {
			t.Errorf("%d experts, %q: it warns is %t in %s", c.experts, c.set, got, &log)
		}
	}
}

func TestUntrainedTokensStopTheRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		step  int
		share float64
		stops bool
	}{{1, 0.79, true}, {1, 0.8, false}, {2, 0.1, false}} {
		var g guard
		_, err := g.observeStep(metrics.Point{Step: tt.step, Values: map[string]float64{
			part.TrainedShare: tt.share, "conversations/auxiliary": 2.5,
		}})
		if errors.Is(err, errGuard) != tt.stops || tt.stops && !strings.Contains(err.Error(), "only 79% of the sampled") {
			t.Errorf("step %d, %v: %v", tt.step, tt.share, err)
		}
	}
	if _, err := new(guard).observeStep(metrics.Point{Step: 1}); err != nil {
		t.Errorf("without the metric: %v", err)
	}
}

func TestValidationScore(t *testing.T) {
	t.Parallel()
	o := func(task string, reward float64) run.Outcome {
		return run.Outcome{Job: run.Job{Task: task}, Result: run.Result{Reward: &reward, Turns: make([]rl.Turn, 3)}}
	}
	lost := run.Outcome{Job: run.Job{Task: "c"}, Err: "x"}
	// a: 1 of 2, b: 0 of 2, c: 1 of 1 and one lost, d: all lost.
	v := map[string]float64{}
	score(v, "", []run.Outcome{o("a", 1), o("a", 0), o("b", 0), o("b", 0.5), o("c", 1), lost,
		{Job: run.Job{Task: "d"}, Err: "x"}}, 2, 0)
	if v["failed"] != 2 || math.Abs(v["pass@1"]-0.5) > 1e-12 || v["pass@2"] != 0.5 || v["turns"] != 3 {
		t.Errorf("%v", v)
	}
}

func TestKeptRolloutsCanBeExported(t *testing.T) {
	t.Parallel()
	for _, every := range []string{"1", "2"} {
		_, dir, err := flip(t, &counting{}, heads, "checkpoint.every="+every)
		if err != nil {
			t.Fatal(err)
		}
		src, err := record.OpenRollouts(dir)
		if err != nil {
			t.Fatal(err)
		}
		n, groups := 0, map[string]int{}
		for r, err := range src.Rollouts(t.Context(), func(r *rl.Rollout) error { return r.Validate() }) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			groups[r.Group]++
			if r.PolicyVersion == "" || len(r.Turns) != 1 {
				t.Errorf("%+v", r)
			}
		}
		if n != 16 || len(groups) != 8 {
			t.Errorf("%d rollouts in %d groups", n, len(groups))
		}
	}
	_, dir, err := flip(t, &counting{}, heads, "rollouts.keep_logs=false")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := record.OpenRollouts(dir); err == nil || !strings.Contains(err.Error(), "keep_logs") {
		t.Errorf("got %v", err)
	}
	graded, err := run.Create(t.TempDir(), run.Manifest{Kind: run.Grade})
	if err != nil {
		t.Fatal(err)
	}
	defer graded.Close()
	if _, err := record.OpenRollouts(graded.Path()); err == nil || !strings.Contains(err.Error(), "a run of grade") {
		t.Errorf("a run of grade: %v", err)
	}
}

// A line of the journal is a line of rollouts.jsonl with more members, and is read back complete.
func TestJournalLines(t *testing.T) {
	t.Parallel()
	failed := run.Outcome{
		Job: run.Job{Task: "t <&>", Group: "g", Index: 2}, Err: "no sandbox", Tries: 3,
		Result: run.Result{
			StopReason: agent.SandboxError, Turns: []rl.Turn{},
			Times: run.Times{Total: 1.5}, Metrics: map[string]float64{"x": 0.1}, Detail: json.RawMessage(`[1]`),
		},
	}
	turn := func(version int64) rl.Turn {
		return rl.Turn{PromptIDs: []int32{1}, CompletionIDs: []int32{2}, Logprobs: []float64{-1}, PolicyVersion: &version}
	}
	solved := run.Outcome{
		Job: run.Job{Task: "t", Group: "g"}, Tries: 1,
		Result: run.Result{Reward: new(1.0), StopReason: agent.Submitted, Turns: []rl.Turn{turn(5), turn(4), turn(4)}},
	}
	path := filepath.Join(t.TempDir(), "steps", "000001", "rollouts.jsonl")
	j, err := record.OpenJournal(path, 6)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Record(failed), j.Record(solved), j.Close()); err != nil {
		t.Fatal(err)
	}
	if j, err = record.OpenJournal(path, 7); err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, want := range []run.Outcome{failed, solved} {
		got, ok := j.Find(want.Job)
		x, errX := json.Marshal(got)
		y, errY := json.Marshal(want)
		if !ok || errX != nil || errY != nil || !bytes.Equal(x, y) {
			t.Errorf("got  %s\nwant %s", x, y)
		}
	}
	raw, err := os.ReadFile(path)
	lines := strings.Split(string(raw), "\n")
	if err != nil || len(lines) != 3 {
		t.Fatalf("%s, %v", raw, err)
	}
	for i, want := range []string{
		`{"task":"t <&>","group":"g","attempt":2,"reward":null,"stop_reason":"sandbox_error","policy_version":6,"turns":[],`,
		// Only a turn that was not sampled by the oldest version has its own version.
		`"policy_version":4,"turns":[{"prompt_ids":[1],"completion_ids":[2],"logprobs":[-1],"policy_version":5},` +
			`{"prompt_shared":1,"prompt_ids":[],"completion_ids":[2],"logprobs":[-1]},{`,
	} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %s, without %s", i+1, lines[i], want)
		}
	}
}

func TestReportThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	d, err := run.Create(dir, run.Manifest{Kind: run.Train})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.Mkdir(filepath.Join(dir, record.ReportFile), 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	w := &recorder{dir: d, now: time.Now, log: slog.New(slog.NewTextHandler(&log, nil))}
	w.Point(metrics.Point{Step: 1})
	w.writers.Wait()
	if len(w.points) != 1 || !strings.Contains(log.String(), "report not written") {
		t.Errorf("%d points, log %q", len(w.points), log.String())
	}
	if w.report() == nil {
		t.Error("no error")
	}
}
