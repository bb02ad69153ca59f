package rl

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"deepswe/agent/trajectory"
)

// attempt is a rollout of a group: its reward, why it ended, and how many tokens it trains.
type attempt struct {
	reward float64
	stop   trajectory.StopReason
	tokens int
}

func (a attempt) member(group string, i int) Member {
	m := Member{Task: "t", Group: group, Attempt: i, Reward: &a.reward, StopReason: a.stop,
		Shape: Shape{Turns: 1, Rows: 1, Prompt: 1, Sampled: a.tokens, Trained: a.tokens}}
	if math.IsNaN(a.reward) {
		m.Reward, m.Shape = nil, Shape{}
	}
	return m
}

// members returns groups of attempts as members. A NaN reward stands for none.
func members(groups ...[]attempt) []Member {
	var out []Member
	for g, as := range groups {
		for i, a := range as {
			out = append(out, a.member(fmt.Sprint("g", g), i))
		}
	}
	return out
}

func preset(t interface{ Fatal(...any) }, name string, settings ...string) Algorithm {
	a, err := Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append([]string{"max_length=100"}, settings...) {
		key, value, _ := strings.Cut(s, "=")
		if err := a.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// The advantages of a group, with examples of DeepSWE's compact filtering: one success and three failures, some of
// which ran out of steps.
func TestAdvantages(t *testing.T) {
	t.Parallel()
	const third, half = 1. / 3, 1. / 2
	ok := func(r float64) attempt { return attempt{r, trajectory.Submitted, 4} }
	out := func(r float64) attempt { return attempt{r, trajectory.MaxSteps, 4} }
	none := attempt{math.NaN(), trajectory.ModelError, 0}
	oneOfFour := []attempt{ok(1), ok(0), ok(0), out(0)}
	std4 := 0.5 + 1e-6
	for _, c := range []struct {
		name     string
		preset   string
		settings []string
		group    []attempt
		fates    string // one letter for each attempt: t m n f s u
		want     []float64
	}{
		{"masked stays in the baseline", "grpo++", nil, oneOfFour, "tttm", []float64{1, -third, -third, -third}},
		{"dropped does not", "grpo++", []string{"filter.max_steps=drop"}, oneOfFour, "tttf", []float64{1, -half, -half, 0}},
		{"kept", "grpo++", []string{"filter.max_steps=keep"}, oneOfFour, "tttt", []float64{1, -third, -third, -third}},
		{"one success among masked", "grpo++", nil, []attempt{ok(1), out(0), out(0), out(0)}, "tmmm",
			[]float64{1, -third, -third, -third}},
		{"the same, dropped: a singleton", "grpo++", []string{"filter.max_steps=drop"},
			[]attempt{ok(1), out(0), out(0), out(0)}, "tfff", []float64{1, 0, 0, 0}},
		{"the same, singletons dropped", "grpo++", []string{"filter.max_steps=drop", "singleton=drop"},
			[]attempt{ok(1), out(0), out(0), out(0)}, "sfff", []float64{0, 0, 0, 0}},
		{"singleton against itself", "grpo++", []string{"singleton=self"}, []attempt{ok(1)}, "t", []float64{0}},
		{"group too small", "rloo", []string{"min_group=3"}, []attempt{ok(1), ok(0)}, "ss", []float64{0, 0}},
		{"a failure of the machinery is no member", "grpo++", nil, []attempt{ok(1), none, ok(0)}, "tnt", []float64{1, 0, -1}},
		{"the salvaged patch of a masked rollout does not count", "grpo++", nil, []attempt{ok(1), out(1)}, "tm",
			[]float64{1, -1}},
		{"unless the recorded reward is to count", "grpo++", []string{"masked_reward=recorded"}, []attempt{ok(0), out(1)},
			"tm", []float64{-1, 1}},
		{"grpo", "grpo", nil, oneOfFour, "tttt", []float64{.75 / std4, -.25 / std4, -.25 / std4, -.25 / std4}},
		{"grpo, uniform", "grpo", nil, []attempt{ok(1), ok(1)}, "tt", []float64{0, 0}},
		{"grpo, singleton", "grpo", nil, []attempt{ok(1)}, "t", []float64{1 / (1 + 1e-6)}},
		{"dr-grpo", "dr-grpo", nil, oneOfFour, "tttt", []float64{.75, -.25, -.25, -.25}},
		{"rloo", "rloo", nil, oneOfFour, "tttt", []float64{1, -third, -third, -third}},
		{"dapo drops uniform groups", "dapo", nil, []attempt{ok(0), ok(0), out(0)}, "uuu", []float64{0, 0, 0}},
		{"dapo keeps a singleton", "dapo", nil, []attempt{ok(1)}, "t", []float64{1 / (1 + 1e-6)}},
		{"dapo trains what ran out of steps", "dapo", []string{"std=false"}, []attempt{ok(1), out(0)}, "tt",
			[]float64{half, -half}},
		{"dapo's penalty, half way up", "dapo", []string{"std=false", "overlong.max=6", "overlong.cache=4"},
			[]attempt{{1, trajectory.Submitted, 4}, {0, trajectory.Submitted, 1}}, "tt", []float64{.25, -.25}},
		{"no baseline", "rloo", []string{"baseline=none"}, []attempt{ok(1), ok(0)}, "tt", []float64{1, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ms := members(c.group)
			ps, _, err := preset(t, c.preset, c.settings...).Plan(ms)
			if err != nil {
				t.Fatal(err)
			}
			letters := map[Disposition]byte{Trained: 't', Masked: 'm', NoReward: 'n', Filtered: 'f', SmallGroup: 's',
				UniformGroup: 'u'}
			for i, p := range ps {
				if letters[p.Disposition] != c.fates[i] || !near(p.Advantage, c.want[i]) {
					t.Errorf("attempt %d: %s with advantage %g, want %c with %g", i, p.Disposition, p.Advantage, c.fates[i], c.want[i])
				}
			}
		})
	}
}

func TestScales(t *testing.T) {
	t.Parallel()
	groups := [][]attempt{
		{{1, trajectory.Submitted, 10}, {0, trajectory.MaxSteps, 30}, {0, trajectory.Submitted, 0}},
		{{1, trajectory.Stuck, 7}, {0, trajectory.Submitted, 20}, {math.NaN(), trajectory.ModelError, 0}},
	}
	// Five rollouts have a reward. The stuck one is dropped and max_steps is masked, so R is 4 and 30 tokens are
	// trained.
	settings := []string{"filter.stuck=drop", "filter.max_steps=mask"}
	for mode, want := range map[Aggregation][]float64{
		constantLength:        {1. / 400, 1. / 400, 1. / 400, 0, 1. / 400, 0},
		tokenMean:             {1. / 30, 1. / 30, 1. / 30, 0, 1. / 30, 0},
		sequenceMeanTokenSum:  {1. / 4, 1. / 4, 1. / 4, 0, 1. / 4, 0},
		sequenceMeanTokenMean: {1. / 40, 0, 0, 0, 1. / 80, 0},
	} {
		a := preset(t, "rloo", append(settings, "aggregation="+string(mode))...)
		ps, b, err := a.Plan(members(groups...))
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range ps {
			if !near(p.Scale, want[i]) {
				t.Errorf("%s: rollout %d has scale %g, want %g", mode, i, p.Scale, want[i])
			}
		}
		if b.TrainedTokens != 30 || b.Dispositions[Masked] != 1 || b.Dispositions[Filtered] != 1 ||
			b.Dispositions[NoReward] != 1 {
			t.Errorf("%s: batch %+v", mode, b)
		}
	}
}

func TestScaleOfNothingIsZero(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"constant_length", "token_mean", "sequence_mean_token_sum", "sequence_mean_token_mean"} {
		a := preset(t, "grpo++", "aggregation="+mode)
		for name, ms := range map[string][]Member{
			"no rollouts":    nil,
			"none rewarded":  members([]attempt{{math.NaN(), trajectory.ModelError, 0}}),
			"all masked":     members([]attempt{{1, trajectory.MaxSteps, 5}, {0, trajectory.Timeout, 5}}),
			"nothing to say": members([]attempt{{1, trajectory.Submitted, 0}, {0, trajectory.Submitted, 0}}),
		} {
			ps, b, err := a.Plan(ms)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range ps {
				if math.IsNaN(p.Scale) || math.IsInf(p.Scale, 0) || math.IsNaN(p.Advantage) {
					t.Errorf("%s of %s: %+v", mode, name, p)
				}
			}
			for key, v := range b.Metrics("0") {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Errorf("%s of %s: metric %s is %g", mode, name, key, v)
				}
			}
		}
	}
}

