package lab

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/rl/metrics"
	"deepswe/rl/train"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

const compared = `
name: tiny
steps: 4
environment: {name: frozenlake, max_size: 4, radius: 2, max_tokens: 2, train_tasks: 12, validation_tasks: 5}
trainer: {name: embedded, hidden: 8}
rollouts: {tasks: 4, group: 4, refill: 1, workers: 4, drain: 0s}
optimizer: {minibatches: 2, learning_rate: 0.02}
evaluate: {every: 2, attempts: 2}
checkpoint: {every: 3, keep: 2}
ablation:
  seeds: [1, 2]
  variants:
    - name: GRPO++
    - name: GRPO
      algorithm: {preset: grpo}
    - name: control (the same)
`

// stopper stops an ablation at the nth event of a run.
type stopper struct {
	left int
	stop func()
}

func (s *stopper) happen() {
	if s.left--; s.left == 0 {
		s.stop()
	}
}

func (s *stopper) Playing(int, part.Split, int, int) { s.happen() }

func (s *stopper) Point(metrics.Point) { s.happen() }

func (s *stopper) Warning(string) { s.happen() }

// outcomeOf returns the last weights of a run, and its metrics except for times.
func outcomeOf(t *testing.T, dir string) ([]byte, []map[string]float64) {
	t.Helper()
	weights, err := os.ReadFile(filepath.Join(dir, record.CheckpointsDir, "step-000004.policy"))
	if err != nil {
		t.Fatal(err)
	}
	points, err := metrics.ReadJSONL(filepath.Join(dir, record.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	var values []map[string]float64
	for _, p := range points {
		maps.DeleteFunc(p.Values, func(name string, _ float64) bool {
			family, _, _ := strings.Cut(name, "/")
			return slices.Contains([]string{"time", "workers", "trainer", "perf"}, family)
		})
		values = append(values, p.Values)
	}
	return weights, values
}

// An ablation that is stopped halfway and resumed makes every run once, and says how the variants differ.
func TestAblation(t *testing.T) {
	t.Parallel()
	c, err := config.Load([]byte(compared), builtin.Parts())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "ablation")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var begun []string
	o := train.Options{Dir: dir, Metrics: []metrics.Target{metrics.NewPrometheus().Target()}}
	o.Observer = func(run string, _ int) train.Observer {
		begun = append(begun, run)
		if strings.HasPrefix(run, "control") {
			return &stopper{left: 20, stop: cancel}
		}
		return &stopper{}
	}
	c.Ablation.Parallel = 1
	if _, err := Ablate(ctx, c, o); err == nil {
		t.Fatal("not stopped")
	}
	if want := []string{"GRPO++ seed-1", "GRPO seed-1", "control (the same) seed-1"}; !slices.Equal(begun, want) {
		t.Errorf("begun %q, want %q: seed by seed", begun, want)
	}
	o.Observer, o.Resume = nil, true
	c.Ablation.Parallel = 2
	results, err := Ablate(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range results {
		names = append(names, r.Run)
		if n := len(r.Points); n != 5 || r.Points[n-1].Step != 4 {
			t.Errorf("%s has %d points", r.Run, n)
		}
	}
	want := []string{"GRPO++ seed-1", "GRPO++ seed-2", "GRPO seed-1", "GRPO seed-2", "control (the same) seed-1",
		"control (the same) seed-2"}
	if !slices.Equal(names, want) {
		t.Errorf("results %q", names)
	}
	weights, values := outcomeOf(t, filepath.Join(dir, runsDir, "grpo++", "seed-2"))
	same, control := outcomeOf(t, filepath.Join(dir, runsDir, "control--the-same-", "seed-2"))
	if d := cmp.Diff(values, control); d != "" || !bytes.Equal(weights, same) {
		t.Errorf("the control differs (-variant +control):\n%s", d)
	}
	if other, _ := outcomeOf(t, filepath.Join(dir, runsDir, "grpo", "seed-2")); bytes.Equal(weights, other) {
		t.Error("two algorithms ended with the same weights")
	}
	html, err := os.ReadFile(filepath.Join(dir, record.ReportFile))
	if err != nil || !strings.Contains(string(html), "6 of 6 runs") {
		t.Errorf("report: %v", err)
	}
	if text := Compare(c.Ablation, results); !strings.Contains(text, "control (the same)") || !strings.Contains(text,
		"+0.000 ± 0.000") {
		t.Errorf("comparison:\n%s", text)
	}
}
