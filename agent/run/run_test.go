package run

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A resumed rollout includes its earlier times, so that its parts never exceed the total.
func TestTimesOfAResumedRollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := RunnerFunc(func(context.Context, Job) (Result, error) {
			r := solved()
			r.Times.Model, r.Times.Environment = 60, 20
			return r, nil
		})
		out, err := (&Engine{Runner: runner, Options: Options{Workers: 1}}).Run(t.Context(), Plan([]string{"a"}, 1))
		if err != nil || out[0].Times.Total != 80 {
			t.Errorf("%+v, %v", out, err)
		}
	})
}

// A rollout that releases its worker lets the next one begin, and is tried again without a worker if it fails then.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var began []string
		start, tries := time.Now(), 0
		e := &Engine{
			Options: Options{Workers: 1, Backoff: time.Second},
			Runner: RunnerFunc(func(ctx context.Context, j Job) (Result, error) {
				mu.Lock()
				began = append(began, j.Task+" at "+time.Since(start).Round(time.Second).String())
				if j.Task == "a" {
					tries++
				}
				first := j.Task == "a" && tries == 1
				mu.Unlock()
				time.Sleep(10 * time.Second)
				Release(ctx)
				Release(ctx) // the second time does nothing
				time.Sleep(30 * time.Second)
				if first {
					return Result{}, errors.New("grading failed")
				}
				return Result{}, nil
			}),
		}
		out, err := runs(t.Context(), e, slices.Values(Plan([]string{"a", "b", "c", "d"}, 1)))
		if err != nil || len(out) != 4 {
			t.Fatalf("%d outcomes, %v", len(out), err)
		}
		want := []string{"a at 0s", "b at 10s", "c at 20s", "d at 30s", "a at 41s"}
		if !slices.Equal(began, want) {
			t.Errorf("began %q, want %q", began, want)
		}
	})
	Release(t.Context()) // outside an engine it does nothing
}

func TestPlanIsGroupByGroup(t *testing.T) {
	got := Plan([]string{"a", "b"}, 2)
	want := []Job{{"a", "a", 0}, {"a", "a", 1}, {"b", "b", 0}, {"b", "b", 1}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestSeeds(t *testing.T) {
	seen := map[int64]bool{}
	n := 0
	for run := range uint64(3) {
		for _, a := range append(Plan([]string{"a", "ab"}, 3), Job{"b", "a", 0}, Job{"a", "b", 0}, Job{"", "aab", 0}) {
			for call := -1; call < 4; call++ {
				s := a.Seed(run, call)
				if s < 0 || s != a.Seed(run, call) {
					t.Fatalf("%v: seed %d", a, s)
				}
				seen[s] = true
				n++
			}
		}
	}
	if len(seen) != n {
		t.Errorf("%d different seeds for %d calls", len(seen), n)
	}
	// Runs are compared and resumed by seed, so the value for a seed must not change.
	if got := (Job{"lake-00001", "000001.0", 2}).Seed(1, 0); got != 959278576908790069 {
		t.Errorf("seed %d", got)
	}
}