func drawMembers(t *rapid.T) []Member {
	reasons := []trajectory.StopReason{
		trajectory.Submitted, trajectory.MaxSteps, trajectory.MaxContext, trajectory.Timeout, trajectory.Stuck,
	}
	var groups [][]attempt
	for range rapid.IntRange(0, 5).Draw(t, "groups") {
		var g []attempt
		for range rapid.IntRange(1, 9).Draw(t, "size") {
			r := rapid.SampledFrom([]float64{0, 0, 1, 1, 0.5, -0.25, math.NaN()}).Draw(t, "reward")
			g = append(g, attempt{r, rapid.SampledFrom(reasons).Draw(t, "stop"), rapid.IntRange(0, 50).Draw(t, "tokens")})
		}
		groups = append(groups, g)
	}
	return members(groups...)
}

func drawAlgorithm(t *rapid.T) Algorithm {
	a := preset(t, rapid.SampledFrom(Presets()).Draw(t, "preset"))
	for _, r := range trajectory.StopReasons() {
		if err := a.Set("filter."+string(r),
			rapid.SampledFrom([]string{"keep", "mask", "drop"}).Draw(t, "mode")); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// Leave-one-out advantages are n/(n-1) times the centred rewards.
func TestLeaveOneOutIsTheCentredRewardScaled(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ms := drawMembers(t)
		for i := range ms {
			ms[i].StopReason = trajectory.Submitted
		}
		loo, _, err := preset(t, "rloo").Plan(ms)
		if err != nil {
			t.Fatal(err)
		}
		centred, _, err := preset(t, "dr-grpo").Plan(ms)
		if err != nil {
			t.Fatal(err)
		}
		size := map[string]float64{}
		for i, p := range loo {
			if p.Disposition == Trained {
				size[ms[i].Group]++
			}
		}
		for i, p := range loo {
			n := size[ms[i].Group]
			if p.Disposition != Trained || n < 2 {
				continue
			}
			if math.Abs(p.Advantage-n/(n-1)*centred[i].Advantage) > 1e-12 {
				t.Fatalf("rollout %d of a group of %g: %g and %g", i, n, p.Advantage, centred[i].Advantage)
			}
		}
	})
}

