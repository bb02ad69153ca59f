package env

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoff(t *testing.T) {
	for retry, want := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 6: 32, 7: 60, 1000: 60} {
		if got := Backoff(retry, time.Second, time.Minute); got != want*time.Second {
			t.Errorf("retry %d: %v, want %v", retry, got, want*time.Second)
		}
	}
	if got := Backoff(1, time.Hour, time.Minute); got != time.Minute {
		t.Errorf("more than the longest: %v", got)
	}
	if got := Backoff(1<<20, 3, math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("without a cap: %v", got)
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Sleep(t.Context(), time.Hour); err != nil || time.Since(began) != time.Hour {
			t.Errorf("slept %v, %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if err := Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("slept %v, %v", time.Since(began), err)
		}
	})
}
