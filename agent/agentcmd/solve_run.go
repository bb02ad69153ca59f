package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/docker/go-units"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/agent/prompt"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/devcontainer"
	"deepswe/env/disk"
	"deepswe/env/project"
	"deepswe/env/repo"
)

// job is one run of solve, with everything that it opens and closes.
type job struct {
	d  Deps
	o  *solveOptions // the command's own, which restored flags change
	in input

	past     *solveRun // the run that this one continues; nil for a new one
	text     string    // a further instruction
	settings solveSettings

	id       string // of the run
	run      string // the run's directory
	journal  *run.Dir
	dir      string // the attempt's directory in the run's
	index    int    // the number of the attempt, where an earlier one of several goes on
	task     env.Task
	target   string                          // the repository on the host
	fetch    func(ctx context.Context) error // clones the repository; nil if it is there
	snapshot *repo.Snapshot
	provider env.Provider
	// container is the repository's devcontainer.json; nil if it is not used.
	container *devcontainer.Config
	attempt   attempt.Attempt
	tested    testWatch
	found     bool            // the test command was not given but found
	steps     *[]project.Step // what is due; nil until it was looked for
	watch     watcher
	rules     []string // files of the project's rules
	stream    bool     // the watcher wants the model's text as it arrives
	model     cli.LiveModel
	choice    *cli.RaceResult // of several attempts; nil for one

	questions questions

	// closers run in reverse order.
	closers []func() error
}

func (j *job) onClose(f func() error) { j.closers = append(j.closers, f) }

func (j *job) close() error {
	var err error
	for i := len(j.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, j.closers[i]())
	}
	return err
}

// work attempts the task, and returns the result.
func (j *job) work(ctx context.Context, args []string) (outcome, error) {
	switch err := j.prepare(ctx, args); {
	case err == nil:
	case ctx.Err() != nil:
		return outcome{Status: string(agent.Interrupted), ExitCode: cli.ExitInterrupted}, &cli.ExitError{
			Code: cli.ExitInterrupted, Err: errors.New("interrupted before the first step; nothing was changed"),
		}
	default:
		return outcome{Status: "failed", ExitCode: cli.ExitCode(err)}, err
	}
	if j.o.attempts > 1 {
		result, err := j.race(ctx, j.model)
		return j.finish(ctx, result, err)
	}
	result, err := j.attempt.Make(ctx, j.task, j.snapshot, j.dir)
	return j.finish(ctx, result, errors.Join(err, j.record(result)))
}

// admit judges all that the command line names, before the endpoint is asked and anything is cloned or copied.
func (j *job) admit(ctx context.Context, args []string) error {
	taken := j.o.resume != "" || j.o.further != ""
	if taken {
		if err := j.takeUp(args); err != nil {
			return err
		}
	}
	err := j.o.complete(j.d.World)
	if err != nil {
		return err
	}
	if !taken {
		if j.in, err = j.o.input(args, j.d); err != nil {
			return cli.Usage(err)
		}
	}
	if err = j.findOrigin(ctx); err != nil {
		return err
	}
	if err = j.check(ctx); err != nil {
		return err
	}
	if err = j.openTask(ctx); err != nil {
		return err
	}
	if j.past == nil {
		err = j.nameRun()
	}
	if err != nil || j.fetch != nil {
		return cli.Usage(err)
	}
	return cmp.Or(j.checkTree(ctx), j.checkTest())
}

