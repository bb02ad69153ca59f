package attempt

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A patch that takes too long is given up: after ten minutes, or one minute after an interrupt.
func TestPatienceWithPatches(t *testing.T) {
	for name, tc := range map[string]struct {
		interrupted bool
		want        time.Duration
	}{
		"in peace":           {false, longestPatch},
		"after an interrupt": {true, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.interrupted {
					cancel()
				}
				began := time.Now()
				err := (&Attempt{}).patience(ctx, make(chan struct{}))
				if took := time.Since(began); took != tc.want || err == nil || !strings.Contains(err.Error(), "not finished") {
					t.Errorf("gave up after %s: %v", took, err)
				}
			})
		})
	}
}
