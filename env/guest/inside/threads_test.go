//go:build linux

package inside

import (
	"context"
	"errors"
	"testing"
)

// The host may send calls while the guest ends itself, after its threads have ended.
func TestThreadsAfterTheirEnd(t *testing.T) {
	t.Parallel()
	threads := newThreads(1, func() error { return nil })
	ran := false
	if err := threads.do(t.Context(), func() { ran = true }); err != nil || !ran {
		t.Fatalf("before the end: %v, %v", ran, err)
	}
	threads.close()
	if threads.offer(func() { t.Error("an offered function ran") }, func(err error) { t.Error(err) }) {
		t.Error("an offer was taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := threads.do(ctx, func() { t.Error("a function ran") }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
