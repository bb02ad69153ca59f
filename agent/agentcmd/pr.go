package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/env/forge"
	"deepswe/env/repo"
)

const prHelp = `Push the patch of a finished run, and open a draft pull request for it.

RUN is a run of solve: its id, the path of its directory, or last, which is the
default. The draft goes to the repository of the issue or, for a run without an
issue's address, to that of the remote origin: GitHub, Gitea, Forgejo or GitLab.
Where the token may not push there, a fork is made (--via says otherwise; agit
is a push that opens it by itself: to Gitea and Forgejo without a fork, to
GitLab by push options). For a run on a pull request, its branch gets a further
commit, and its review threads an answer.

A second run for the same issue updates its draft. Nothing is ever forced: where
a branch holds commits of others, nothing is pushed.

What a person has to agree to is named, and nothing is pushed without --allow:
files of CI (ci), CODEOWNERS (owners), what runs on developers' machines
(hooks), submodules, links, new sources of packages (registries), rules for
agents (rules).

The token is GITHUB_TOKEN or GH_TOKEN, GITEA_TOKEN or GITLAB_TOKEN, else what
gh, tea or glab keeps. It is sent to its own server alone: to another than the
public ones if GH_HOST, GITEA_SERVER_URL or GITLAB_HOST names it.`

// longestPull bounds the work of a pull request: a clone, a new fork, and what a forge may take.
const longestPull = 15 * time.Minute

// pullOptions are the flags about a pull request.
type pullOptions struct {
	via    string
	base   string
	branch string
	allow  []string
	ready  bool
	dryRun bool
	json   bool
}

func newPR(d Deps) *cobra.Command {
	var o pullOptions
	cmd := &cobra.Command{
		Use:   "pr [RUN]",
		Short: "Open a draft pull request with the patch of a finished run",
		Long:  prHelp,
		Example: `  deepswe pr
  deepswe pr last --dry-run
  deepswe pr 20261121-101500-7a1c02 --via fork --allow ci`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return proposeLater(cmd.Context(), d, append(args, lastRun)[0], o)
		},
		Args:              oneRun,
		ValidArgsFunction: completeRun(d),
	}
	f := cmd.Flags()
	f.StringVar(&o.via, "via", string(forge.Auto), "push to a `WAY`: auto, branch, fork or agit")
	f.StringVar(&o.base, "base", "", "propose it for `BRANCH` (default: the repository's default branch)")
	f.StringVar(&o.branch, "branch", "", "call the pushed branch `NAME` (default: deepswe/issue-N)")
	f.StringSliceVar(&o.allow, "allow", nil, "agree to changes of `CLASS`: "+strings.Join(forge.Classes(), ", "))
	f.BoolVar(&o.ready, "no-draft", false, "open it as ready for review")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be pushed, and push nothing")
	f.BoolVar(&o.json, "json", false, "print the result as a JSON line")
	return cmd
}

func (o pullOptions) checkFlags() error {
	switch forge.Via(o.via) {
	case forge.Auto, forge.Branch, forge.Fork, forge.AGit:
	default:
		return cli.Usagef("invalid way %q of a pull request: choose auto, branch, fork or agit", o.via)
	}
	for _, class := range o.allow {
		if !slices.Contains(forge.Classes(), class) {
			return cli.Usagef("--allow %s: choose from %s", class, strings.Join(forge.Classes(), ", "))
		}
	}
	return nil
}

// proposeLater opens the pull request of a run that has ended.
func proposeLater(ctx context.Context, d Deps, name string, o pullOptions) error {
	if err := o.checkFlags(); err != nil {
		return err
	}
	past, journal, err := lockEnded(d, name)
	if err != nil {
		return err
	}
	defer journal.Close()
	done, err := past.proposePatch(ctx, d, journal, o, func(draft *forge.Draft) { showDraft(d.Err, draft) })
	if err != nil || o.dryRun {
		return err
	}
	if o.json {
		return cli.NewJSONLines(d.Out).Print(struct {
			Type    string `json:"type"`
			Version int    `json:"version"`
			forge.Published
		}{"pull_request", 1, done})
	}
	_, err = fmt.Fprintln(d.Out, done.URL)
	return err
}

