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

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/repo"
)

// job is one run of solve: what it has opened, and closes again.
type job struct {
	d  Deps
	o  solveOptions
	in input

	id       string // of the run
	run      string // the run's directory
	journal  *run.Dir
	dir      string // the attempt's directory in the run's
	task     env.Task
	target   string // the repository on the host
	snapshot *repo.Snapshot
	provider env.Provider
	attempt  *attempt.Attempt
	watch    watcher
	stream   bool // the watcher wants the model's text as it arrives

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

// prepare opens everything that a rollout needs, the cheap and likely failures first.
func (j *job) prepare(ctx context.Context) error {
	if err := j.check(ctx); err != nil {
		return err
	}
	model, err := j.openModel(ctx)
	if err != nil {
		return err
	}
	if err := j.openTask(ctx); err != nil {
		return err
	}
	if err := j.nameRun(); err != nil {
		return err
	}
	j.reap(ctx)
	if j.snapshot, err = j.takeSnapshot(ctx); err != nil {
		return err
	}
	if j.provider, err = j.openProvider(ctx); err != nil {
		return err
	}
	if j.attempt, err = j.newAttempt(j.provider, model); err != nil {
		return err
	}
	if err := j.createRun(model.Name); err != nil {
		return err
	}
	j.watch.show(started{
		Run: j.run, Task: j.task.ID, Model: model.Name, Sandbox: j.provider.Name(), Repo: j.target,
		Demo: j.o.demo, Recorded: model.IsRecorded(), MaxSteps: j.o.MaxSteps, NotCopied: j.snapshot.Omitted,
	})
	return nil
}

// check looks at what the command line names, before anything is asked or copied.
func (j *job) check(ctx context.Context) error {
	if _, err := exec.LookPath("git"); err != nil {
		return cli.Usage(repo.ErrNoGit)
	}
	if _, err := exec.LookPath("go"); err != nil && j.o.demo && j.o.Image == "" {
		return cli.Usagef("the demo's tests are Go tests, and go is not installed, or not on PATH")
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

// reap removes the temporary files that killed runs left. A failure does not stop the work.
func (j *job) reap(ctx context.Context) {
	if _, err := disk.ReapScratch(ctx, "", disk.Reaping{}); err != nil && ctx.Err() == nil {
		j.d.Logger().Warn("what a killed run left could not be removed", "error", err)
	}
}

// takeSnapshot copies the repository.
func (j *job) takeSnapshot(ctx context.Context) (*repo.Snapshot, error) {
	j.watch.show(note("copying the repository"))
	s, err := repo.Take(ctx, j.target)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, repo.ErrNoGit),
		errors.Is(err, repo.ErrSource):
		return nil, cli.Usage(err)
	default:
		return nil, &cli.ExitError{Code: cli.ExitSandbox, Err: err}
	}
	j.onClose(s.Close)
	return s, nil
}

func (j *job) openProvider(ctx context.Context) (env.Provider, error) {
	c := j.o.choice
	c.Progress = func(p env.Progress) { j.watch.show(p) }
	p, err := j.d.Sandbox(ctx, c)
	if err != nil {
		return nil, err
	}
	j.onClose(p.Close)
	return p, nil
}

// nameRun decides on the run's directory: the one that was asked for, or a new one in the usual place.
func (j *job) nameRun() error {
	dir := j.o.out
	if dir == "" {
		dir = j.d.RunDir(j.id)
	}
	var err error
	if j.run, err = filepath.Abs(dir); err == nil && run.Exists(j.run) {
		err = j.exists()
	}
	return cli.Usage(err)
}

func (j *job) exists() error {
	return fmt.Errorf("%s holds a run already: choose another --out", j.run)
}

// solveSettings are the settings in the manifest of a run of solve.
type solveSettings struct {
	Task    string `json:"task"`
	Repo    string `json:"repo,omitempty"`  // on the host; empty where it was cloned for the run
	Issue   string `json:"issue,omitempty"` // its URL
	Model   string `json:"model"`
	Sandbox string `json:"sandbox"`
}

// createRun begins the run's directory.
func (j *job) createRun(model string) error {
	s := solveSettings{Task: j.task.ID, Issue: j.in.url, Model: model, Sandbox: j.provider.Name()}
	if !j.o.demo && (j.in.url == "" || j.o.repoGiven) {
		s.Repo = j.target
	}
	settings, err := disk.MarshalJSON(s)
	if err != nil {
		return err
	}
	j.journal, err = run.Create(j.run, run.Manifest{
		Kind: run.Solve, ID: j.id, Program: j.d.Program(), Settings: settings,
	})
	if errors.Is(err, run.ErrExists) {
		err = j.exists()
	}
	if err != nil {
		return cli.Usage(err)
	}
	j.onClose(j.journal.Close)
	j.dir, err = j.journal.Attempt(j.runJob())
	return err
}

// runJob is the one job of the run.
func (j *job) runJob() run.Job { return run.Job{Task: j.task.ID, Group: j.task.ID} }

// record writes the outcome of the attempt to the run's events. One that was interrupted has none, as in every run.
func (j *job) record(r attempt.Result) error {
	out := r.Outcome
	if out.StopReason == agent.Interrupted {
		return j.journal.Note("interrupted", j.runJob())
	}
	o := run.Outcome{Job: j.runJob(), Tries: 1, Result: run.Result{StopReason: out.StopReason, Times: run.Times{
		Model: out.ModelTime.Seconds(), Environment: (r.StartTime + out.ToolTime + r.PatchTime).Seconds(),
		Total: (r.StartTime + out.Elapsed + r.PatchTime).Seconds(),
	}}}
	if err := cmp.Or(r.Err, out.Err, r.PatchErr); err != nil {
		o.Err = err.Error()
	}
	return j.journal.Record(o)
}

// work does the job, and reports what came of it.
func (j *job) work(ctx context.Context) (outcome, error) {
	if err := j.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted before the first step; nothing was changed")
			err = &cli.ExitError{Code: cli.ExitInterrupted, Err: err}
		}
		return failed(ctx, err), err
	}
	result, err := j.attempt.Make(ctx, j.task, j.snapshot, j.dir)
	return j.finish(ctx, result, errors.Join(err, j.record(result)))
}

// openModel opens the model. Only a flag makes the demo a live one: with whatever else is set, it is the same
// everywhere.
func (j *job) openModel(ctx context.Context) (cli.LiveModel, error) {
	if !j.o.demo || j.o.Name != "" || j.o.BaseURL != "" {
		return j.o.Open(ctx, j.d.World)
	}
	rec, err := openDemo(j.d.Demo)
	if err != nil {
		return cli.LiveModel{}, err
	}
	return j.o.Recorded(rec)
}

// newAttempt says how the task is attempted.
func (j *job) newAttempt(provider env.Provider, m cli.LiveModel) (*attempt.Attempt, error) {
	a, err := j.o.Attempt(j.d.World, m, j.o.Network)
	a.Provider, a.Run, a.Stream = provider, j.id, j.stream
	a.OnEvent = func(e agent.Event) { j.watch.show(e) }
	a.OnPhase = func(p attempt.Phase) { j.watch.show(p) }
	a.OnReady = func(dir string) { j.watch.show(ready(dir)) }
	return &a, err
}
