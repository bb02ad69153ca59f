package train

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
)

// everything adds to tiny what a resumed run has to remember: a curriculum and stages.
var everything = []string{
	"curriculum.on=true", "curriculum.after=1", "curriculum.every=3", "environment.train_tasks=7",
	"stages=[{from: 3, max_steps: 7}, {after: {metric: optim/lr, window: 1}, learning_rate: 0.01}]",
}

const besides = "evaluate.workers=2"

// Validation during training measures the same policies as validation between steps, exactly.
func TestValidationBesideTraining(t *testing.T) {
	t.Parallel()
	inTurn, _ := undisturbed(t, mustLoad(t, tiny))
	besideIt, _ := undisturbed(t, mustLoad(t, tiny, besides))
	sameOutcome(t, inTurn, besideIt)
}

// A run with a curriculum, stages and validation ends the same when it is resumed from copies made at many moments, and
// measures nothing twice.
func TestResumeWithEverything(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{"in turn": "evaluate.workers=0", "beside": besides} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mustLoad(t, tiny, append(everything, more)...)
			root := t.TempDir()
			dir, events := filepath.Join(root, "run"), 0
			o := Options{Dir: dir, Observer: observing(func(n int) {
				if events = n; n%29 == 0 {
					copyRun(t, filepath.Join(root, fmt.Sprint(n)), dir)
				}
			})}
			if _, err := Start(t.Context(), c, o); err != nil {
				t.Fatal(err)
			}
			want := outcomeOf(t, dir, c)
			if want.Metrics[6]["curriculum/open"]+want.Metrics[6]["curriculum/parked_never"] == 0 {
				t.Errorf("no curriculum in %v", want.Metrics[6])
			}
			if want.Metrics[6]["optim/lr"] != 0.01 {
				t.Errorf("learning rate %v at the end", want.Metrics[6]["optim/lr"])
			}
			for n := 29; n <= events; n += 29 {
				snapshot := filepath.Join(root, fmt.Sprint(n))
				if _, err := Start(t.Context(), c, Options{Dir: snapshot, Resume: true}); err != nil {
					t.Fatal(err)
				}
				sameOutcome(t, want, outcomeOf(t, snapshot, c))
			}
		})
	}
}

// slowly is a coin whose validations wait until the gate is opened.
type slowly struct {
	coin `yaml:"-"`
	gate chan struct{}
}

func (s *slowly) Open(context.Context, part.EnvironmentOptions) (part.Environment, error) {
	return part.Environment{Player: s, Suites: []part.Split{"more"}}, nil
}

func (s *slowly) Tasks(split part.Split) []string {
	if split == "more" {
		return []string{"v0", "m1"}
	}
	return s.coin.Tasks(split)
}

func (s *slowly) Runner(split part.Split, m agent.Model) run.Runner {
	r := s.coin.Runner(split, m)
	if split == part.Train {
		return r
	}
	return run.RunnerFunc(func(ctx context.Context, a run.Job) (run.Result, error) {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return run.Result{}, ctx.Err()
		}
		return r.Run(ctx, a)
	})
}

// runSlowly trains with validations of two suites that wait for the gate, which observe opens.
func runSlowly(
	t *testing.T, ctx context.Context, observe func(p metrics.Point, open func()), set ...string,
) (Result, error) {
	t.Helper()
	gate := make(chan struct{})
	c := &counting{}
	parts := config.Parts{
		Environments: map[string]func() config.EnvironmentSettings{"coin": func() config.EnvironmentSettings {
			return &slowly{coin: coin{Reward: heads}, gate: gate}
		}},
		Trainers: map[string]func() config.TrainerSettings{"counting": func() config.TrainerSettings { return &counted{c} }},
	}
	cfg, err := config.Load([]byte(coins), parts, append([]string{"evaluate.workers=3", "evaluate.attempts=3"}, set...)...)
	if err != nil {
		t.Fatal(err)
	}
	opened := false
	dir := filepath.Join(t.TempDir(), "run")
	r, err := Start(ctx, cfg, Options{Dir: dir, Observer: func(string, int) Observer {
		return pointed(func(p metrics.Point) {
			observe(p, func() {
				if !opened {
					opened = true
					close(gate)
				}
			})
		})
	}})
	return r, err
}

