package ranking

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"deepswe/agent"
	"deepswe/env/testkit"
)

// numbered plays attempts. Those with a patch end at once, and those without wait for an interrupt.
func numbered(t *testing.T, patches ...string) func(context.Context, int) (Entry, error) {
	dir := t.TempDir()
	return func(ctx context.Context, i int) (Entry, error) {
		e := Entry{ID: i, PatchFile: filepath.Join(dir, fmt.Sprint(i)), StopReason: agent.Submitted}
		switch patches[i] {
		case "":
			<-ctx.Done()
			e.StopReason = agent.Interrupted
		case "fails":
			return e, errors.New("no sandbox")
		case "nothing":
		default:
			testkit.WriteFile(t, e.PatchFile, patches[i])
		}
		return e, nil
	}
}

func ids(entries []Entry) string {
	var all []int
	for _, e := range entries {
		all = append(all, e.ID)
	}
	return fmt.Sprint(all)
}

// Attempts that have ended are candidates, even if the others were interrupted.
func TestPlay(t *testing.T) {
	t.Parallel()
	if got := ids(Play(t.Context(), 4, numbered(t, "b", "fails", "nothing", "a"))); got != "[0 2 3]" {
		t.Errorf("all ended: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	play := numbered(t, "a", "a", "a", "")
	got := Play(ctx, 4, func(ctx context.Context, i int) (Entry, error) {
		if i == 3 {
			cancel()
		}
		return play(ctx, i)
	})
	if len(got) != 3 {
		t.Errorf("after an interrupt: %s", ids(got))
	}
}
