package train

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/env/testkit"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/record"
)

// small is a task that a fresh policy learns within seconds: lakes of up to four cells a side.
const small = `
name: small
steps: 50
environment: {name: frozenlake, max_size: 4, radius: 3, max_tokens: 2, validation_tasks: 200}
trainer: {name: embedded, hidden: 32}
rollouts: {tasks: 16, group: 8, keep_logs: false}
optimizer: {minibatches: 4, learning_rate: 0.005}
evaluate: {every: 50}
checkpoint: {every: 50}
`

// A fresh policy learns to cross lakes. The seeds are fixed, so this is the same run each time.
func TestPolicyLearns(t *testing.T) {
	t.Parallel()
	testkit.SkipUnderRace(t)
	for _, preset := range []string{"grpo++", "grpo"} {
		t.Run(preset, func(t *testing.T) {
			t.Parallel()
			c := mustLoad(t, small, "algorithm.preset="+preset)
			r, err := Start(t.Context(), c, Options{Dir: filepath.Join(t.TempDir(), "run")})
			if err != nil {
				t.Fatal(err)
			}
			first := r.Points[0].Values
			low, _ := r.Final("val/pass@1_low")
			pass, _ := r.Final("val/pass@1")
			t.Logf("before %.3f, random moves %.3f, after %.3f", first["val/pass@1"], first["val/random"], pass)
			// The whole interval is to lie well above what no skill reaches, and what the fresh policy did.
			if low < first["val/random"]+0.2 || low < first["val/pass@1"]+0.2 {
				t.Errorf("validation pass@1 is %.3f, at least %.3f: want well above %.3f and %.3f", pass, low, first["val/random"],
					first["val/pass@1"])
			}
		})
	}
}

func TestAblation(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, tiny+`
ablation:
  seeds: [1, 2]
  variants:
    - name: GRPO++
    - name: GRPO
      algorithm: {preset: grpo}
    - name: control (the same)
`, "steps=4")
	dir := filepath.Join(t.TempDir(), "ablation")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var begun []string
	o := Options{Dir: dir, Metrics: metrics.NewPrometheus()}
	// Stopped somewhere in the middle, and gone on with.
	o.Observer = func(run string, _ config.Config) Observer {
		begun = append(begun, run)
		return &everyEvent{do: func(n int) {
			if strings.HasPrefix(run, "control") && n == 20 {
				cancel()
			}
		}}
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
	run := func(path string) string { return filepath.Join(dir, runsDir, path) }
	sameOutcome(t, outcomeOf(t, run("grpo++/seed-2"), c), outcomeOf(t, run("control--the-same-/seed-2"), c))
	a, b := outcomeOf(t, run("grpo++/seed-1"), c), outcomeOf(t, run("grpo/seed-1"), c)
	if slices.Equal(a.Policy, b.Policy) {
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

func BenchmarkStep(b *testing.B) {
	c := mustLoad(b, small, "evaluate.every=0", "steps=1")
	c.Steps = b.N
	c.Checkpoint.Every = b.N
	if _, err := Start(b.Context(), c, Options{Dir: filepath.Join(b.TempDir(), "run")}); err != nil {
		b.Fatal(err)
	}
}
