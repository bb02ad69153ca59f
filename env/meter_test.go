package env_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/env"
)

// slow is a provider whose sandboxes take a given time to start, and fail after a minute.
type slow struct {
	env.Provider
	take chan time.Duration
}

func (s slow) Start(context.Context, env.Spec) (env.Sandbox, error) {
	took := <-s.take
	time.Sleep(took)
	if took >= time.Minute {
		return nil, errors.New("no room")
	}
	return nil, nil
}

func TestMeter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := slow{take: make(chan time.Duration)}
		m := env.NewMeter(p)
		start := func(took time.Duration) {
			go func() { _, _ = m.Start(t.Context(), env.Spec{}) }()
			p.take <- took
		}
		is := func(want map[string]float64) {
			t.Helper()
			synctest.Wait()
			if got := m.Gauges(); !maps.Equal(got, want) {
				t.Errorf("%v: %v, want %v", slices.Sorted(maps.Keys(got)), got, want)
			}
		}
		for _, took := range []time.Duration{2 * time.Second, 6 * time.Second, time.Minute, time.Hour} {
			start(took)
		}
		time.Sleep(10 * time.Second)
		is(map[string]float64{
			"sandboxes/started": 2, "sandboxes/failed": 0, "sandboxes/starting": 2, "sandboxes/start_mean": 4,
			"sandboxes/start_max": 10,
		})
		time.Sleep(2 * time.Hour)
		is(map[string]float64{
			"sandboxes/started": 0, "sandboxes/failed": 2, "sandboxes/starting": 0, "sandboxes/start_max": 0,
		})
	})
}
