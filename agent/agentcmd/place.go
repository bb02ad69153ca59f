package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/go-units"

	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/devcontainer"
	"deepswe/env/disk"
	"deepswe/env/project"
	"deepswe/env/repo"
)

// place is where the work is done: a provider of sandboxes, and the copy of the repository that they get.
type place struct {
	run      string // the ID of the run that works there
	provider env.Provider
	task     env.Task // with the image of its sandboxes
	target   string   // the repository on this machine
	snapshot *repo.Snapshot
	test     testCommand
	// machine holds the directories in which commands of the sandbox find what is installed for all projects.
	machine project.Machine
	// container is the repository's devcontainer.json; nil if it is not used.
	container *devcontainer.Config
}

// openPlace clones the repository, if necessary, and opens the provider. If copied is set, it also copies the
// repository; otherwise the sandboxes have that of their image.
func (s *solving) openPlace(ctx context.Context, job *assignment, copied bool, open *opened) (*place, error) {
	at := &place{run: job.id, task: job.task, target: job.target, test: job.test}
	var err error
	if job.clone != nil {
		if at.target, err = job.clone(ctx); err != nil {
			return nil, err
		}
		if at.test, err = s.findTest(at.target); err != nil {
			return nil, err
		}
	}
	if err = s.openProvider(ctx, at); err != nil {
		return nil, err
	}
	open.onClose(at.provider.Close)
	if at.machine = project.Container(); at.provider.Capabilities().HostToolchain {
		at.machine = project.FindMachine(s.d.Getenv)
	}
	if !copied {
		return at, nil
	}
	if at.snapshot, err = s.copyRepository(ctx, at); err != nil {
		return nil, err
	}
	open.onClose(at.snapshot.Close)
	at.placeBuild()
	return at, nil
}

// openProvider opens the provider that the flags ask for. If they name no image, Docker may still be used: with the
// image of the devcontainer.json or, if nothing else works, the usual one for the project.
func (s *solving) openProvider(ctx context.Context, at *place) error {
	c := s.o.choice
	c.Progress = func(p env.Progress) { s.watch.show(p) }
	looking := c.ImageLater && c.Image == "" && s.o.dockerfile == ""
	if s.o.dockerfile != "" {
		if err := at.useDockerfile(ctx, s.o.dockerfile); err != nil {
			return cli.Usage(err)
		}
		c.Image = s.o.dockerfile
	} else if looking {
		opened, err := s.openDevcontainer(ctx, at, c)
		if opened || err != nil {
			return err
		}
		if c.Env == cli.EnvDocker {
			return s.openUsual(ctx, at, c)
		}
	}
	var err error
	if at.provider, err = s.d.Sandbox(ctx, c); err != nil && looking && ctx.Err() == nil &&
		s.openUsual(ctx, at, c) == nil {
		return nil
	}
	return err
}

// openUsual opens Docker with the default image for the kind of repository.
func (s *solving) openUsual(ctx context.Context, at *place, c cli.SandboxChoice) error {
	at.task.Image = project.Image(at.target)
	return s.openImage(ctx, at, c, "the usual one for this project; --image names another")
}

// openImage opens Docker and brings the task's image there.
func (s *solving) openImage(ctx context.Context, at *place, c cli.SandboxChoice, why string) error {
	c.Image, c.Env = at.task.Image, cli.EnvDocker
	p, err := s.d.Sandbox(ctx, c)
	if err != nil {
		return err
	}
	if err := p.Prefetch(ctx, env.Spec{Image: c.Image, Run: at.run}); err != nil {
		return &cli.ExitError{Code: cli.ExitSandbox, Err: errors.Join(err, p.Close())}
	}
	s.watch.show(remark(fmt.Sprintf("image %s (%s)", c.Image, why)))
	at.provider = p
	return nil
}

// openDevcontainer opens Docker with the image of the repository's devcontainer.json, and reports whether it did. If
// the file needs what a sandbox does not provide, the reason is shown, and the caller goes on to the next choice.
func (s *solving) openDevcontainer(ctx context.Context, at *place, c cli.SandboxChoice) (opened bool, err error) {
	root, err := repo.Root(ctx, at.target)
	if err != nil {
		return false, cli.Usage(err)
	}
	found, err := devcontainer.Read(root)
	switch {
	case err != nil:
		s.watch.show(remark(fmt.Sprintf("not used: %v", err)))
		return false, nil
	case found == nil:
		return false, nil
	case found.Folder != "" && !s.mayBuild(root):
		s.watch.show(remark(fmt.Sprintf("not used: %s builds an image, which runs its commands: --setup auto allows that",
			found.File)))
		return false, nil
	}
	task := at.task
	if at.task.Image = found.Image; found.Folder == "" {
		err = s.openImage(ctx, at, c, "of "+found.File)
	} else {
		c.Image, c.Env = found.File, cli.EnvDocker
		if at.provider, err = s.d.Sandbox(ctx, c); err == nil {
			s.watch.show(remark(fmt.Sprintf("image built from %s (%s)", path.Join(found.Folder, found.Recipe.File), found.File)))
		}
	}
	if err != nil {
		if at.task = task; ctx.Err() != nil {
			return false, err
		}
		s.watch.show(remark(fmt.Sprintf("not used: %s: %v", found.File, err)))
		return false, nil
	}
	at.container, at.task.User = found, found.User
	at.task.Env = append(slices.Clip(at.task.Env), found.Env...)
	return true, nil
}

