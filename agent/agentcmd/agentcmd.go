package agentcmd

import (
	"io/fs"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
)

// Deps is what the commands need.
type Deps struct {
	cli.World
	// Demo holds the demo's repository, issue and recording.
	Demo fs.FS
}

// New returns the commands about a rollout.
func New(d Deps) []*cobra.Command {
	return []*cobra.Command{newSolve(d), newReplay(d), newView(d)}
}

// NewMachine returns the commands about this machine.
func NewMachine(d Deps) []*cobra.Command {
	return []*cobra.Command{newDoctor(d), newClean(d)}
}
