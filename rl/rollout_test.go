package rl

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestVersionNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[Version]int64{VersionNumber(7): 7, `"7"`: 7, "-2": -2} {
		if n, ok := v.Number(); !ok || n != want {
			t.Errorf("%s is %d, %t", v, n, ok)
		}
	}
	for _, v := range []Version{"", "v7", "1.5", `"x"`} {
		if n, ok := v.Number(); ok {
			t.Errorf("%s is the number %d", v, n)
		}
	}
}