// The order of the rollouts changes only the order of the results.
func TestPlanDoesNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, ms := drawAlgorithm(t), drawMembers(t)
		want, _, err := a.Plan(ms)
		if err != nil {
			t.Fatal(err)
		}
		order := rapid.Permutation(indices(len(ms))).Draw(t, "order")
		shuffled := make([]Member, len(ms))
		for to, from := range order {
			shuffled[to] = ms[from]
		}
		got, _, err := a.Plan(shuffled)
		if err != nil {
			t.Fatal(err)
		}
		for to, from := range order {
			if got[to].Disposition != want[from].Disposition || math.Abs(got[to].Advantage-want[from].Advantage) > 1e-9 ||
				!near(got[to].Scale, want[from].Scale) {
				t.Fatalf("rollout %d: %+v, and %+v in another order", from, want[from], got[to])
			}
		}
	})
}

// Whatever is filtered, the advantages of a group add up to zero, masked members included, for leave-one-out and for
// the mean.
func TestAdvantagesOfAGroupSumToZero(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, ms := drawAlgorithm(t), drawMembers(t)
		ps, _, err := a.Plan(ms)
		if err != nil {
			t.Fatal(err)
		}
		sum, n := map[string]float64{}, map[string]int{}
		for i, p := range ps {
			if p.Disposition.HasRows() {
				sum[ms[i].Group] += p.Advantage
				n[ms[i].Group]++
			}
		}
		for g, s := range sum {
			if n[g] > 1 && math.Abs(s) > 1e-9 {
				t.Fatalf("group %s: %g", g, s)
			}
		}
	})
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func TestGroupCounts(t *testing.T) {
	t.Parallel()
	sub := func(rewards ...float64) (g []attempt) {
		for _, r := range rewards {
			g = append(g, attempt{r, trajectory.Submitted, 3})
		}
		return g
	}
	_, b, err := preset(t, "dapo",
		"uniform=keep").Plan(members(sub(1, 1), sub(0, 0, 0), sub(1, 0), sub(1), sub(math.NaN(), math.NaN()),
		[]attempt{{1, trajectory.Submitted, 3}, {0, trajectory.MaxContext, 3}}))
	if err != nil {
		t.Fatal(err)
	}
	want := Groups{Total: 5, SolveNone: 1, SolvePartial: 2, SolveAll: 2, Uniform: 2, Singletons: 1, Effective: 3}
	if b.Groups != want {
		t.Errorf("groups %+v, want %+v", b.Groups, want)
	}
	m := b.Metrics("3")
	for key, want := range map[string]float64{
		"rollouts/total": 12, "rollouts/no_reward": 2, "rollouts/masked": 1, "masked/max_context": 1. / 12,
		"stop/submitted": 11. / 12,
		"reward/mean":    0.5, "groups/effective": 3, "staleness/unknown": 12,
	} {
		if got, ok := m[key]; !ok || !near(got, want) {
			t.Errorf("metric %s is %g (there: %t), want %g", key, got, ok, want)
		}
	}
}

