package rlcmd

import (
	"io/fs"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
)

// Deps is what the commands need.
type Deps struct {
	cli.World
	// Configs has the bundled configurations: files named NAME.yaml.
	Configs fs.FS
}

// New returns the commands of this package.
func New(d Deps) []*cobra.Command {
	return []*cobra.Command{newTrain(d), newExport(d)}
}
