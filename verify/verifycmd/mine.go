package verifycmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/agent/run"
	history "deepswe/env/mine"
	"deepswe/env/project"
	"deepswe/env/repo"
	"deepswe/verify/mine"
	"deepswe/verify/swe"
)

const mineHelp = `Find tasks in the history of a repository, for eval, grade and train.

The newest commits of the current branch are walked, each against its first
parent, so that a merged pull request is one commit. Those that change sources
and tests are candidates. The tests of each candidate run without its change
and with it, several times, in sandboxes without a network and with this
machine's own programs and packages. What fails before and passes after is a
task, if it is sound: its own change earns the reward in the way that eval and
train grade, confirmed by tests that must fail, and no change earns none. Then
the change is made wrong, a line at a time (--mutants): how many of these wrong
solutions the tests notice is a label of the task.

Where these programs and packages do not suffice, the commit's own manifests and
lock files say what is installed, with the network, in a sandbox of its own,
once for all commits with the same ones (--setup none: never; --setup COMMAND:
how).

The folder (--out) has tasks.jsonl, and report.html with all that was left out,
and why. The tasks name this repository and a commit; a sandbox gets the files
of that commit, without any history. Nothing of it leaves this machine, except
with --statement model.

A task's statement is the issue that the commit names, if --issues has it, or
the commit's message. With --statement model, a model writes it where there is
no issue. Its endpoint is sent the message, the change and the tests, and what
it writes must give nothing of them away.

With --synthetic, further bugs are made and judged in the same way: mutate makes
the changes of sound tasks wrong in a line, model lets a model make them wrong
(it is sent the changed files, the change and the tests), and revert takes
changes back from today's code whose own time does not run here. The label
synthetic says so.

A second run with the same folder judges only what is new: later commits, and
with --more, earlier ones. Candidates whose tests did not run are judged again
with another --setup, --image or --test-timeout, or with --again.

EXIT STATUS
  0 done · 2 wrong usage, or no history · 3 no task was found ·
  6 the sandboxes failed · 130 interrupted`

