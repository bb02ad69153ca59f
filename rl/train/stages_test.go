package train

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/metrics"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

func TestErrorsOfStages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ stages, want string }{
		{"[{from: 5, max_steps: 3}, {from: 5, max_steps: 4}]", "stages[1].from is 5: want more than 5"},
		{"[{from: 1, max_steps: 3}]", "stages[0].from is 1: want more than 1"},
		{"[{from: 500, max_steps: 3}]", "the run has 100 steps"},
		{"[{max_steps: 3}]", "does not say when it begins"},
		{"[{from: 3}]", "changes nothing"},
		{"[{from: 3, after: {metric: x, window: 2}, max_steps: 3}]", "both from and after"},
		{"[{after: {metric: x}, max_steps: 3}]", "a window of at least 1"},
		{"[{after: {metric: x, window: 2}, max_steps: 3}, {from: 9, max_steps: 4}]", "nobody knows"},
		{"[{from: 3, context: 9}]", "an episode has max_turns only"},
		{"[{from: 3, learning_rate: -1}]", "learning_rate above 0"},
		{"[{from: 3, contxt: 9}]", " context,"},
		{"[{from: 3, set: {clip.hihg: 0.3}}]", `stages[0].set: algorithm.set: "clip.hihg" is not a setting`},
		{"[{from: 3, set: {rollouts.tusks: 3}}]", `unknown key "tusks" in rollouts, which has tasks`},
		{"[{from: 3, set: {rollouts.tasks: many}}]", "rollouts: cannot unmarshal"},
		{"[{from: 3, set: {rollouts.tasks: 2, optimizer.minibatches: 4}}]", "want 1 to rollouts.tasks (2)"},
		{"[{from: 3, set: {rollouts.group: 1}}]", "compares a rollout with its siblings"},
		{"[{from: 3, set: {entropy: 0.1, normalise: mean}}]", "normalise mean is for the baseline mean"},
		{"[{from: 3, set: {rollouts.workers: 4}}]", "rollouts.workers cannot change in the course of a run; what can: algorithm"},
		{"[{from: 3, set: {environment.submit: true}}]", "environment.submit cannot change"},
		{"[{from: 3, set: {clip.high: 0.28}}]", "stages[0] changes nothing"},
	} {
		_, err := config.Load([]byte(least+"stages: "+c.stages+"\n"), builtin.Parts())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\ndoes not say %q", c.stages, err, c.want)
		}
	}
}

// A stage that waits for a metric begins when two windows of the stage before have the same mean. It applies to the
// groups that are not admitted yet, and begins at the same step in a resumed run.
func TestStagesFollowAMetric(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load([]byte(strings.Replace(least, "frozenlake", "residue", 1)+"stages: [{from: 3, learning_rate: 0.5}, "+
		"{after: {metric: m, window: 2, by: 0.1}, max_steps: 7, context: 70}, {after: {metric: m, window: 1}, max_steps: 9}]\n"),
		builtin.Parts(), "optimizer.learning_rate=0.1")
	if err != nil {
		t.Fatal(err)
	}
	var points []metrics.Point
	for i, v := range []float64{5, 5, 0, 1, 2, 3, 3, 3, 3, 3, 4, 4, 4, 4} {
		points = append(points, metrics.Point{Step: i + 1, Values: map[string]float64{"m": v}})
	}
	play := func(s *stages, from int) (begun []int) {
		for _, p := range points[from:] {
			if len(s.observeStep(p, p.Step+3)) > 0 {
				begun = append(begun, p.Step)
			}
		}
		return begun
	}
	s := &stages{config: &cfg}
	s.resume(nil, nil)
	// From step 3 on the values are 0 1 2 3 3 3 3, of which the last four are the first two windows with the same mean.
	// From step 12 on, when the second stage begins, they are 4 4.
	if got := play(s, 0); !slices.Equal(got, []int{9, 13}) {
		t.Errorf("stages began after steps %v", got)
	}
	for step, want := range map[int]part.Limits{
		2: {}, 3: {}, 11: {}, 12: {Steps: 7, Context: 70}, 15: {Steps: 7, Context: 70}, 16: {Steps: 9, Context: 70},
	} {
		rate := 0.5
		if step < 3 {
			rate = 0.1
		}
		if got := s.at(step); got.Limits != want || got.Optimizer.Rate(step) != rate {
			t.Errorf("at step %d %+v and %v, want %+v and %v", step, got.Limits, got.Optimizer.Rate(step), want, rate)
		}
	}
	if l := s.limits(run.Job{Group: record.GroupName(12, 3)}); l != (part.Limits{Steps: 7, Context: 70}) {
		t.Errorf("limits %+v", l)
	}
	for cut := 1; cut < len(points); cut++ {
		one := &stages{config: &cfg}
		one.resume(nil, nil)
		for _, p := range points[:cut] {
			one.observeStep(p, p.Step+3)
		}
		again := &stages{config: &cfg}
		again.resume(one.begun(), points[:cut])
		play(again, cut)
		if !slices.Equal(again.begun(), s.begun()) {
			t.Errorf("resumed after step %d: %v, want %v", cut, again.begun(), s.begun())
		}
	}
}

