package lab

import (
	"testing"
	"testing/synctest"
	"time"

	"deepswe/env/testkit"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
)

// On 512 workers with a heavy tail, the loop that is two updates ahead comes within 5% of a schedule in which nobody
// ever waits, whether workers or trainer are what there is too little of. It is the real engine in virtual time.
func TestPaceOfACluster(t *testing.T) {
	for _, c := range []struct {
		name      string
		steps     string
		staleness string
		update    time.Duration
		timeout   time.Duration
		want      float64 // of the ideal
	}{
		{"taking turns", "4", "0", 480 * time.Second, 0, 0.25},
		{"one update ahead", "6", "1", 480 * time.Second, 0, 0.6},
		{"two, tail and all", "8", "2", 480 * time.Second, 0, 0.85},
		{"two, the trainer is slow", "14", "2", 480 * time.Second, 1200 * time.Second, 0.95},
		{"two, the trainer is fast", "14", "2", 120 * time.Second, 1200 * time.Second, 0.95},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.staleness != "0" {
				testkit.SkipUnderRace(t)
			}
			synctest.Test(t, func(t *testing.T) {
				s := simulated(t, config.Latencies{
					Update: config.Duration(c.update), Timeout: config.Duration(c.timeout), Speed: 1,
				}, "rollouts.max_staleness="+c.staleness, "steps="+c.steps)
				t.Logf("\n%s", s)
				if share := s.Ideal.Seconds() / s.Step.Seconds(); share < c.want || share > 1.02 {
					t.Errorf("%.3f of the ideal, want %.2f", share, c.want)
				}
				if s.Started > 1.25 || s.Turns < 0.97 {
					t.Errorf("%.3f started for each that is trained, with %.3f of the turns", s.Started, s.Turns)
				}
				if want := map[string]float64{"0": 0, "1": 1, "2": 2}[c.staleness]; s.MaxStaleness > want {
					t.Errorf("rollouts are up to %.0f updates old", s.MaxStaleness)
				}
			})
		})
	}
}

// simulated is a simulation of 64 groups of 8 rollouts a step.
func simulated(t *testing.T, l config.Latencies, set ...string) Simulated {
	t.Helper()
	c, err := config.Load([]byte(`
environment: {name: frozenlake}
trainer: {name: embedded}
rollouts: {tasks: 64, group: 8, workers: 512}
checkpoint: {every: 100}
`), builtin.Parts(), set...)
	if err != nil {
		t.Fatal(err)
	}
	c.Simulate = &l
	s, err := Simulate(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
