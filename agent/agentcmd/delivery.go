package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env/repo"
)

// delivery is the data of a run's event about the delivery of its patch.
type delivery struct {
	Repo    string `json:"repo"`
	Applied bool   `json:"applied,omitempty"`
	Branch  string `json:"branch,omitempty"`
	Commit  string `json:"commit,omitempty"`
	// Parent is the commit that the branch starts from.
	Parent string `json:"parent,omitempty"`
	// Files are the files of an applied patch as it left them; see [repo.State].
	Files map[string]string `json:"files,omitempty"`
}

// longestDelivery bounds the work of git in a delivery.
const longestDelivery = time.Minute

const applyHelp = `Apply the patch of a finished run to its repository, all of it or nothing.

RUN is a run of solve: its id, the path of its directory, or last. The work tree
may have changed since; the patch is applied where it still fits, and nothing is
touched where it does not.`

const branchHelp = `Commit the patch of a finished run as the new branch NAME of its repository. The
work tree is left alone.

RUN is a run of solve: its id, the path of its directory, or last. The branch
begins with the commit that is checked out now; where the patch cannot be merged
to that, with the commit that the run began with.`

func newApply(d Deps) *cobra.Command {
	return delivering(d, &cobra.Command{
		Use:     "apply RUN",
		Short:   "Apply the patch of a finished run",
		Long:    applyHelp,
		Example: "  deepswe apply last\n  deepswe apply 20261121-101500-7a1c02 --repo ../other-checkout",
	})
}

func newBranch(d Deps) *cobra.Command {
	return delivering(d, &cobra.Command{
		Use:     "branch RUN NAME",
		Short:   "Commit the patch of a finished run as a new branch",
		Long:    branchHelp,
		Example: "  deepswe branch last fix-12",
	})
}

// delivering completes a command that delivers the patch of a run. It requires the arguments that the usage names.
func delivering(d Deps, cmd *cobra.Command) *cobra.Command {
	var dir string
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != len(strings.Fields(cmd.Use))-1 {
			return cli.Usagef("usage: deepswe %s (deepswe runs lists the runs)", cmd.Use)
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return deliverLater(cmd.Context(), d, args[0], dir, strings.Join(args[1:], ""))
	}
	cmd.ValidArgsFunction = completeRun(d)
	cmd.Flags().StringVar(&dir, "repo", "", "the repository in `DIR` (default: the run's own)")
	return cmd
}

// completeRun completes the first argument with the id of a run.
func completeRun(d Deps) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completeRuns(d)(cmd, args, word)
	}
}

// completeRuns completes any argument, or the value of a flag, with the ids of runs.
func completeRuns(d Deps) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		ids := []string{lastRun}
		all, _ := run.List(d.RunsDir()) // none if they cannot be listed
		for _, r := range all {
			ids = append(ids, filepath.Base(r.Path))
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

// patch returns the patch of a run. Without one, the error has the exit status of a run that solved nothing.
func (s *solveRun) patch(d Deps) ([]byte, error) {
	patch, err := os.ReadFile(filepath.Join(s.dir(), attempt.PatchFile))
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("the run %s has no patch", runName(d, s.path))
		return nil, &cli.ExitError{Code: cli.ExitUnsolved, Err: err}
	}
	return patch, err
}

// deliverLater applies a run's patch or, if a branch is named, commits it there.
func deliverLater(ctx context.Context, d Deps, name, dir, branch string) error {
	past, journal, err := lockEnded(d, name)
	if err != nil {
		return err
	}
	defer journal.Close()
	s := past.settings
	dir = cmp.Or(dir, s.Repo)
	if dir == "" {
		return cli.Usagef("the run %s worked on a clone that is gone: name a checkout with --repo DIR", runName(d, past.path))
	}
	if _, err := os.Stat(dir); err != nil {
		return cli.Usagef("the run's repository: %w (--repo DIR names another checkout)", err)
	}
	patch, err := past.patch(d)
	if err != nil {
		return err
	}
	sum, _ := past.readSummary()
	done := delivery{Repo: dir, Branch: branch, Applied: branch == ""}
	if done.Applied {
		if err := applyPatch(ctx, d, past, dir, patch); err != nil {
			return err
		}
		fmt.Fprintf(d.Out, "applied to %s: %s\n", cli.Plain(dir), cli.Plain(strings.Join(sum.Files, ", ")))
	} else {
		text := commitMessage(s, sum.Answer)
		if done.Commit, done.Parent, err = commitPatch(ctx, dir, branch, text, patch, s.Head); err != nil {
			return err
		}
		fmt.Fprintf(d.Out, "committed as %s (%.10s)%s\n", cli.Plain(branch), done.Commit,
			beginsElsewhere(ctx, dir, done.Parent))
	}
	return noteDelivery(ctx, journal, done, patch)
}

