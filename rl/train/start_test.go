package train

import (
	"testing"
	"time"
)

func TestTrainerLostRepeatedly(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration
		want  int // losses until the run ends
	}{
		{"a server that fails at once", 10 * time.Second, 61},
		{"a server that is restarted", 3 * time.Minute, 6},
		{"a server that fails after an hour", time.Hour, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			var lost lostTrainer
			now := time.Now()
			for !lost.add(now) {
				now = now.Add(c.every)
			}
			if lost.times != c.want {
				t.Errorf("%d losses, want %d", lost.times, c.want)
			}
		})
	}
	var lost lostTrainer
	for i, want := range []time.Duration{0, 0, 1, 2, 4, 8, 16, 32, 60, 60} {
		if got := lost.pause(); got != want*time.Second {
			t.Errorf("after %d losses a pause of %s, want %s", i, got, want*time.Second)
		}
		lost.add(time.Now())
	}
}