// prepare opens everything that a rollout needs, the cheap and likely failures first.
func (j *job) prepare(ctx context.Context, args []string) error {
	err := j.admit(ctx, args)
	if err != nil {
		return err
	}
	model, err := j.openModel(ctx)
	if err != nil {
		return err
	}
	if j.fetch != nil {
		if err = j.fetch(ctx); err != nil {
			return err
		}
	}
	if err = j.openProvider(ctx); err != nil {
		return err
	}
	if err = j.copyRepository(ctx); err != nil {
		return err
	}
	if j.attempt, err = j.o.Attempt(j.d.World, model, j.o.Network); err != nil {
		return err
	}
	if j.attempt.Player, err = j.o.agent.Player(ctx, j.d.World, nil); err != nil {
		return err
	}
	j.attempt.Provider, j.attempt.Run, j.attempt.Stream = j.provider, j.id, j.stream
	if j.model = model; j.o.attempts > 1 && !j.o.Given("temperature") {
		one := 1.0 // attempts that are alike leave no choice
		j.attempt.Sampling.Temperature = &one
	}
	if err = j.setCost(model.Name); err != nil {
		return err
	}
	if err = j.setUp(ctx); err != nil {
		return err
	}
	j.retest()
	if j.o.confirm {
		j.attempt.Review = j.confirm
	}
	j.attempt.OnEvent = func(e agent.Event) {
		j.tested.event(e)
		j.watch.show(e)
	}
	j.attempt.OnPhase = func(p attempt.Phase) { j.watch.show(p) }
	j.attempt.OnReady = func(dir string) { j.watch.show(ready(dir)) }
	if err = j.readProject(); err != nil {
		return err
	}
	due, err := j.due(ctx)
	if err != nil {
		return err
	}
	begin := started{
		Run: j.run, Task: j.task.ID, Model: model.Name, Sandbox: j.provider.Name(), Repo: j.target,
		Demo: j.o.demo, Recorded: model.IsRecorded(), MaxSteps: j.o.MaxSteps, NotCopied: j.snapshot.Omitted,
		Rules: j.rules, Folder: j.attempt.Folder, Context: j.attempt.Limits.Context,
		Due: due,
	}
	j.attempt.Notes = j.snapshot.Notes()
	for _, due := range begin.Due {
		j.attempt.Notes = append(j.attempt.Notes, due.note())
	}
	if !j.o.demo { // which is the same everywhere
		j.attempt.Notes = append(j.attempt.Notes, askForTest)
	}
	j.attempt.Examine = j.examine()
	if j.past != nil {
		j.settings = j.past.settings
		err = j.reopenRun()
		begin.Task, begin.Resumed = j.task.ID, true
		begin.MaxSteps += stepsBefore(j.dir)
	} else {
		err = j.createRun(ctx, model.Name)
	}
	if err != nil {
		return cli.Usage(err)
	}
	j.watch.show(begin)
	return nil
}

// setCost sets the price of the model's replies, if the configuration contains it.
func (j *job) setCost(model string) error {
	price, known := j.o.prices.Of(model)
	if !known && j.o.maxCost > 0 {
		return cli.Usagef("--max-cost requires the price of %s, for a million tokens, in %s:\nprices:\n  %s: {input: 0.5, "+
			"output: 1.5}", model, j.d.ConfigPath(), model)
	}
	if known {
		j.attempt.Cost, j.attempt.Limits.Cost = price.Cost, j.o.maxCost
	}
	return nil
}

// check validates what the command line names, before the model is called or the repository is copied.
func (j *job) check(ctx context.Context) error {
	if _, err := exec.LookPath("git"); err != nil {
		return cli.Usage(repo.ErrNoGit)
	}
	if _, err := exec.LookPath("go"); err != nil && j.o.demo && j.o.Image == "" {
		return cli.Usagef("the demo's tests are Go tests, and go is not installed, or not on PATH")
	}
	if info, err := os.Stat(j.o.dockerfile); j.o.dockerfile != "" && (err != nil || !info.Mode().IsRegular()) {
		return cli.Usage(cmp.Or(err, fmt.Errorf("--dockerfile %s is not a file", j.o.dockerfile)))
	}
	if j.o.demo || j.in.url != "" && !j.o.repoGiven {
		return nil // the repository is still to come
	}
	if info, err := os.Stat(j.o.repo); err != nil {
		return cli.Usagef("--repo: %w", err)
	} else if !info.IsDir() {
		return cli.Usagef("--repo %s is not a directory", j.o.repo)
	}
	if j.o.branch != "" {
		return cli.Usage(repo.CheckBranch(ctx, j.o.repo, j.o.branch))
	}
	return nil
}

// openModel opens the model. The demo is live only where a flag names the model or its endpoint, so that it is the same
// everywhere.
func (j *job) openModel(ctx context.Context) (cli.LiveModel, error) {
	if !j.o.demo || j.o.Name != "" || j.o.BaseURL != "" {
		return j.o.OpenForWork(ctx, j.d.World)
	}
	rec, err := openDemo(j.d.Demo)
	if err != nil {
		return cli.LiveModel{}, err
	}
	return j.o.Recorded(rec)
}

// nameRun chooses the run's directory: the one that --out names, or a new one in the default location.
func (j *job) nameRun() error {
	var err error
	j.run, err = filepath.Abs(cmp.Or(j.o.out, j.d.RunDir(j.id)))
	if err == nil && run.Exists(j.run) {
		err = fmt.Errorf("%s holds a run already: choose another --out", j.run)
	}
	return err
}