// The limits of a stage reach the environment, and its learning rate reaches the trainer.
func TestStagesChangeTheRun(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[int]part.Limits{}
	c := &counting{}
	parts := config.Parts{
		Environments: map[string]func() config.EnvironmentSettings{"coin": func() config.EnvironmentSettings {
			return &staged{coin: coin{Reward: heads}, seen: func(j run.Job, l part.Limits) {
				mu.Lock()
				defer mu.Unlock()
				seen[record.StepOf(j.Group)] = l
			}}
		}},
		Trainers: map[string]func() config.TrainerSettings{"counting": func() config.TrainerSettings { return &counted{c} }},
	}
	const list = "stages: [{from: 2, max_steps: 9}, {from: 3, context: 80, learning_rate: 0.25}]\n"
	cfg, err := config.Load([]byte(coins+list), parts, "steps=3")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), cfg, Options{Dir: filepath.Join(t.TempDir(), "run")}); err != nil {
		t.Fatal(err)
	}
	for step, want := range map[int]part.Limits{1: {}, 2: {Steps: 9}, 3: {Steps: 9, Context: 80}} {
		if seen[step] != want {
			t.Errorf("step %d had %+v, want %+v", step, seen[step], want)
		}
	}
	if !slices.Contains(c.calls, "step 0.25") || !slices.Contains(c.calls, "step 0.1") {
		t.Errorf("calls %q", c.calls)
	}
}

// staged is a coin that reports the limits of its rollouts.
type staged struct {
	coin `yaml:"-"`
	seen func(run.Job, part.Limits)
}

func (s *staged) Open(_ context.Context, o part.EnvironmentOptions) (part.Environment, error) {
	reward := s.Reward
	s.Reward = func(j run.Job) (float64, error) {
		s.seen(j, o.Limits(j))
		return reward(j)
	}
	return part.Environment{Player: &s.coin}, nil
}

func (s *staged) Complete(c *config.Config) error {
	c.Contexts = map[string]int{"context": 40}
	return nil
}

// boundedSettings are those of a counting trainer behind a server with its own context length.
type boundedSettings struct {
	counted `yaml:"-"`
}

func (b *boundedSettings) Open(context.Context, part.TrainerOptions) (part.Trainer, error) {
	return part.Trainer{Trainer: &counting{}, MaxContext: 64}, nil
}

func TestContextBeyondTheServers(t *testing.T) {
	t.Parallel()
	parts := config.Parts{
		Environments: map[string]func() config.EnvironmentSettings{"coin": func() config.EnvironmentSettings {
			return &staged{coin: coin{Reward: heads}, seen: func(run.Job, part.Limits) {}}
		}},
		Trainers: map[string]func() config.TrainerSettings{
			"counting": func() config.TrainerSettings { return &boundedSettings{} },
		},
	}
	for stages, want := range map[string]string{
		"[{from: 2, context: 64}]": "", "[{from: 2, context: 65}]": "stages[0].context is 65, and the server takes 64 tokens",
	} {
		cfg, err := config.Load([]byte(coins+"stages: "+stages+"\n"), parts)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Start(t.Context(), cfg, Options{Dir: filepath.Join(t.TempDir(), "run")})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", stages, err, want)
		}
	}
}

