package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/devcontainer"
	"deepswe/env/project"
	"deepswe/env/repo"
)

// openProvider opens the sandbox that the flags ask for. Where they name no image, one of Docker may be found: the
// repository's own, or one for its kind where nothing else works.
func (j *job) openProvider(ctx context.Context) error {
	c := j.o.choice
	c.Progress = func(p env.Progress) { j.watch.show(p) }
	if j.o.dockerfile != "" {
		if err := j.ownDockerfile(ctx); err != nil {
			return cli.Usage(err)
		}
		c.Image = j.o.dockerfile
	} else if c.ImageLater && c.Image == "" {
		opened, err := j.openDevcontainer(ctx, c)
		if opened || err != nil {
			return err
		}
		if c.Env == cli.EnvDocker {
			return j.openUsual(ctx, c)
		}
	}
	provider, err := j.d.Sandbox(ctx, c)
	if err != nil && c.ImageLater && c.Image == "" && ctx.Err() == nil {
		if j.openUsual(ctx, c) == nil {
			return nil
		}
	}
	j.use(provider, err)
	return err
}

// use keeps a provider that was opened.
func (j *job) use(p env.Provider, err error) {
	if err == nil {
		j.provider = p
		j.onClose(p.Close)
	}
}

// openUsual opens Docker with the default image for the kind of repository.
func (j *job) openUsual(ctx context.Context, c cli.SandboxChoice) error {
	image := project.Image(j.target)
	if err := j.openImage(ctx, c, image, "the usual one for this project; --image names another"); err != nil {
		return err
	}
	j.task.Image = image
	return nil
}

// openImage opens Docker and brings the image there.
func (j *job) openImage(ctx context.Context, c cli.SandboxChoice, image, why string) error {
	c.Image, c.Env = image, cli.EnvDocker
	p, err := j.d.Sandbox(ctx, c)
	if err != nil {
		return err
	}
	if err := p.Prefetch(ctx, env.Spec{Image: image, Run: j.id}); err != nil {
		return &cli.ExitError{Code: cli.ExitSandbox, Err: errors.Join(err, p.Close())}
	}
	j.watch.show(remark(fmt.Sprintf("image %s (%s)", image, why)))
	j.use(p, nil)
	return nil
}

// openDevcontainer opens Docker with the image of the repository's devcontainer.json, and reports whether it did. If
// the file needs what a sandbox does not provide, the reason is shown, and the caller goes on to the next choice.
func (j *job) openDevcontainer(ctx context.Context, c cli.SandboxChoice) (opened bool, err error) {
	root, err := repo.Root(ctx, j.target)
	if err != nil {
		return false, cli.Usage(err)
	}
	found, err := devcontainer.Read(root)
	if err != nil {
		j.watch.show(remark(fmt.Sprintf("not used: %v", err)))
		return false, nil
	}
	if found == nil {
		return false, nil
	}
	if found.Folder != "" && !j.mayBuild(root) {
		j.watch.show(remark(fmt.Sprintf("not used: %s builds an image, which runs its commands: --setup auto allows that",
			found.File)))
		return false, nil
	}
	if found.Folder == "" {
		err = j.openImage(ctx, c, found.Image, "of "+found.File)
	} else {
		c.Image, c.Env = found.File, cli.EnvDocker
		var p env.Provider
		if p, err = j.d.Sandbox(ctx, c); err == nil {
			j.watch.show(remark(fmt.Sprintf("image built from %s (%s)", path.Join(found.Folder, found.Recipe.File), found.File)))
			j.use(p, nil)
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return false, err
	case err != nil:
		j.watch.show(remark(fmt.Sprintf("not used: %s: %v", found.File, err)))
		return false, nil
	}
	j.container = found
	j.task.Image, j.task.User = found.Image, found.User
	j.task.Env = append(slices.Clip(j.task.Env), found.Env...)
	return true, nil
}

// mayBuild reports whether the project's own Dockerfile may be built: its commands run with a network.
func (j *job) mayBuild(root string) bool {
	return slices.Equal(j.o.Setup, []string{cli.SetupAuto}) || len(setups(j.d.World).Agreement(root)) > 0
}

// ownDockerfile uses the Dockerfile that the user has named. Its build context is the repository if it is in there,
// otherwise its own folder.
func (j *job) ownDockerfile(ctx context.Context) error {
	file, err := filepath.Abs(j.o.dockerfile)
	if err == nil {
		file, err = filepath.EvalSymlinks(file)
	}
	if err != nil {
		return fmt.Errorf("--dockerfile: %w", err)
	}
	root, err := repo.Root(ctx, j.target)
	if err != nil {
		return err
	}
	below, err := filepath.Rel(root, file)
	if err != nil || !filepath.IsLocal(below) {
		j.task.Dockerfile, j.task.Recipe = filepath.Dir(file), env.Recipe{File: filepath.Base(file)}
		return nil
	}
	j.container = &devcontainer.Config{File: below, Folder: ".", Recipe: env.Recipe{File: filepath.ToSlash(below)}}
	return nil
}

// placeBuild has an image built from the snapshot, which holds neither secrets nor what is ignored otherwise.
func (j *job) placeBuild() {
	if j.container == nil || j.container.Folder == "" {
		return
	}
	j.task.Dockerfile = filepath.Join(j.snapshot.Dir, filepath.FromSlash(j.container.Folder))
	j.task.Recipe = j.container.Recipe
	for _, name := range j.snapshot.Aside {
		below, err := filepath.Rel(filepath.FromSlash(j.container.Folder), filepath.FromSlash(name))
		if err == nil && filepath.IsLocal(below) {
			j.task.Recipe.Without = append(j.task.Recipe.Without, filepath.ToSlash(below))
		}
	}
}

// containerSteps returns the set-up commands of the devcontainer.json.
func (j *job) containerSteps() []project.Step {
	if j.container == nil {
		return nil
	}
	var steps []project.Step
	for _, line := range j.container.Setup {
		steps = append(steps, project.Step{Command: line, Lock: j.container.File, Missing: "the container's set-up"})
	}
	return steps
}

// remark is a line about how the work begins.
type remark string

// plain is the remark as one line that cannot steer a terminal.
func (r remark) plain() string { return cli.Plain(strings.ReplaceAll(string(r), "\n", " ")) }