func newMine(d Deps) *cobra.Command {
	var o mineOptions
	cmd := &cobra.Command{
		Use:   "mine",
		Short: "Find tasks in a repository's own history",
		Long:  mineHelp,
		Example: `  deepswe mine
  deepswe mine --repo ~/src/project --commits 1000 --out tasks/project
  deepswe grade --tasks tasks/project --predictions gold
  deepswe eval --tasks tasks/project -k 4`,
		Args: cli.NoArgs("--repo"),
		RunE: func(cmd *cobra.Command, _ []string) error { return runMine(cmd.Context(), d, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.repo, "repo", ".", "the repository in `DIR`")
	f.StringVar(&o.path, "path", "", "only what commits change below `PATH`, such as a package of a monorepo")
	f.IntVar(&o.commits, "commits", 0, "walk the newest `N` commits (default: 300, or as before)")
	f.BoolVar(&o.more, "more", false, "walk 300 commits more than the last time")
	f.BoolVar(&o.again, "again", false,
		"judge candidates again whose tests did not run, now that this machine has what they lack")
	f.IntVar(&o.bounds.Files, "max-files", 8, "most sources that a candidate changes")
	f.IntVar(&o.bounds.Lines, "max-lines", 300, "most lines of sources that it changes")
	f.IntVar(&o.bounds.Bytes, "max-bytes", 50_000, "longest patch, without tests")
	o.sandbox.Add(cmd)
	f.StringArrayVar(&o.setup, "setup", nil,
		"`COMMAND` that installs what tests need, once for all commits with the same manifests, or auto or none "+
			"(default: as before, or auto)")
	f.StringVar(&o.issues, "issues", "",
		"texts of issues by number, in `FILE`: gh issue list --state all --json number,title,body,comments "+
			"(default: as before)")
	f.StringVar(&o.statement, "statement", byMessage,
		"`WHO` writes the statements that no issue gives: message or model")
	f.StringVar(&o.model.BaseURL, "base-url", "", "--statement model: `URL` of the endpoint (default: the configured one)")
	f.StringVar(&o.model.Name, "model", "", "--statement model: `NAME` of the model (default: the configured one)")
	f.IntVar(&o.workers, "workers", 4, "candidates to judge at once")
	f.IntVar(&o.mutants, "mutants", swe.DefaultMutants,
		"wrong solutions to try for each task, by which its tests are measured")
	f.DurationVar(&o.timeout, "test-timeout", 10*time.Minute, "longest `TIME` for a run of a candidate's tests")
	f.StringVar(&o.holdout, "holdout", "",
		"keep this `SHARE` of the tasks, the newest (20%), in the folder DIR-held (default: as before)")
	f.StringSliceVar(&o.synthetic, "synthetic", nil,
		"also make bugs by `KINDS`: "+strings.Join(syntheticKinds(), ",")+", or none (default: as before)")
	f.StringVar(&o.out, "out", "", "keep the tasks in `DIR` (default: tasks/NAME)")
	f.BoolVar(&o.json, "json", false, "print the report as a line of JSON")
	return cmd
}

type mining struct {
	session
	o      mineOptions
	root   string // of the repository
	folder mine.Folder
	report mine.Report
	// unfetched are the submodules whose files the repository lacks.
	unfetched []string
}

// runMine is mine from its command line to its exit code.
func runMine(ctx context.Context, d Deps, o mineOptions) (err error) {
	if err := o.check(); err != nil {
		return cli.Usage(err)
	}
	m := &mining{session: session{d: d, lines: cli.NewJSONLines(d.Out)}, o: o}
	defer func() { err = errors.Join(err, m.close()) }()
	candidates, err := m.walk(ctx)
	if err != nil {
		return err
	}
	switch kinds := m.report.Kinds(); {
	case m.report.Share > 0 && slices.Contains(kinds, history.Reverting):
		return cli.Usagef("--synthetic revert and --holdout: today's code has the solutions of the tasks that are held out")
	case o.mutants == 0 && slices.Contains(kinds, history.Mutating):
		return cli.Usagef("--synthetic mutate takes the wrong solutions of --mutants, of which there are none; " +
			"--synthetic none turns it off")
	}
	mined, err := m.judge(ctx, candidates)
	if err != nil {
		if cli.Interrupted(ctx, err) {
			fmt.Fprintln(d.Err, "stopped; to go on, run the same command again")
			return cli.Exit(cli.ExitInterrupted)
		}
		return err
	}
	tasks := m.report.Add(mined)
	if err := m.folder.Write(tasks, m.report); err != nil {
		return err
	}
	m.progress.plan("", 0)
	if o.json {
		_ = m.lines.Print(m.report)
	} else {
		m.summary()
	}
	if len(tasks) == 0 {
		return cli.Exit(cli.ExitUnsolved)
	}
	return nil
}

// walk opens the folder, and finds the candidates.
func (m *mining) walk(ctx context.Context) ([]history.Candidate, error) {
	root, err := repo.Root(ctx, m.o.repo)
	if errors.Is(err, repo.ErrSource) { // a bare repository has no root, but a history
		root, err = filepath.Abs(m.o.repo)
	}
	if err != nil {
		return nil, cli.Usage(err)
	}
	m.root = root
	name := strings.TrimSuffix(filepath.Base(strings.TrimSuffix(root, "/.git")), ".git")
	m.folder = mine.Folder{Path: cmp.Or(m.o.out, filepath.Join("tasks", history.Title(name, m.o.path)))}
	last, err := m.folder.Report()
	if err != nil {
		return nil, err
	}
	const usual = 300
	asked := cmp.Or(m.o.commits, last.Asked, usual)
	if m.o.more {
		asked += usual
	}
	commits, err := history.Walk(ctx, root, m.o.path, asked)
	if errors.Is(err, history.ErrHistory) {
		return nil, cli.Usage(err)
	}
	if err != nil {
		return nil, err
	}
	candidates, unfit, err := history.Choose(ctx, root, commits, m.o.bounds)
	if err != nil {
		return nil, err
	}
	share, _ := m.o.share(last.Share) // it was checked
	m.unfetched = history.Unfetched(ctx, root)
	m.report = mine.Report{
		Share: share, Setup: last.Setup,
		Version: 1, Repository: name, Asked: asked, Commits: len(commits), Candidates: len(candidates), Unfit: unfit,
		Shallow: history.Shallow(ctx, root),
	}
	if kinds := m.o.kinds(last); len(kinds) > 0 {
		m.report.Synthetic = &mine.Made{Kinds: kinds}
	}
	if len(m.o.setup) > 0 {
		m.report.Setup = m.o.setup
	}
	if len(commits) > 0 {
		m.report.Licence = history.Licence(ctx, root, commits[0].Hash)
	}
	if len(candidates) == 0 {
		why := listed(m.report.UnfitReasons())
		if m.report.Shallow {
			why += "; " + unshallow
		}
		return nil, cli.Usagef("%w: none of %s changes sources and tests: %s", history.ErrHistory,
			cli.Plural(len(commits), "commit"), why)
	}
	return candidates, m.eras(ctx, candidates)
}

func (m *mining) eras(ctx context.Context, candidates []history.Candidate) error {
	var needed []string
	for _, c := range candidates {
		needed = append(needed, c.Needs())
	}
	eras, err := history.Eras(ctx, m.root, needed)
	if err != nil {
		return err
	}
	different := map[string]bool{}
	for _, c := range candidates {
		c.Labels["era"] = eras[c.Needs()]
		different[eras[c.Needs()]] = true
	}
	m.report.Eras = len(different)
	return nil
}

// judge runs the tests of the candidates.
func (m *mining) judge(ctx context.Context, candidates []history.Candidate) (*mine.Mined, error) {
	config, err := m.d.LoadConfig()
	if err != nil {
		return nil, err
	}
	choice, err := m.o.sandbox.Choice(config)
	if err != nil {
		return nil, err
	}
	writer, err := m.writer(ctx, config)
	if err != nil {
		return nil, err
	}
	m.progress = newProgress(m.d.Err, "candidates")
	choice.Progress = m.progress.pull
	if m.provider, err = m.d.Sandbox(ctx, choice); err != nil {
		return nil, err
	}
	m.dir, err = m.folder.Open(m.d.Program())
	if errors.Is(err, run.ErrLocked) {
		err = fmt.Errorf("%w: wait until it ends, or give another --out", err)
	}
	if err != nil {
		return nil, cli.Usage(err)
	}
	machine := project.FindMachine(m.d.Getenv)
	if m.o.sandbox.Image != "" {
		machine = project.Container()
	}
	issues, err := m.folder.Issues(m.o.issues)
	if err != nil {
		return nil, cli.Usage(err)
	}
	miner := mine.Miner{
		Builder: history.Builder{
			Repository: m.root, Name: m.report.Repository, Machine: machine, Image: m.o.sandbox.Image,
			Below: m.o.path, TestTimeout: m.o.timeout,
		},
		Provider: m.provider, Dir: m.dir, Workers: m.o.workers, Mutants: m.o.mutants, Issues: issues,
		Again: m.o.again, Setup: m.report.Setup, Note: m.progress.note, Synthetic: m.report.Kinds(),
	}
	if m.o.statement == byModel {
		miner.Writer = writer
	}
	if m.o.writesBugs() {
		miner.BugWriter = writer
	}
	m.progress.note("%s: %s, of which %s may become tasks", m.report.Repository,
		cli.Plural(m.report.Commits, "commit"), cli.Plural(len(candidates), "candidate"))
	return miner.Mine(ctx, candidates, swe.Watch{Begin: m.beginPart, Observe: m.observeEvent})
}

// writer opens the model that writes statements or bugs, and says what it will be sent; nil if none is asked for.
func (m *mining) writer(ctx context.Context, config cli.Config) (agent.Model, error) {
	sent := map[string]string{}
	if m.o.statement == byModel {
		sent["the statements that no issue gives"] = "commits' messages, changes and tests"
	}
	if m.o.writesBugs() {
		sent["bugs"] = "commits' messages, changed files and tests"
	}
	if len(sent) == 0 {
		return nil, nil
	}
	live, err := m.o.model.Open(ctx, m.d.World)
	if err != nil {
		return nil, err
	}
	at := cli.WithoutPassword(m.d.ResolveModel(config, m.o.model.BaseURL, m.o.model.Name).BaseURL)
	for _, what := range slices.Sorted(maps.Keys(sent)) {
		fmt.Fprintf(m.d.Err, "%s at %s writes %s; it is sent %s\n", cli.Plain(live.Name), cli.Plain(at), what, sent[what])
	}
	return live.Model, nil
}

func (m *mining) observeEvent(e run.Event) {
	m.progress.observeEvent(e, mine.Job(e.Job), "trying again", func() (*bool, string) {
		return nil, mine.Describe(*e.Outcome)
	})
}