// second is the second stage of arXiv 2508.03501 in small: another clip, fewer tasks with more rollouts, and no tasks
// that more than two thirds of the rollouts solve. It must work in lockstep and with overlapping steps, and in what a
// dry run prints.
const second = "[{from: 3, set: {clip.high: 0.26, rollouts.tasks: 2, rollouts.group: 3, optimizer.minibatches: 2, " +
	"algorithm.preset: dapo, curriculum.on: true, curriculum.every: 0, curriculum.max_rate: 0.66}, learning_rate: 0.25}]"

func TestStagesChangeSwitches(t *testing.T) {
	t.Parallel()
	for _, stale := range []string{"0", "2"} {
		c := &counting{}
		_, dir, err := flip(t, c, heads, "stages="+second, "steps=4", "evaluate.every=0", "rollouts.max_staleness="+stale)
		if err != nil {
			t.Fatal(err)
		}
		visits, err := os.ReadFile(filepath.Join(dir, "visits.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		groups := map[int][]int{}
		for line := range strings.Lines(string(visits)) {
			var v record.Visit
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatal(err)
			}
			groups[v.Update] = append(groups[v.Update], len(v.Rewards))
			if v.Step < 3 && len(v.Rewards) != 2 || v.Step >= 3 && len(v.Rewards) != 3 {
				t.Errorf("staleness %s: a group of step %d has %d rollouts", stale, v.Step, len(v.Rewards))
			}
		}
		for step, want := range map[int]int{1: 4, 2: 4, 3: 2, 4: 2} {
			if len(groups[step]) != want {
				t.Errorf("staleness %s: update %d learned from %d groups, want %d", stale, step, len(groups[step]), want)
			}
		}
		if n := strings.Count(strings.Join(c.calls, "\n"), "step 0.25"); n != 4 {
			t.Errorf("staleness %s: %d optimizer steps of the second stage, want 2 in each of its steps: %q", stale, n, c.calls)
		}
	}
}

func TestStageIsAConfiguration(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, tiny, "stages="+second, "filter.timeout=drop")
	if n := len(c.Stages); n != 1 {
		t.Fatalf("%d stages", n)
	}
	before, after := c.RL(), c.Stage(1).RL()
	if before.Objective.ClipHigh != 0.28 || after.Objective.ClipHigh != 0.26 || after.Baseline != rl.Mean ||
		after.Filter["timeout"] != rl.Drop || after.MaxLength != before.MaxLength || after.Aggregation != "token_mean" {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again := mustLoad(t, string(text))
	if changes, err := c.Differs(again); err != nil || len(changes) > 0 {
		t.Errorf("printed and loaded again: %v, %v", changes, err)
	}
	if a := again.Stage(1).RL(); a.String() != after.String() {
		t.Errorf("switches of the stage, printed and loaded again:\n%s\nwant\n%s", a, after)
	}
	changes, err := again.Changed([]byte(strings.Replace(string(text), `clip.high: "0.26"`, `clip.high: "0.27"`, 1)))
	if want := []string{"stages[0].set.algorithm.set.clip.high"}; err != nil || !slices.Equal(changes, want) {
		t.Errorf("changed %q, %v: want %q", changes, err, want)
	}
}

// Each variant of an ablation gets the base's stages, applied over its own switches, also after printing and loading.
func TestStagesOfVariants(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, tiny+"ablation:\n  variants: [{name: a, algorithm: {preset: grpo}}, {name: b, stages: []}]\n",
		"stages=[{from: 3, set: {algorithm.preset: rloo}}]")
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again := mustLoad(t, string(text))
	for i, v := range again.Ablation.Variants {
		was := c.Ablation.Variants[i].Config
		if changes, err := was.Differs(v.Config); err != nil || len(changes) > 0 {
			t.Errorf("%s: %v, %v", v.Name, changes, err)
		}
	}
	if a := again.Ablation.Variants[0].Config; a.RL().Baseline != rl.Mean || a.Stage(1).RL().Baseline != rl.LeaveOneOut {
		t.Errorf("variant a has %+v and then %+v", a.RL(), a.Stage(1).RL())
	}
}