func TestStaleness(t *testing.T) {
	t.Parallel()
	b := Batch{Rollouts: 6, Versions: map[Version]int{"7": 3, "5": 2, "main": 1}}
	m := b.Metrics(VersionNumber(7))
	for key, want := range map[string]float64{"staleness/0": 3, "staleness/2": 2, "staleness/mean": 0.8,
		"staleness/max": 2, "staleness/unknown": 1} {
		if m[key] != want {
			t.Errorf("%s is %g, want %g", key, m[key], want)
		}
	}
	if _, ok := b.Metrics("")["staleness/mean"]; ok {
		t.Error("got staleness metrics for an unknown policy version")
	}
}

// Failures do not count as rewards of 0, even if a batch has nothing else.
func TestNothingGraded(t *testing.T) {
	failed := attempt{math.NaN(), trajectory.ModelError, 3}
	_, b, err := preset(t, "grpo++").Plan(members([]attempt{failed, failed}))
	if err != nil {
		t.Fatal(err)
	}
	for name := range b.Metrics("0") {
		if strings.HasPrefix(name, "reward/") {
			t.Errorf("there is a %s", name)
		}
	}
}

// A rollout that was not graded is masked, and counts with a reward of 0 in the baseline of its group, but nowhere
// else.
func TestNotGraded(t *testing.T) {
	a := preset(t, "grpo++")
	turns := []Turn{{PromptIDs: []int32{1}, CompletionIDs: []int32{2, 3}, Logprobs: []float64{-1, -1}}}
	group := []Rollout{
		{Task: "t", Reward: new(1.0), StopReason: trajectory.Submitted, Turns: turns},
		{Task: "t", Attempt: 1, NotGraded: true, StopReason: trajectory.MaxSteps, Turns: turns},
		{Task: "t", Attempt: 2, StopReason: trajectory.SandboxError},
	}
	rows, b, err := a.Rows(group)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || rows[0].Advantage != 1 || rows[1].Advantage != -1 || rows[1].Trained || !rows[1].NotGraded {
		t.Errorf("rows %+v", rows)
	}
	if b.NotGraded != 1 || b.Reward.N != 1 || b.Reward.Mean() != 1 || b.Turns.N != 2 || b.Dispositions[Masked] != 1 ||
		b.Dispositions[NoReward] != 1 || b.Groups.SolveAll != 1 {
		t.Errorf("batch %+v", b)
	}
	for _, setting := range []string{"masked_reward=recorded", "filter.max_steps=keep"} {
		if _, _, err := preset(t, "grpo++", setting).Rows(group); err == nil ||
			!strings.Contains(err.Error(), "was not graded") {
			t.Errorf("with %s: %v", setting, err)
		}
	}
	if _, b, err := preset(t, "grpo++", "filter.max_steps=drop").Rows(group); err != nil || b.Dispositions[Filtered] != 1 {
		t.Errorf("dropped: %+v, %v", b.Dispositions, err)
	}
	group[1].Reward = new(0.0)
	if err := group[1].Validate(); err == nil {
		t.Error("a reward that is not graded was accepted")
	}
}

func TestVersions(t *testing.T) {
	turns := func(versions ...int64) []Turn {
		out := []Turn{{}}
		for _, v := range versions {
			out = append(out, Turn{PolicyVersion: &v})
		}
		return out
	}
	for _, c := range []struct {
		r              Rollout
		oldest, newest Version
	}{
		{Rollout{}, "", ""},
		{Rollout{PolicyVersion: "v12", Turns: turns()}, "v12", "v12"},
		{Rollout{PolicyVersion: "3", Turns: turns(3)}, "3", "3"},
		{Rollout{PolicyVersion: "3", Turns: turns(5, 4)}, "3", "5"},
		{Rollout{Turns: turns(5, 4)}, "4", "5"},
	} {
		if oldest, newest := c.r.Versions(); oldest != c.oldest || newest != c.newest {
			t.Errorf("%+v: %s to %s, want %s to %s", c.r, oldest, newest, c.oldest, c.newest)
		}
	}
}
