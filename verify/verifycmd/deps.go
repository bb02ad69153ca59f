// Package verifycmd holds the commands that measure: eval and grade.
//
// It is one of the packages where cobra lives. Everything that it touches outside comes in through [Deps]; it keeps no
// state. A command runs once.
package verifycmd

import (
	"context"
	"io"
	"iter"
	"log/slog"

	"github.com/spf13/cobra"

	"deepswe/agent/agentcmd"
	"deepswe/agent/run"
	"deepswe/env"
)

// Deps is what the commands need of the world.
type Deps struct {
	In       io.Reader
	Out, Err io.Writer
	// Log hears what does not belong on the screen; nil is silent.
	Log    *slog.Logger
	Getenv func(string) string
	// Abandon is closed when the user asks a second time to stop: patches of running rollouts are then given up.
	Abandon <-chan struct{}
	// Version is deepswe's own.
	Version string
	// Provider opens the sandbox provider that the choice asks for.
	Provider func(ctx context.Context, c agentcmd.ProviderChoice) (env.Provider, error)
	// Model opens a live endpoint.
	Model func(ctx context.Context, c agentcmd.ModelChoice) (agentcmd.LiveModel, error)
	// WriteRollouts writes rollouts.jsonl, for eval --tokens. The outcomes have their turns.
	WriteRollouts func(w io.Writer, rollouts iter.Seq2[run.Outcome, error]) error
}

// New returns the commands of this package.
func New(d Deps) []*cobra.Command {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	return []*cobra.Command{newEval(d), newGrade(d)}
}