// copyRepository takes a snapshot of the repository, after the temporary files that killed runs left are removed. A
// failure to remove them does not stop the work. Nothing is copied if the sandbox can show the repository itself. The
// demo is always copied, so that its path is the same everywhere.
func (j *job) copyRepository(ctx context.Context) error {
	if _, err := disk.ReapScratch(ctx, "", disk.Reaping{}); err != nil && ctx.Err() == nil {
		j.d.Logger().Warn("the temporary files of a killed run could not be removed", "error", err)
	}
	o := j.o.Options()
	if overlay, ok := j.provider.(env.Overlayer); ok && !j.o.demo {
		root, err := repo.Root(ctx, j.target)
		if err != nil {
			return cli.Usage(err)
		}
		err = overlay.CanOverlay(ctx, root)
		if o.Share = err == nil; err != nil {
			j.watch.show(remark(fmt.Sprintf("the repository is copied, because it cannot be shown in place: %v", err)))
		}
	}
	o.Ignored = !o.Share && !j.o.demo
	// An image of the repository's own is built from a copy.
	o.Stream = o.Ignored && j.provider.Capabilities().Images && (j.container == nil || j.container.Folder == "")
	if !o.Share {
		j.watch.show(note("copying the repository"))
		o.Progress = func(files int, bytes int64) {
			j.watch.show(note(fmt.Sprintf("copying the repository: %s files, %s", cli.Count(files),
				units.HumanSize(float64(bytes)))))
		}
	}
	var err error
	j.snapshot, err = repo.Take(ctx, j.target, o)
	switch {
	case err == nil:
		j.onClose(j.snapshot.Close)
		j.placeBuild()
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, repo.ErrNoGit),
		errors.Is(err, repo.ErrSource):
		return cli.Usage(err)
	}
	return &cli.ExitError{Code: cli.ExitSandbox, Err: err}
}

// readProject reads the project's own rules, and finds the folder of the repository that the user works in.
func (j *job) readProject() error {
	if j.o.demo {
		return nil // which is the same everywhere
	}
	target, err := filepath.EvalSymlinks(j.target)
	if err != nil {
		return cli.Usage(err)
	}
	folder, err := filepath.Rel(j.snapshot.Source, target)
	if err != nil || !filepath.IsLocal(folder) {
		folder = "." // the source has another name than the target
	}
	most := prompt.MaxRules
	if c := j.attempt.Limits.Context; c > 0 {
		most = min(most, c/2) // an eighth of it, at four bytes a token
	}
	rules, err := prompt.ReadRules(j.snapshot.Source, filepath.ToSlash(folder), most)
	if err != nil {
		return cli.Usage(err)
	}
	if folder != "." {
		j.attempt.Folder = filepath.ToSlash(folder)
	}
	j.attempt.Rules, j.rules = rules.Text, rules.Files
	return nil
}

// createRun begins the run's directory.
func (j *job) createRun(ctx context.Context, model string) error {
	s := solveSettings{
		Task: j.task.ID, Issue: j.in.url, Model: model, Sandbox: j.provider.Name(), Demo: j.o.demo,
		Source: j.task.Source, Statement: j.task.Statement, Flags: givenFlags(j.o.flags),
	}
	var err error
	if s.Head, err = repo.Head(ctx, j.target); err != nil {
		return err
	}
	if !j.o.demo && (j.in.url == "" || j.o.repoGiven) {
		s.Repo = j.target
	}
	j.settings = s
	settings, err := disk.MarshalJSON(s)
	if err != nil {
		return err
	}
	j.journal, err = run.Create(j.run, run.Manifest{
		Kind: run.Solve, ID: j.id, Program: j.d.Program(), Settings: settings,
	})
	if err != nil {
		return err
	}
	j.onClose(j.journal.Close)
	j.dir, err = j.journal.Attempt(j.runJob())
	return err
}

// runJob returns the run's job, or the one that goes on.
func (j *job) runJob() run.Job { return j.raceJob(j.index) }

// record writes the outcome of the attempt to the run's events; for an interrupted attempt, a note instead.
func (j *job) record(r attempt.Result) error { return j.recordOne(j.index, r) }

func (j *job) recordOne(i int, r attempt.Result) error {
	out := r.Outcome
	if out.StopReason == agent.Interrupted {
		return j.journal.Note("interrupted", j.raceJob(i))
	}
	around := r.StartTime + r.PatchTime
	o := run.Outcome{Job: j.raceJob(i), Tries: 1, Result: run.Result{StopReason: out.StopReason, Times: run.Times{
		Model: out.ModelTime.Seconds(), Environment: (around + out.ToolTime).Seconds(),
		Total: (around + out.Elapsed).Seconds(),
	}}}
	if err := cmp.Or(r.Err, out.Err, r.PatchErr); err != nil {
		o.Err = err.Error()
	}
	return j.journal.Record(o)
}
