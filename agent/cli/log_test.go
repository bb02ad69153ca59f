package cli

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"
)

func TestLogIsForPeople(t *testing.T) {
	var b bytes.Buffer
	log := NewLog(&b).With("host", "gpu\x1b[2J")
	log.Info("nobody wants to know")
	log.Warn("trying again", "status", 0, "error", errors.New("refused\nreally"), "attempt", 2, "wait",
		126133285*time.Nanosecond)
	log.WithGroup("x").Error("given up", slog.Any("nothing", nil), slog.String("empty", ""))
	want := "deepswe: warning: trying again (host gpu·[2J, error refused·really, attempt 2, wait 130ms)\n" +
		"deepswe: error: given up (host gpu·[2J)\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
}
