// Package verifycmd has the commands that measure: eval and grade.
//
// It declares their flags and prints their results; everything else is in the packages swe and cli. What it needs from
// outside comes in through [Deps]; it keeps no state. A command runs once.
package verifycmd

import (
	"cmp"
	"context"
	"io"
	"iter"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env"
)

// Deps is what the commands need of the world.
type Deps struct {
	cli.World
	// WriteRollouts writes rollouts.jsonl, for eval --tokens. The outcomes have their turns.
	WriteRollouts func(w io.Writer, rollouts iter.Seq2[run.Outcome, error]) error
}

// New returns the commands of this package.
func New(d Deps) []*cobra.Command {
	d.Log = d.Logger()
	return []*cobra.Command{newEval(d), newGrade(d)}
}

// openSandbox opens the provider that the tasks need.
func openSandbox(
	ctx context.Context, d Deps, o *cli.SandboxFlags, warm int, tasks []env.Task, progress func(env.Progress),
) (env.Provider, error) {
	config, err := d.LoadConfig()
	if err != nil {
		return nil, err
	}
	choice, err := o.Choice(config)
	if err != nil {
		return nil, err
	}
	for _, k := range d.SandboxKinds() {
		if k.Name == o.Env && !k.Images {
			return nil, cli.Usagef("--env %s starts no images, and the tasks need theirs: use --env docker", o.Env)
		}
	}
	for _, t := range tasks {
		if choice.Image = cmp.Or(t.Image, t.Dockerfile); choice.Image == "" {
			return nil, cli.Usagef("task %s names no image: its repository is not available", t.ID)
		}
	}
	choice.Warm, choice.Progress = warm, progress
	return d.Sandbox(ctx, choice)
}
