package lab

import (
	"context"
	"errors"
	"math"
	"testing"

	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
)

// What 512 workers reach of a schedule in which nobody ever waits: with a heavy tail, by staleness and by how the
// trainer works. The figures are those of docs/findings.md, and the first three those of a model that is not ours.
func TestPaceOfACluster(t *testing.T) {
	t.Parallel()
	const (
		tinker   = "trainer={name: tinker, base_url: 'http://t', model: m, vocabulary: 9, samplers: ['http://v']}"
		embedded = "seed=1"
	)
	for _, c := range []struct {
		name string
		set  []string
		want float64 // of the ideal
	}{
		{"one update ahead, gradients at its end", []string{
			tinker, "trainer.normalisation=mean", "rollouts.max_staleness=1"}, 0.55},
		{"two, gradients at its end", []string{
			tinker, "trainer.normalisation=mean", "rollouts.max_staleness=2"}, 0.80},
		{"one update ahead", []string{tinker, "rollouts.max_staleness=1"}, 0.66},
		{"two", []string{tinker, "rollouts.max_staleness=2"}, 0.91},
		{"two, in place", []string{
			tinker, "trainer.samplers=[]", "rollouts.max_staleness=2", "simulate.timeout=20m"}, 0.78},
		{"two, and a limit", []string{tinker, "rollouts.max_staleness=2", "simulate.timeout=20m"}, 0.96},
		{"taking turns", []string{tinker, "rollouts.max_staleness=0"}, 0.25},
		{"in lockstep", []string{tinker, "simulate.colocated=true", "simulate.timeout=90m"}, 0.15},
		{"gradients as groups come", []string{embedded, "rollouts.max_staleness=2", "simulate.timeout=20m"}, 0.96},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := Simulate(t.Context(), heavy(t, c.set...), nil)
			if share := s.Ideal.Seconds() / s.Step.Seconds(); err != nil || math.Abs(share-c.want) > 0.01 {
				t.Errorf("%v, %.3f of the ideal, want %.2f\n%s", err, share, c.want, s)
			}
		})
	}
}

// A simulation that is interrupted ends.
func TestSimulationEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Simulate(ctx, heavy(t), nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// heavy takes 20 steps of 64 groups of 8 rollouts.
func heavy(t *testing.T, set ...string) config.Config {
	t.Helper()
	c, err := config.Load([]byte(`
steps: 20
environment: {name: frozenlake}
trainer: {name: embedded}
rollouts: {tasks: 64, group: 8, workers: 512, gradings: 512}
evaluate: {every: 0}
checkpoint: {every: 100}
`), builtin.Parts(), set...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
