package rlcmd

import (
	"context"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/rl/trainer/tinker"
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

// InspectTrainer looks at a Tinker server, for doctor.
func InspectTrainer(w cli.World) func(ctx context.Context, url, model string, rank int) []env.Finding {
	return func(ctx context.Context, url, model string, rank int) []env.Finding {
		// Someone waits for it: a server that is not there is not waited for.
		client, err := tinker.NewClient(tinker.ClientOptions{
			URL: url, Key: w.Getenv(tinker.KeyVariable), Patience: 5 * time.Second, OperationTimeout: 30 * time.Minute,
			Log: w.Log,
		})
		if err != nil {
			return []env.Finding{env.FindingOf("trainer", err)}
		}
		defer client.Close()
		return tinker.Inspection{Client: client, Base: model, Rank: rank}.Inspect(ctx)
	}
}
