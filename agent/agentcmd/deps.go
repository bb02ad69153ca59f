// Package agentcmd holds the commands about one rollout: solve, replay and view.
//
// It is one of the packages where cobra lives. Everything that it touches outside comes in through [Deps]; it keeps no
// state. A command runs once.
package agentcmd

import (
	"context"
	"io"
	"io/fs"
	"log/slog"

	"github.com/spf13/cobra"

	"deepswe/agent"
	"deepswe/env"
)

// Deps is what the commands need of the world.
type Deps struct {
	In       io.Reader
	Out, Err io.Writer
	Log      *slog.Logger
	Getenv   func(string) string
	// Abandon is closed when the user asks a second time to stop: what is left of a rollout is then given up.
	Abandon <-chan struct{}
	// Demo holds the demo's repository, issue and recording.
	Demo fs.FS
	// Version is deepswe's own.
	Version string
	// Provider opens the sandbox provider that the choice asks for.
	Provider func(ctx context.Context, c ProviderChoice) (env.Provider, error)
	// Model opens a live endpoint.
	Model func(ctx context.Context, c ModelChoice) (LiveModel, error)
}

// ProviderChoice says which sandbox is wanted.
type ProviderChoice struct {
	// Env is the word of --env: auto, docker, bwrap or host.
	Env string
	// Image is the container image, where one is known: without one, auto does not choose docker.
	Image string
	// Demo lets auto fall back to host, which is otherwise chosen by name only.
	Demo bool
	// Hosts are Docker daemons, Warm the number of sandboxes kept ready.
	Hosts []string
	Warm  int
	// Mirror is asked for Docker Hub's images first. ImageBudget is how many bytes all images may take; no limit when 0.
	Mirror      string
	ImageBudget int64
	// Progress is told how pulls and builds of images go; from several goroutines.
	Progress func(env.Progress)
}

// ModelChoice says which endpoint and model are wanted. Empty fields leave the choice to the endpoint.
type ModelChoice struct {
	BaseURL string
	Model   string
	APIKey  string
}

// LiveModel is an endpoint's model, and what the endpoint says about it.
type LiveModel struct {
	agent.Model
	// Name is the model's, as requests ask for it.
	Name string
	// Context is its context length in tokens, 0 where the endpoint does not say.
	Context int
}

// New returns the commands of this package.
func New(d Deps) []*cobra.Command {
	return []*cobra.Command{newSolve(d), newReplay(d), newView(d)}
}