// beginsElsewhere returns a remark if a branch does not start at the commit that is checked out; otherwise empty.
func beginsElsewhere(ctx context.Context, dir, parent string) string {
	if now, err := repo.Head(ctx, dir); err != nil || now == parent {
		return ""
	}
	return fmt.Sprintf(", which begins with %.10s, as the run did", parent)
}

// applyPatch applies a run's patch to the work tree.
func applyPatch(ctx context.Context, d Deps, past *solveRun, dir string, patch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, longestDelivery)
	defer cancel()
	err := repo.Apply(ctx, dir, patch)
	if errors.Is(err, repo.ErrApplied) {
		return cli.Usagef("%w. Nothing was changed", err)
	}
	if err == nil || !errors.Is(err, repo.ErrConflict) {
		return err
	}
	since := "the files have changed since the run began"
	if now, herr := repo.Head(ctx, dir); herr == nil && now != past.settings.Head && past.settings.Head != "" {
		since = fmt.Sprintf("HEAD was %.10s when the run began and is %.10s now", past.settings.Head, now)
	}
	return cli.Usagef("%w (%s). Nothing was changed. To fix: deepswe branch %s NAME commits it where it fits, to be "+
		"merged from there", err, since, runName(d, past.path))
}

// commitPatch commits a patch as a new branch, and returns the commit and its parent.
func commitPatch(
	ctx context.Context, dir, branch, message string, patch []byte, base string,
) (commit, parent string, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestDelivery)
	defer cancel()
	if commit, parent, err = repo.Branch(ctx, dir, branch, message, patch, base); err != nil {
		return "", "", cli.Usage(err)
	}
	return commit, parent, nil
}

// commitMessage returns the message of a branch's commit: the issue's title, the agent's summary of its work, and the
// issue's address.
func commitMessage(s solveSettings, answer string) string {
	text := "Fix: " + cli.FirstLine(s.Statement, 60) + "\n"
	if answer = strings.TrimSpace(answer); answer != "" {
		text += "\n" + answer + "\n"
	}
	if s.Issue != "" { // no closing keyword: commits reach forks and other branches
		text += "\nIssue: " + s.Issue + "\n"
	}
	return text
}

// deliverPatch applies the patch, and commits it to a branch, as --apply and --branch ask. A patch that conflicts
// with the branch's base is still applied.
func (c *conclusion) deliverPatch(ctx context.Context, report *outcome) error {
	apply, target := c.o.apply != "", c.plan.at.target
	if c.o.apply == applyAsk {
		var err error
		if apply, err = c.agrees(ctx, question{Patch: report.diff, Target: target}); err != nil {
			report.add("not applied, because nobody answered")
		}
		report.shown = true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestDelivery)
	defer cancel()
	done := delivery{Repo: target}
	var refused error
	if c.o.branch != "" {
		var err error
		text := commitMessage(c.settings, report.Answer)
		done.Commit, done.Parent, err = commitPatch(ctx, target, c.o.branch, text, report.diff, c.settings.Head)
		switch {
		case err == nil:
			done.Branch = c.o.branch
		case errors.Is(err, repo.ErrConflict):
			refused = cli.Usagef("not committed, and the patch is kept: %w", err)
		default:
			return err
		}
		report.Branch, report.Commit = done.Branch, done.Commit
	}
	if apply {
		if err := repo.Apply(ctx, target, report.diff); err != nil {
			return cli.Usage(errors.Join(refused,
				fmt.Errorf("%w: the repository has changed since; the patch is kept", err)))
		}
		report.Applied, done.Applied = true, true
	}
	if !done.Applied && done.Branch == "" {
		return refused
	}
	return cmp.Or(noteDelivery(ctx, c.journal, done, report.diff), refused)
}

// noteDelivery records a delivery, with what it takes to undo it.
func noteDelivery(ctx context.Context, journal *run.Dir, done delivery, patch []byte) error {
	if done.Applied {
		var err error
		if done.Files, err = repo.State(ctx, done.Repo, patch); err != nil {
			return err
		}
	}
	return journal.Note(noteDelivered, done)
}
