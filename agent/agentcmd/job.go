package agentcmd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"deepswe/agent/attempt"
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
	dir      string // the attempt's directory in it
	task     env.Task
	target   string // the repository on the host
	prompts  prompts
	snapshot *repo.Snapshot
	provider env.Provider
	attempt  *attempt.Attempt
	watch    watcher

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
	if err := os.MkdirAll(j.dir, 0o755); err != nil {
		return Usage(fmt.Errorf("the run's directory: %w (choose another with --out)", err))
	}
	if j.attempt, err = j.newAttempt(j.provider, model); err != nil {
		return err
	}
	j.watch.start(started{
		Run: j.run, Task: j.task.ID, Model: model.Name, Sandbox: j.provider.Name(), Repo: j.target, Demo: j.o.demo, Recorded: model.recorded(),
		MaxSteps: j.o.maxSteps, NotCopied: j.snapshot.Omitted,
	})
	return nil
}

// check looks at what the command line names, before anything is asked or copied.
func (j *job) check(ctx context.Context) error {
	var err error
	if j.prompts, err = openPrompts(j.o.promptPack, j.o.network); err != nil {
		return Usage(err)
	}
	for _, note := range j.prompts.notes() {
		j.d.Log.Warn(note)
	}
	if _, err := exec.LookPath("git"); err != nil {
		return Usage(repo.ErrNoGit)
	}
	if _, err := exec.LookPath("go"); err != nil && j.o.demo && j.o.image == "" {
		return Usage(errors.New("the demo's tests are Go tests, and go is not installed, or not on PATH"))
	}
	if j.o.demo || j.in.url != "" && !j.o.repoGiven {
		return nil // the repository is still to come
	}
	if info, err := os.Stat(j.o.repo); err != nil {
		return Usage(fmt.Errorf("--repo: %w", err))
	} else if !info.IsDir() {
		return Usage(fmt.Errorf("--repo %s is not a directory", j.o.repo))
	}
	if j.o.branch != "" {
		return Usage(repo.CheckBranch(ctx, j.o.repo, j.o.branch))
	}
	return nil
}

// reap removes the temporary files that killed runs left. That it fails is no reason not to work.
func (j *job) reap(ctx context.Context) {
	if _, err := disk.ReapScratch(ctx, "", disk.Reaping{}); err != nil && ctx.Err() == nil {
		j.d.Log.Warn("what a killed run left could not be removed", "error", err)
	}
}

// takeSnapshot copies the repository.
func (j *job) takeSnapshot(ctx context.Context) (*repo.Snapshot, error) {
	j.watch.note("copying the repository")
	s, err := repo.Take(ctx, j.target, repo.SnapshotOptions{})
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, repo.ErrNoGit) || errors.Is(err, repo.ErrSource) {
			return nil, Usage(err)
		}
		return nil, sandboxError(err)
	}
	j.onClose(s.Close)
	return s, nil
}

func (j *job) openProvider(ctx context.Context) (env.Provider, error) {
	c := j.o.choice
	c.Env, c.Image, c.Demo, c.Hosts, c.Progress = j.o.env, j.o.image, j.o.demo, j.o.hosts, j.watch.pull
	p, err := j.d.Provider(ctx, c)
	if err != nil {
		return nil, err
	}
	j.onClose(p.Close)
	return p, nil
}

// nameRun decides on the run's directory: the one that was asked for, or a new one where such things belong.
func (j *job) nameRun() error {
	run := j.o.out
	if run == "" {
		run = filepath.Join(stateDir(j.d.Getenv), "runs", j.id)
	}
	var err error
	if j.run, err = filepath.Abs(run); err != nil {
		return Usage(err)
	}
	j.dir = filepath.Join(j.run, "rollouts", pathName(j.task.ID), "0")
	if _, err := os.Lstat(filepath.Join(j.dir, attempt.StepsFile)); err == nil {
		return Usage(fmt.Errorf("%s holds a run already: choose another --out", j.run))
	}
	return nil
}

// stateDir is where runs are kept when nobody says: $XDG_STATE_HOME/deepswe, ~/.local/state/deepswe, or below the
// directory for temporary files.
func stateDir(getenv func(string) string) string {
	if dir := getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "deepswe")
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "state", "deepswe")
	}
	return filepath.Join(os.TempDir(), "deepswe")
}

// newID names a run: sortable by time, and unique.
func newID(now time.Time) (string, error) {
	var b [3]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	return now.UTC().Format("20060102-150405") + "-" + hex.EncodeToString(b[:]), nil
}