// proposePatch pushes the run's patch and opens or updates its pull request, and records that in the journal. show gets
// what is about to be pushed, before anything leaves the machine; with dryRun, nothing does. Where a person has to
// agree to a part of it, the error wraps [forge.ErrConcerns], and the draft that was shown names the parts.
func (s *solveRun) proposePatch(
	ctx context.Context, d Deps, journal *run.Dir, o pullOptions, show func(*forge.Draft),
) (forge.Published, error) {
	none := forge.Published{}
	ctx, cancel := context.WithTimeout(ctx, longestPull)
	defer cancel()
	patch, err := s.patch(d)
	if err != nil {
		return none, err
	}
	sum, _ := s.readSummary()
	to, err := pullTarget(ctx, s.settings.Issue, s.settings.Repo)
	if err != nil {
		return none, err
	}
	client, err := openForge(d)
	if err != nil {
		return none, err
	}
	name, email, err := repo.Identity(ctx, cmp.Or(s.settings.Repo, os.TempDir()))
	if err != nil {
		return none, cli.Usage(err)
	}
	scratch, err := disk.MakeScratch("", "pull")
	if err != nil {
		return none, err
	}
	defer disk.RemoveScratch(scratch)
	title := "Fix: " + cli.FirstLine(s.settings.Statement, 60)
	if to.Pull {
		title = fmt.Sprintf("Address the review of #%d", to.Number)
	}
	draft, err := client.Prepare(ctx, forge.Proposal{
		To: to, Patch: patch, Base: o.base, Branch: o.branch, Via: forge.Via(o.via), Ready: o.ready, Run: s.Manifest.ID,
		Title: title, Summary: withoutAnswers(sum.Answer), Verified: s.verified(),
		Made: fmt.Sprintf("Made by deepswe %s with %s in %s; a person has to review it.", d.Version, s.settings.Model,
			cli.Plural(sum.Steps, "step")),
		Name: name, Email: email, Allow: o.allow, Answers: threadAnswers(sum.Answer),
	}, scratch)
	if err != nil {
		return none, cli.Usage(err)
	}
	show(draft)
	switch {
	case len(draft.Concerns) > 0:
		return none, cli.Usagef("nothing was pushed: %w; the lines above say how to agree", forge.ErrConcerns)
	case o.dryRun:
		_, err := fmt.Fprintf(d.Out, "%s\n%s\n%s", cli.Plain(draft.Title), strings.Repeat("-", 72), draft.Body)
		return none, err
	}
	done, err := draft.Publish(ctx)
	if done.URL == "" {
		return done, cli.Usage(err)
	}
	return done, errors.Join(err, journal.Note(noteProposed, done))
}

// pullTarget returns the repository that a pull request goes to: the issue's, or else that of the remote origin.
func pullTarget(ctx context.Context, issue, dir string) (forge.Address, error) {
	if issue != "" {
		to, err := forge.Parse(issue)
		return to, cli.Usage(err)
	}
	if dir == "" {
		return forge.Address{}, cli.Usagef("the run has neither an issue's address nor a repository on a forge")
	}
	remote, err := repo.Remote(ctx, dir)
	if err != nil {
		return forge.Address{}, cli.Usage(err)
	}
	to, ok := forge.ParseRemote(remote)
	if !ok {
		return to, cli.Usagef("a pull request goes to the issue's repository or to the remote origin, and %s has no "+
			"origin on a forge", dir)
	}
	return to, nil
}

// showDraft tells a person what is about to be pushed.
func showDraft(out io.Writer, d *forge.Draft) {
	line := func(name, text string) { fmt.Fprintf(out, "%-13s%s\n", name, cli.Plain(text)) }
	line("pull request", fmt.Sprintf("%s for %s of %s", cmp.Or(d.Updates, "a new draft"), d.Into, d.Project))
	line("push", fmt.Sprintf("%.10s to %s of %s", d.Commit, d.Branch, cmp.Or(d.From, "a new fork")))
	line("commit", cli.FirstLine(d.Message, 72))
	if d.SignedOff {
		line("", "signed off in your name, because the project asks for it")
	}
	for _, c := range d.Changes {
		how := "changed"
		switch {
		case c.OldMode == repo.ModeNone:
			how = "new"
		case c.NewMode == repo.ModeNone:
			how = "removed"
		}
		line("  "+how, c.Path)
	}
	for _, c := range d.Concerns {
		line("needs a yes", c.String())
	}
}

// proposed is the address of the run's last pull request; empty if there is none.
func (s *solveRun) proposed() string {
	var last forge.Published
	lastNote(s.Notes, noteProposed, &last)
	return last.URL
}

// verification says how a patch was tested.
type verification struct {
	Text string `json:"text"`
}

// verified says how the patch was tested since the last work on it.
func (s *solveRun) verified() string {
	v := verification{Text: "not verified"}
	lastNote(s.sinceWork(), noteVerified, &v)
	return v.Text
}

// verifiedBy describes the tests of a patch for those who review it.
func verifiedBy(report *outcome) string {
	text := report.Detail
	if c := report.Test; c != nil {
		text += fmt.Sprintf("\n\n- without the patch: `%s` ends with exit code %d\n- with the patch: exit code %d",
			c.Command, c.Base.ExitCode, c.Patched.ExitCode)
	}
	return cmp.Or(text, "not verified")
}

// proposePatch opens the pull request that --pr asks for.
func (c *conclusion) proposePatch(ctx context.Context, report *outcome) error {
	if report.Test != nil && report.Test.Verdict == attempt.Broken {
		report.add("no pull request, because the patch breaks tests: deepswe pr opens one all the same")
		return nil
	}
	past, err := readSolve(c.path)
	if err != nil {
		return err
	}
	done, err := past.proposePatch(ctx, c.d, c.journal, pullOptions{via: c.o.pull, allow: c.o.allow},
		func(draft *forge.Draft) { c.watch.show(proposal{draft}) })
	if done.URL != "" {
		report.PullRequest = &done
	}
	return err
}

// proposal is what is about to be pushed.
type proposal struct{ *forge.Draft }

// threadAnswer is a line of an agent's summary that answers a thread of a review.
var threadAnswer = regexp.MustCompile(`(?m)^[ \t*-]*\[thread ([\w-]+)\]:?[ \t]*(.+)$`)

// threadAnswers returns the answers to threads in an agent's summary, by their IDs.
func threadAnswers(answer string) map[string]string {
	all := map[string]string{}
	for _, m := range threadAnswer.FindAllStringSubmatch(answer, -1) {
		all[m[1]] = strings.TrimSpace(m[2])
	}
	return all
}

// withoutAnswers returns the summary without these answers.
func withoutAnswers(answer string) string {
	return strings.TrimSpace(threadAnswer.ReplaceAllString(answer, ""))
}