// mayBuild reports whether the user allows building the project's own Dockerfile, whose commands have network access.
func (s *solving) mayBuild(root string) bool {
	return slices.Equal(s.o.Setup, []string{cli.SetupAuto}) || len(setups(s.d.World).Agreement(root)) > 0
}

// useDockerfile uses the Dockerfile that the user has named. Its build context is the repository if it is in there,
// otherwise its own folder.
func (p *place) useDockerfile(ctx context.Context, named string) error {
	file, err := filepath.Abs(named)
	if err == nil {
		file, err = filepath.EvalSymlinks(file)
	}
	if err != nil {
		return fmt.Errorf("--dockerfile: %w", err)
	}
	root, err := repo.Root(ctx, p.target)
	if err != nil {
		return err
	}
	below, err := filepath.Rel(root, file)
	if err != nil || !filepath.IsLocal(below) {
		p.task.Dockerfile, p.task.Recipe = filepath.Dir(file), env.Recipe{File: filepath.Base(file)}
		return nil
	}
	p.container = &devcontainer.Config{File: below, Folder: ".", Recipe: env.Recipe{File: filepath.ToSlash(below)}}
	return nil
}

// builds reports whether the image is built from the repository.
func (p *place) builds() bool { return p.container != nil && p.container.Folder != "" }

// placeBuild makes the snapshot the build context of the image: it holds neither secrets nor other ignored files.
func (p *place) placeBuild() {
	if !p.builds() {
		return
	}
	folder := filepath.FromSlash(p.container.Folder)
	p.task.Dockerfile = filepath.Join(p.snapshot.Dir, folder)
	p.task.Recipe = p.container.Recipe
	for _, name := range p.snapshot.Aside {
		if below, err := filepath.Rel(folder, filepath.FromSlash(name)); err == nil && filepath.IsLocal(below) {
			p.task.Recipe.Without = append(p.task.Recipe.Without, filepath.ToSlash(below))
		}
	}
}

// copyRepository takes a snapshot of the repository, after the temporary files that killed runs left are removed. A
// failure to remove them does not stop the work. Nothing is copied if the sandbox can show the repository itself. The
// demo is always copied, so that its path is the same everywhere.
func (s *solving) copyRepository(ctx context.Context, at *place) (*repo.Snapshot, error) {
	if _, err := disk.ReapScratch(ctx, "", disk.Reaping{}); err != nil && ctx.Err() == nil {
		s.d.Logger().Warn("the temporary files of a killed run could not be removed", "error", err)
	}
	o := s.o.Options()
	if overlay, ok := at.provider.(env.Overlayer); ok && !s.o.demo {
		root, err := repo.Root(ctx, at.target)
		if err != nil {
			return nil, cli.Usage(err)
		}
		err = overlay.CanOverlay(ctx, root)
		if o.Share = err == nil; err != nil {
			s.watch.show(remark(fmt.Sprintf("the repository is copied, because it cannot be shown in place: %v", err)))
		}
	}
	o.Ignored = !o.Share && !s.o.demo
	o.Stream = o.Ignored && at.provider.Capabilities().Images && !at.builds() // an image is built from a copy
	if !o.Share {
		s.watch.show(note("copying the repository"))
		o.Progress = func(files int, bytes int64) {
			s.watch.show(note(fmt.Sprintf("copying the repository: %s files, %s", cli.Count(files),
				units.HumanSize(float64(bytes)))))
		}
	}
	snapshot, err := repo.Take(ctx, at.target, o)
	switch {
	case err == nil:
		return snapshot, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, repo.ErrNoGit),
		errors.Is(err, repo.ErrSource):
		return nil, cli.Usage(err)
	}
	return nil, &cli.ExitError{Code: cli.ExitSandbox, Err: err}
}

// isolated reports whether the commands of a set-up cannot change this machine.
func (p *place) isolated() bool { return p.provider.Capabilities().Isolated }

// installedBelow returns what a set-up has installed in a directory of the repository, relative to it.
func (p *place) installedBelow(dir string) []string {
	var installed []string
	for _, name := range p.snapshot.Aside {
		below, err := filepath.Rel(dir, filepath.Join(p.snapshot.Source, filepath.FromSlash(name)))
		if err == nil && !strings.HasPrefix(below, "..") {
			installed = append(installed, filepath.ToSlash(below))
		}
	}
	return installed
}

// containerSteps returns the set-up commands of the devcontainer.json.
func (p *place) containerSteps() []project.Step {
	if p.container == nil {
		return nil
	}
	var steps []project.Step
	for _, line := range p.container.Setup {
		steps = append(steps, project.Step{Command: line, Lock: p.container.File, Missing: "the container's set-up"})
	}
	return steps
}

// findAgain looks for the tests again, now that the sandbox and what a set-up has added to the repository are known.
func (t testCommand) findAgain(at *place) testCommand {
	if t.found {
		t.line = cmp.Or(project.TestCommand(at.target, at.machine, at.installedBelow(at.target)), t.line)
	}
	return t
}
