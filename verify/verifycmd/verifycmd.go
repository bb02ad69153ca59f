// Package verifycmd has the commands that measure and choose: eval, grade, rank and compare, and mine and data,
// which bring what is measured.
//
// It declares their flags and prints their results; everything else is in the packages swe and cli. What it needs from
// outside comes in through [Deps]; it keeps no state. A command runs once.
package verifycmd

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env"
)

// Deps are the dependencies of the commands.
type Deps struct {
	cli.World
	// WriteRollouts writes rollouts.jsonl, for eval --tokens. The outcomes have their turns.
	WriteRollouts func(w io.Writer, rollouts iter.Seq2[run.Outcome, error]) error
}

// New returns the commands of this package.
func New(d Deps) []*cobra.Command {
	d.Log = d.Logger()
	return []*cobra.Command{newEval(d), newGrade(d), newRank(d), newCompare(d), newMine(d), newData(d)}
}

// session is the common part of the runs of eval, grade, rank and mine.
type session struct {
	d        Deps
	dir      *run.Dir
	provider env.Provider
	progress *progress
	lines    *cli.JSONLines
}

// beginPart shows what there is to do in a part of a soundness check or of mining.
func (s *session) beginPart(part string, plan []run.Job) {
	s.progress.plan(part, len(plan))
	for _, j := range plan {
		if _, ok := s.dir.Find(j); ok {
			s.progress.known(nil)
		}
	}
}

// openSandbox opens the provider that the tasks need.
func (s *session) openSandbox(ctx context.Context, o *cli.SandboxFlags, warm int, tasks []env.Task) error {
	config, err := s.d.LoadConfig()
	if err != nil {
		return err
	}
	choice, err := o.Choice(config)
	if err != nil {
		return err
	}
	if choice.Image, err = imageOf(tasks); err != nil {
		return err
	}
	for _, k := range s.d.SandboxKinds() {
		if k.Name == o.Env && !k.Images && choice.Image != "" {
			return cli.Usagef("--env %s starts no images, and the tasks need theirs: use --env docker", o.Env)
		}
		if k.Name == o.Env && k.Images && choice.Image == "" {
			return cli.Usagef("--env %s starts images, and the tasks have no image: name one with --image, or use --env bwrap",
				o.Env)
		}
	}
	choice.Warm, choice.Progress = warm, s.progress.pull
	s.provider, err = s.d.Sandbox(ctx, choice)
	return err
}

// imageOf returns one of the images of the tasks. It is empty if they have none, because their preparation creates the
// repositories, or this machine has them.
func imageOf(tasks []env.Task) (string, error) {
	image, without := "", ""
	for _, t := range tasks {
		switch own := cmp.Or(t.Image, t.Dockerfile); {
		case own != "":
			image = own
		case len(t.Prepare) == 0 && t.Repository == "":
			return "", cli.Usagef("task %s names no image: its repository is not available", t.ID)
		default:
			without = t.ID
		}
	}
	if image != "" && without != "" {
		return "", cli.Usagef("task %s has no image, and others have one: no kind of sandbox plays both; to fix: "+
			"select one kind with --filter", without)
	}
	return image, nil
}

func (s *session) close() error {
	var err error
	if s.progress != nil {
		s.progress.close()
	}
	if s.provider != nil {
		err = s.provider.Close()
	}
	if s.dir != nil {
		err = errors.Join(err, s.dir.Close())
	}
	return err
}
