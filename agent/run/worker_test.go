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

// A rollout that releases its worker lets the next one begin, and is tried again without a worker.
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
