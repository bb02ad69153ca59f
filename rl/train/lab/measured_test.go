package lab

import (
	"math"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"deepswe/env/testkit"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
)

// A simulation with the measured times of a run predicts what the run took, and what it takes with other settings.
func TestMeasuredRun(t *testing.T) {
	t.Parallel()
	testkit.SkipUnderRace(t)
	load := func(t *testing.T, set ...string) config.Config {
		t.Helper()
		c, err := config.Load([]byte(small+"trainer: "+server), builtin.Parts(), append(set, "steps=24")...)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	times := []string{
		"simulate.max_turns=30", "simulate.update=300s", "simulate.publish=20s", "simulate.checkpoint=70s",
		"simulate.timeout=9m", "checkpoint.every=3", "rollouts.max_staleness=1",
	}
	dir := filepath.Join(t.TempDir(), "run")
	synctest.Test(t, func(t *testing.T) {
		c := load(t, times...)
		newWorld(t, c).takeSteps(t, c, dir)
	})
	m, err := ReadMeasured(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		set, world []string // world are settings that the simulation has to find out itself
	}{
		{"the same", []string{"checkpoint.every=3", "rollouts.max_staleness=1"}, nil},
		{"taking turns", []string{"checkpoint.every=1", "rollouts.max_staleness=0"}, nil},
		{"fewer workers", []string{"checkpoint.every=6", "rollouts.max_staleness=2", "rollouts.workers=12"}, nil},
		{"larger groups", []string{"rollouts.max_staleness=1", "rollouts.group=8", "rollouts.workers=80"},
			[]string{"simulate.update=600s"}},
		{"a slower publication", []string{"rollouts.max_staleness=1", "simulate.publish=200s"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Simulate(t.Context(), load(t, c.set...), m)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				real := load(t, slices.Concat(times, c.set, c.world)...)
				ended := newWorld(t, real).takeSteps(t, real, filepath.Join(t.TempDir(), "run"))
				first, last := warmUp(real.Rollouts.MaxStaleness)-1, len(ended)-1
				took := (ended[last] - ended[first]).Seconds() / float64(last-first)
				t.Logf("a step took %.0f s, and simulated %.0f s", took, s.Step.Seconds())
				if math.Abs(s.Step.Seconds()/took-1) > 0.1 {
					t.Error("the simulation is wrong by more than a tenth")
				}
			})
		})
	}
}

// Measuring a directory that has no run is an error.
func TestUnmeasured(t *testing.T) {
	t.Parallel()
	if _, err := ReadMeasured(t.TempDir()); err == nil {
		t.Error("a directory without a run was measured")
	}
}
