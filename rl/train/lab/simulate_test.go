package lab

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/env/testkit"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
)

// The share of the ideal throughput, in which nobody ever waits, that 512 workers reach with a heavy tail, by staleness
// and by how the trainer works. The figures are those of docs/findings.md, and the first three come from an independent
// model.
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
		{"one update ahead", []string{tinker, "rollouts.max_staleness=1"}, 0.67},
		{"two", []string{tinker, "rollouts.max_staleness=2"}, 0.91},
		{"two, in place", []string{
			tinker, "trainer.samplers=[]", "rollouts.max_staleness=2", "simulate.timeout=20m"}, 0.65},
		{"two, and a limit", []string{tinker, "rollouts.max_staleness=2", "simulate.timeout=20m"}, 0.96},
		{"taking turns", []string{tinker, "rollouts.max_staleness=0"}, 0.26},
		{"in lockstep", []string{tinker, "simulate.colocated=true", "simulate.timeout=90m"}, 0.12},
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

// An interrupted simulation ends.
func TestSimulationEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Simulate(ctx, heavy(t), nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// rollouts.models bounds the calls of each server that samples.
func TestCallsOfSamplers(t *testing.T) {
	t.Parallel()
	file := testkit.WriteFile(t, filepath.Join(t.TempDir(), "samplers"), "# two\nhttp://v\nhttp://w\n")
	for samplers, want := range map[string]int{
		"samplers: []": 7, "samplers: [http://v]": 7, "samplers: [http://v, http://w, http://x]": 21,
		"samplers_file: " + file: 14,
	} {
		s, err := Simulate(t.Context(), heavy(t, "steps=2", "rollouts.models=7",
			"trainer={name: tinker, base_url: 'http://t', model: m, vocabulary: 9, "+samplers+"}"), nil)
		if err != nil || s.Calls.Peak != want {
			t.Errorf("%s: at most %d calls at once, want %d; %v", samplers, s.Calls.Peak, want, err)
		}
	}
	elsewhere := "trainer={name: tinker, base_url: 'http://t', model: m, vocabulary: 9, samplers_file: /nowhere}"
	if _, err := Simulate(t.Context(), heavy(t, "steps=2", elsewhere), nil); err != nil {
		t.Errorf("a file that is elsewhere, and does not matter: %v", err)
	}
	if _, err := Simulate(t.Context(), heavy(t, "steps=2", "rollouts.models=7", elsewhere), nil); err == nil {
		t.Error("the number of servers is not known")
	}
}

// heavy returns a configuration with 20 steps of 64 groups of 8 rollouts.
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

// With odd settings, the figures stay finite and plausible, or the error says what is wrong.
func TestOddClusters(t *testing.T) {
	t.Parallel()
	for name, set := range map[string][]string{
		"any staleness": {"rollouts.max_staleness=4611686018427387904"},
		"slow trainer":  {"simulate.update=9000h"},
		"four epochs":   {"optimizer.epochs=4", "rollouts.max_staleness=2"},
		"heavy tail":    {"simulate.model=9000h", "simulate.model_sigma=5", "simulate.min_turns=1", "simulate.max_turns=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Simulate(t.Context(), heavy(t, set...), nil)
			share := s.Ideal.Seconds() / s.Step.Seconds()
			if err != nil || !(share > 0 && share < 1.02) || s.WaitTrainer < 0 || !(s.Started >= 1 && s.Started < 1e6) ||
				!(s.Sandboxes.Mean >= 0 && s.Sandboxes.Mean <= 512) {
				t.Errorf("%v, %.3f of the ideal\n%s", err, share, s)
			}
		})
	}
	_, err := Simulate(t.Context(), heavy(t, "simulate.timeout=1ms"), nil)
	if err == nil || !strings.Contains(err.Error(), "longer environment.timeout") {
		t.Errorf("a time limit that every rollout exceeds: %v", err)
	}
	for name, set := range map[string]string{
		"too many tasks": "rollouts.tasks=1000000000", "too large groups": "rollouts.group=4611686018427387904",
		"too long a validation": "evaluate={every: 1, attempts: 1000000000}",
	} {
		if _, err := Simulate(t.Context(), heavy(t, set), nil); err == nil || !strings.Contains(err.Error(), "can be simulated") {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := heavy(t, "simulate.update=9000h", "steps=1000000", "rollouts.tasks=1", "rollouts.group=2")
	if _, err := Simulate(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "years") {
		t.Errorf("a run without end: %v", err)
	}
}
