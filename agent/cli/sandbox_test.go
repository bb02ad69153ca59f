package cli

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"deepswe/env"
)

// Without bubblewrap nothing runs on the machine itself, unless it is asked for by name or is the bundled demo.
func TestHostIsChosenByName(t *testing.T) {
	missing := errors.New("bubblewrap is not installed")
	for _, c := range []struct {
		name   string
		choice SandboxChoice
		opens  bool
	}{
		{"auto", SandboxChoice{}, false},
		{"by name", SandboxChoice{Env: EnvHost}, true},
		{"the demo", SandboxChoice{Demo: true}, true},
		{"the demo in bubblewrap by name", SandboxChoice{Env: EnvBwrap, Demo: true}, false},
	} {
		opened := false
		w := World{Log: slog.New(slog.DiscardHandler), Sandboxes: []SandboxKind{
			{Name: EnvBwrap, Open: func(context.Context, *slog.Logger, SandboxChoice) (env.Provider, error) {
				return nil, missing
			}},
			{Name: EnvHost, Open: func(context.Context, *slog.Logger, SandboxChoice) (env.Provider, error) {
				opened = true
				return nil, missing // it is enough that somebody tried
			}},
		}}
		if _, err := w.Sandbox(t.Context(), c.choice); !errors.Is(err, missing) || opened != c.opens {
			t.Errorf("%s: host opened: %v, %v", c.name, opened, err)
		}
	}
}
