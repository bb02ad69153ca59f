// Package backoff waits between the attempts at something that failed for a reason that may pass.
package backoff

import (
	"context"
	"time"
)

// Limit is the longest wait before a retry, counted from 1: first, doubled with every further one, up to longest. How
// much of it is waited is up to the caller, who adds the jitter that fits.
func Limit(retry int, first, longest time.Duration) time.Duration {
	for ; retry > 1 && first < longest; retry-- {
		first *= 2
		if first <= 0 { // more than a Duration holds
			return longest
		}
	}
	return min(first, longest)
}

// Sleep waits, or returns the context's error when that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
