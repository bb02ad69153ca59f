// Package envcmd holds the commands about the places where tasks run: doctor and clean.
//
// It is one of the packages where cobra lives. Everything that it touches outside comes in through [Deps]; it keeps no
// state. It does not import the model client: what doctor says of the endpoint comes in through Deps, too.
package envcmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"deepswe/env"
)

// Deps is what the commands need of the world.
type Deps struct {
	Out, Err io.Writer
	// Docker opens the provider for these daemons, or, where there are none, for the docker command's.
	Docker func(ctx context.Context, hosts []string) (env.Provider, error)
	// Local are the providers that work on this machine, in the order in which they are shown.
	Local []Local
	// Scratch removes temporary files of dead runs that belong to no sandbox. Nil where there are none.
	Scratch func(ctx context.Context, o env.ReapOptions) ([]env.Leftover, error)
	// Endpoint looks at the model endpoint: whether it answers, with which model and context length, and whether it
	// completes one token. Empty arguments leave the choice to the environment and the configuration. Nil where there is
	// nothing to look at.
	Endpoint func(ctx context.Context, baseURL, model string) []env.Finding
}

// Local is a provider of this machine's own.
type Local struct {
	Name string
	// Fix is what to do when Open fails and its error does not say.
	Fix  string
	Open func() (env.Provider, error)
}

// New returns the commands of this package.
func New(d Deps) []*cobra.Command {
	return []*cobra.Command{newDoctor(d), newClean(d)}
}

// exitFailed is the exit code of a command that did its work and found that something is wrong; exitSandbox that of one
// that could not do its work.
const (
	exitFailed  = 3
	exitSandbox = 6
)

// exitError is an error that main exits with a code of its own for. Without a cause, everything worth saying was said.
type exitError struct {
	code  int
	cause error
}

func (e *exitError) Error() string {
	if e.cause == nil {
		return ""
	}
	return e.cause.Error()
}

func (e *exitError) Unwrap() error { return e.cause }

// ExitCode is what main exits with.
func (e *exitError) ExitCode() int { return e.code }

// open opens a provider and makes sure that its error names it.
func (l Local) open() (env.Provider, error) {
	p, err := l.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.Name, err)
	}
	return p, nil
}
