package train

import (
	"path/filepath"
	"testing"

	"deepswe/env/testkit"
)

// small is a task that a fresh policy learns within seconds: lakes with up to four cells a side.
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

// A fresh policy learns to cross lakes. The seeds are fixed, so every test run is the same.
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
			// The whole interval must lie well above random moves and above the fresh policy.
			if low < first["val/random"]+0.2 || low < first["val/pass@1"]+0.2 {
				t.Errorf("validation pass@1 is %.3f, at least %.3f: want well above %.3f and %.3f", pass, low, first["val/random"],
					first["val/pass@1"])
			}
		})
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
