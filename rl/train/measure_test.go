package train

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/rl/metrics"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// The embedded policy is its own sampler: with the same weights there is no mismatch, however large the updates and
// however stale the rollouts.
func TestMismatchIsNotDrift(t *testing.T) {
	t.Parallel()
	for name, set := range map[string][]string{
		"taking turns": {"optimizer.minibatches=2", "optimizer.epochs=3", "optimizer.learning_rate=0.05"},
		"two ahead":    {flowing, "rollouts.refill=0", "steps=12", "optimizer.learning_rate=0.05"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mustLoad(t, tiny, append(set, "evaluate.every=0")...)
			dir := filepath.Join(t.TempDir(), "run")
			if _, err := Start(t.Context(), c, Options{Dir: dir}); err != nil {
				t.Fatal(err)
			}
			points, err := metrics.ReadJSONL(filepath.Join(dir, record.MetricsFile))
			if err != nil {
				t.Fatal(err)
			}
			tokens, moved, stale := 0.0, 0.0, 0.0
			for _, p := range points {
				v := p.Values
				tokens += v["mismatch/tokens"]
				moved = max(moved, v["update/kl_k3"])
				stale = max(stale, v["off_policy/kl_k3"])
				if v["mismatch/kl_k3"] != 0 || v["mismatch/tokens"] > 0 && v["mismatch/ratio_max"] != 1 {
					t.Errorf("step %d: mismatch %v over %v tokens", p.Step, v["mismatch/kl_k3"], v["mismatch/tokens"])
				}
				if v["loss/kl_k3"] > 0 && v["update/tokens"] == 0 {
					t.Errorf("step %d: an update was not measured", p.Step)
				}
			}
			if tokens == 0 || moved < 1e-4 {
				t.Errorf("measured at %v tokens, the largest update %v", tokens, moved)
			}
			if ahead := c.Rollouts.MaxStaleness > 0; ahead != (stale > 0) {
				t.Errorf("off-policy by %v", stale)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	one, zero := 1.0, 0.0
	outcome := func(task string, reward *float64, m map[string]float64, total float64) run.Outcome {
		return run.Outcome{Job: run.Job{Task: task}, Result: run.Result{Reward: reward, Metrics: m,
			Times: run.Times{Model: 1, Queue: 1, Total: total}}}
	}
	first, second := map[string]float64{"flips": 2, "a/b": 4, "retries/model": 1}, map[string]float64{"flips": 4}
	part.Ratio(first, "errors/tool", 1, 2)
	part.Ratio(second, "errors/tool", 5, 8)
	part.Ratio(second, "errors/none", 0, 0)
	masked := outcome("x", nil, map[string]float64{"flips": 6}, 5)
	masked.NotGraded = true
	failed := outcome("x", nil, map[string]float64{"flips": 99, "retries/model": 2, "retries/sandbox": 1}, 99)
	values := map[string]float64{}
	describe(values, []run.Outcome{outcome("x", &one, first, 3), outcome("y", &zero, second, 4), masked, failed},
		frequent([]string{"x", "y"}, func(task string) string { return "of/" + task }))
	for name, want := range map[string]float64{
		"rollout/flips": 4, "a/b": 4, "errors/tool": 0.6, "retries/model": 3, "retries/sandbox": 1,
		"reward/repo/of__x": 1, "reward/repo/of__y": 0, "time/rollout": 4, "time/other": 2, "time/rollout/p50": 4,
	} {
		if got, ok := values[name]; !ok || got != want {
			t.Errorf("%s is %v (there: %t), want %v", name, got, ok, want)
		}
	}
	if _, ok := values["errors/none"]; ok {
		t.Error("a share of nothing has a value")
	}
}

// Failed tries are counted by cause with the rollout that they belong to, whether it succeeds in the end or not.
func TestRetriesByCause(t *testing.T) {
	t.Parallel()
	tries := map[run.Job]int{}
	reward := func(a run.Job) (float64, error) {
		tries[a]++
		switch {
		case a.Index == 0 && tries[a] == 1:
			return 0, fmt.Errorf("busy: %w", agent.ErrModelUnavailable)
		case a.Index == 1:
			return 0, errors.New("no sandbox")
		}
		return heads(a)
	}
	r, _, err := flip(t, &counting{}, reward, "steps=1", "rollouts.retries=1", "rollouts.tasks=1", "rollouts.group=3")
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Points[0].Values; v["retries/model"] != 1 || v["retries/sandbox"] != 2 {
		t.Errorf("model %v, sandbox %v", v["retries/model"], v["retries/sandbox"])
	}
}

func TestFrequentSources(t *testing.T) {
	t.Parallel()
	var tasks []string
	for i := range 30 {
		for range 31 - i {
			tasks = append(tasks, fmt.Sprintf("r%02d", i))
		}
	}
	name := frequent(tasks, func(task string) string { return task })
	if name("r00") != "r00" || name("r19") != "r19" || name("r20") != "other" || name("") != "other" {
		t.Errorf("%s %s %s", name("r00"), name("r19"), name("r20"))
	}
	if frequent(tasks, func(string) string { return "" }) != nil {
		t.Error("sources where no task has one")
	}
}

func TestOccupancy(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	o := newOccupancy(2, func() time.Time { return now })
	a, b := run.Job{Index: 1}, run.Job{Index: 2}
	for _, e := range []struct {
		after int
		kind  run.EventKind
		job   run.Job
	}{
		{2, run.Started, a}, {2, run.Started, b}, {1, run.Released, a}, {1, run.Retrying, b}, {1, run.Finished, a},
		{1, run.Failed, b},
	} {
		now = now.Add(time.Duration(e.after) * time.Second)
		o.observeEvent(run.Event{Kind: e.kind, Job: e.job})
	}
	now = now.Add(2 * time.Second)
	// a holds its worker for 3 of 10 seconds, b for 4.
	if got := o.takeShare(); got != 0.35 {
		t.Errorf("busy for %v of the time, want 0.35", got)
	}
	now = now.Add(time.Second)
	if got := o.takeShare(); got != 0 {
		t.Errorf("then for %v, want 0", got)
	}
}
