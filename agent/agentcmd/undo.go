package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/env/repo"
)

const undoHelp = `Take back the last delivery of a finished run: the applied patch, or the branch.

RUN is a run of solve: its id, the path of its directory, or last, which is the
default. Nothing is touched unless the files of the patch, or the branch, are
still as the delivery left them; what differs is named. Again, it takes back the
delivery before.`

func newUndo(d Deps) *cobra.Command {
	return &cobra.Command{
		Use:     "undo [RUN]",
		Short:   "Take back what apply or branch did",
		Long:    undoHelp,
		Example: "  deepswe undo\n  deepswe undo 20261121-101500-7a1c02",
		RunE: func(cmd *cobra.Command, args []string) error {
			return undo(cmd.Context(), d, append(args, lastRun)[0])
		},
		Args:              oneRun,
		ValidArgsFunction: completeRun(d),
	}
}

// oneRun accepts at most one argument, the run.
func oneRun(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return cli.Usagef("usage: deepswe %s (deepswe runs lists the runs)", cmd.Use)
	}
	return nil
}

// undo takes back the last of a run's deliveries that were not taken back yet.
func undo(ctx context.Context, d Deps, name string) error {
	past, journal, err := lockEnded(d, name)
	if err != nil {
		return err
	}
	defer journal.Close()
	all := past.deliveries()
	if len(all) == 0 {
		return cli.Usagef("there is nothing to take back: since the last work on the run %s, its patch was neither applied "+
			"nor committed", runName(d, past.path))
	}
	ctx, cancel := context.WithTimeout(ctx, longestDelivery)
	defer cancel()
	last := all[len(all)-1]
	if err := last.takeBack(ctx, past.dir()); err != nil {
		return err
	}
	if last.Applied {
		fmt.Fprintf(d.Out, "taken back in %s: %s\n", cli.Plain(last.Repo),
			cli.Plain(strings.Join(slices.Sorted(maps.Keys(last.Files)), ", ")))
	}
	if last.Branch != "" {
		fmt.Fprintf(d.Out, "removed the branch %s, which was at %s\n", cli.Plain(last.Branch), last.Commit)
	}
	return journal.Note(noteUndone, nil)
}

// takeBack undoes the delivery of the patch in dir. A branch is removed first, because a failure to do so changes
// nothing.
func (d delivery) takeBack(ctx context.Context, dir string) error {
	var patch []byte
	if d.Applied {
		path := filepath.Join(dir, attempt.PatchFile)
		var err error
		if patch, err = os.ReadFile(path); err != nil {
			return err
		}
		differ, err := d.differences(ctx, patch)
		if err != nil {
			return cli.Usage(err)
		}
		if len(differ) > 0 {
			return cli.Usagef("since the patch was applied to %s:\n  %s\nNothing was changed.\nto fix: git apply --reverse %s, "+
				"in the root of the repository, takes it back where its lines are unchanged",
				d.Repo, strings.Join(differ, "\n  "), shellWord(path))
		}
	}
	if d.Branch != "" {
		if err := repo.RemoveBranch(ctx, d.Repo, d.Branch, d.Commit); errors.Is(err, repo.ErrChanged) {
			return cli.Usagef("%w. Nothing was changed", err)
		} else if err != nil {
			return err
		}
	}
	if !d.Applied {
		return nil
	}
	err := repo.Unapply(ctx, d.Repo, patch)
	if errors.Is(err, repo.ErrConflict) {
		return cli.Usagef("%w. No file was changed", err)
	}
	return err
}

// differences names the files that are no longer as the patch left them.
func (d delivery) differences(ctx context.Context, patch []byte) ([]string, error) {
	now, err := repo.State(ctx, d.Repo, patch)
	var differ []string
	for _, path := range slices.Sorted(maps.Keys(d.Files)) {
		switch {
		case now[path] == d.Files[path]:
		case now[path] == "":
			differ = append(differ, path+" is gone")
		case d.Files[path] == "":
			differ = append(differ, path+" is there again")
		default:
			differ = append(differ, path+" has changed")
		}
	}
	return differ, err
}