// pointed is an observer of points.
type pointed func(metrics.Point)

func (pointed) Playing(int, part.Split, int, int) {}

func (pointed) Warning(string) {}

func (p pointed) Point(q metrics.Point) { p(q) }

// Training goes on during a slow validation, until a second policy waits behind the one that is being measured. Each is
// measured with its own weights, and its scores are recorded under its step.
func TestValidationDoesNotStopTraining(t *testing.T) {
	t.Parallel()
	trained := 0
	r, err := runSlowly(t, t.Context(), func(p metrics.Point, open func()) {
		if _, ok := p.Values["reward/mean"]; ok {
			trained++
		}
		if trained == 5 {
			open() // before this, no validation can have ended
		}
	}, "steps=8", "evaluate.every=2", "evaluate.before=false")
	if err != nil {
		t.Fatal(err)
	}
	if trained != 8 {
		t.Errorf("%d steps", trained)
	}
	var steps []int
	for _, p := range r.Points {
		if v, ok := p.Values["val/pass@1"]; ok {
			steps = append(steps, p.Step)
			if v != 2.0/3 || p.Values["val/more/pass@1"] != 2.0/3 || p.Values["val/pass@3"] != 1 {
				t.Errorf("step %d: %v", p.Step, p.Values)
			}
		}
	}
	if !slices.Equal(steps, []int{2, 4, 6, 8}) {
		t.Errorf("validations of steps %v", steps)
	}
}

// An interrupted run ends even if a validation is under way.
func TestInterruptDuringValidation(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := runSlowly(t, ctx, func(p metrics.Point, _ func()) {
		if p.Step == 1 { // the policies of step 0 and 1 are waiting
			cancel()
		}
	}, "steps=4", "evaluate.every=1", "rollouts.drain=0s")
	if !errors.Is(err, run.ErrInterrupted) {
		t.Errorf("got %v", err)
	}
}

func TestScore(t *testing.T) {
	t.Parallel()
	outcome := func(task string, reward float64, stop agent.StopReason, tokens int) run.Outcome {
		return run.Outcome{Job: run.Job{Task: task}, Result: run.Result{Reward: &reward, StopReason: stop, Turns: []rl.Turn{{
			PromptIDs: []int32{1}, CompletionIDs: make([]int32, tokens), Logprobs: make([]float64, tokens),
		}}}}
	}
	outcomes := []run.Outcome{
		outcome("a", 1, agent.Submitted, 2), outcome("a", 1, agent.MaxSteps, 4), outcome("a", 0, agent.MaxSteps, 6),
		outcome("a", 0, agent.Submitted, 8),
		outcome("b", 0, agent.Submitted, 0), outcome("b", 0, agent.Submitted, 0), outcome("b", 0, agent.Submitted, 0),
		{Job: run.Job{Task: "b"}},
	}
	got := map[string]float64{}
	score(got, "val/x/", outcomes, 4, 0)
	want := map[string]float64{
		"val/x/pass@1": 0.25, "val/x/pass@2": (1 - 1.0/6) / 2, "val/x/pass@4": 1, "val/x/failed": 1,
		"val/x/submitted_pass@1": 1.0 / 7, "val/x/stop/max_steps": 2.0 / 7, "val/x/stop/submitted": 5.0 / 7,
		"val/x/turns": 1, "val/x/tokens/sampled": 20.0 / 7, "val/x/tokens/environment": 0,
	}
	for name, w := range want {
		if v, ok := got[name]; !ok || v < w-1e-12 || v > w+1e-12 {
			t.Errorf("%s is %v, want %v", name, v, w)
		}
	}
	for name := range maps.Keys(got) {
		if _, ok := want[name]; !ok && got[name] != 0 && name != "val/x/pass@1_low" && name != "val/x/pass@1_high" {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	none := map[string]float64{}
	score(none, "val/", outcomes[7:], 4, 0)
	if len(none) != 1 || none["val/failed"] != 1 {
		t.Errorf("of a failure alone: %v", none)
	}
}
