package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/setup"
)

var _ env.Installer = (*Provider)(nil)

// labelInstalled is the label of a set-up's image with its env.Installed as JSON.
const labelInstalled = "deepswe.installed"

// Install implements env.Installer. It copies the repository into a container of the Spec's image, runs the set-up
// there, and keeps what both gain from it as an image, once for each combination of image, commands and manifests.
func (p *Provider) Install(ctx context.Context, s env.Spec, how env.Setup) (env.Installed, error) {
	s.Installed, s.Network = nil, false
	s, err := p.accept(s)
	if err != nil {
		return env.Installed{}, err
	}
	if s.CopyIn == "" || len(p.daemons) > 1 {
		return env.Installed{}, fmt.Errorf("set up: %w: it needs a repository on this machine, and one --docker-host at most",
			env.ErrUnsupported)
	}
	var done env.Installed
	err = p.fleet.Try(ctx, s, func(d *daemon) (err error) {
		if err := d.usable(ctx); err != nil {
			return err
		}
		ctx, cancel := d.whileUp(ctx)
		defer cancel()
		done, err = d.setUp(ctx, s, how)
		if _, failed := errors.AsType[*env.SetupError](err); failed {
			return err
		}
		return d.infrastructure(ctx, "set up", err)
	})
	return done, err
}

func (d *daemon) setUp(ctx context.Context, s env.Spec, how env.Setup) (done env.Installed, err error) {
	b, err := d.plan(ctx, s)
	if err != nil {
		return done, err
	}
	defer d.images.own.unpin(b.image)
	key, err := setup.Key(s.Source, "docker "+b.image.id+" "+b.spec.Dir, how.Commands, false)
	if err != nil {
		return done, err
	}
	ref := preparedImages + ":" + key
	b.kind, b.name = kindPrepare, "deepswe-prepare-"+key
	find := func(ctx context.Context) (err error) {
		done, err = d.findSetup(ctx, ref)
		return err
	}
	err = exclusively(ctx, d, b.name, find,
		func(ctx context.Context) (*Sandbox, error) { return d.boot(ctx, b) },
		func(ctx context.Context, sandbox *Sandbox) (err error) {
			done, err = d.makeSetup(ctx, sandbox, how, ref, key)
			return err
		},
		func(ctx context.Context, sandbox *Sandbox) error { return sandbox.Close(ctx) })
	return done, err
}

// findSetup returns the result of an earlier set-up.
func (d *daemon) findSetup(ctx context.Context, ref string) (env.Installed, error) {
	found, err := d.cli.ImageInspect(ctx, ref)
	if err != nil {
		return env.Installed{}, err
	}
	var done env.Installed
	if found.Config != nil {
		_ = json.Unmarshal([]byte(found.Config.Labels[labelInstalled]), &done) // a damaged label counts as an empty one
	}
	done.Image, done.Reused = ref, true
	return done, nil
}

// marker is older than everything that a set-up makes.
const marker = "/tmp/.deepswe-setup"

// makeSetup runs the commands, removes the repository itself from the container, and commits what remains.
func (d *daemon) makeSetup(
	ctx context.Context, sandbox *Sandbox, how env.Setup, ref, key string,
) (done env.Installed, err error) {
	if err := d.copyAndPrepare(ctx, sandbox); err != nil {
		return done, err
	}
	if _, err := sandbox.Write(ctx, marker, nil, env.WriteOptions{}); err != nil {
		return done, err
	}
	if err := env.Sleep(ctx, 10*time.Millisecond); err != nil { // the clock of file times is coarse
		return done, err
	}
	if how.Env, err = setup.Trust(ctx, sandbox); err != nil {
		return done, err
	}
	if err := setup.Run(ctx, sandbox, how, false); err != nil {
		return done, err
	}
	if done.Added, err = sandbox.added(ctx, how.Aside); err != nil {
		return done, err
	}
	if done.Replaced, err = sandbox.replaced(ctx, how.Aside); err != nil {
		return done, err
	}
	if err := sandbox.takeOut(ctx, done.Replaced); err != nil {
		return done, err
	}
	label, err := json.Marshal(done)
	if err != nil {
		return done, err
	}
	_, err = d.commit(ctx, sandbox, ref, "set up", "keep what the set-up has installed",
		map[string]string{labelPrepared: key, labelInstalled: string(label)})
	if err == nil {
		done.Image = ref
	}
	return done, err
}

// added returns the paths in the repository that were not copied there. A new directory counts as one path.
func (s *Sandbox) added(ctx context.Context, aside []string) ([]string, error) {
	var names []string
	var look func(dir string) error
	look = func(dir string) error {
		listing, err := s.List(ctx, path.Join(s.spec.Dir, dir), env.ListOptions{Hidden: true})
		if err != nil {
			return err
		}
		for _, e := range listing.Entries {
			name := path.Join(dir, path.Base(e.Path))
			info, err := os.Lstat(filepath.Join(s.spec.CopyIn, filepath.FromSlash(name)))
			switch {
			case name == ".git" || slices.Contains(aside, name):
			case errors.Is(err, fs.ErrNotExist), slices.Contains(s.spec.Without, name):
				names = append(names, name)
			case err != nil:
				return err
			case info.IsDir() && e.Kind == env.KindDir:
				if err := look(name); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err := look("")
	return names, err
}

// replaced returns those of the ignored paths that the set-up has changed.
func (s *Sandbox) replaced(ctx context.Context, aside []string) ([]string, error) {
	var names []string
	for _, name := range aside {
		r, err := s.Run(ctx, env.Command{
			Line:    "find " + env.ShellQuote(path.Join(s.spec.Dir, name)) + " -newer " + marker + " | head -n 1",
			Timeout: env.PrepareTimeout,
		})
		if err != nil {
			return nil, err
		}
		if r.Stdout.Size > 0 {
			names = append(names, name)
		}
	}
	return names, nil
}

// takeOut removes from the container what was copied in, except for the paths that the set-up has replaced.
func (s *Sandbox) takeOut(ctx context.Context, keep []string) error {
	const list = "/tmp/.deepswe-copied"
	left := map[string]bool{".git": true} // removed as a whole
	for _, name := range slices.Concat(keep, s.spec.Without) {
		left[name] = true
	}
	var names strings.Builder
	err := filepath.WalkDir(s.spec.CopyIn, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(s.spec.CopyIn, file)
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case left[name] && d.IsDir():
			return fs.SkipDir
		case left[name] || d.IsDir():
			return nil
		}
		names.WriteString(name + "\x00")
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := s.Write(ctx, list, []byte(names.String()), env.WriteOptions{}); err != nil {
		return err
	}
	r, err := s.Run(ctx, env.Command{
		Line: "xargs -0 rm -f <" + list + " && rm -rf .git " + list + " " + marker + " " + setup.Trusted +
			" && { find . -depth -type d -exec rmdir {} + 2>/dev/null; :; }",
		Timeout: env.PrepareTimeout,
	})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("take the repository out of the image: exit code %d: %s", r.ExitCode, r.Stderr.Head)
	}
	return err
}
