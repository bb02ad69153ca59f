package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"deepswe/env"
	"deepswe/env/fleet"
	"deepswe/env/repo"
)

// Start returns a warm sandbox, or starts one on the daemon with the most room. If a daemon fails, it is marked
// down and the next one is tried. If all daemons went down, Start waits for one to come back.
func (p *Provider) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	s, err := p.accept(s)
	if err != nil {
		return nil, err
	}
	return repo.StartAt(ctx, s, func(s env.Spec) (env.Sandbox, error) { return p.start(ctx, s) })
}

// start is Start for a spec that was accepted, and has no commit.
func (p *Provider) start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	began := time.Now()
	sandbox, err := p.fleet.Start(ctx, s)
	for ctx.Err() == nil && errors.Is(err, env.ErrInfrastructure) && p.comesBack(ctx, began) {
		sandbox, err = p.fleet.Start(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	if err := sandbox.d.copyAndPrepare(ctx, sandbox); err != nil {
		return nil, errors.Join(err, sandbox.Close(ctx))
	}
	return sandbox, nil
}

// Prefetch prepares for a Start of the spec: it pulls the image, runs the spec's Prepare commands on it and, if
// fewer than Options.Warm are waiting, starts a sandbox. Close removes unused sandboxes.
func (p *Provider) Prefetch(ctx context.Context, s env.Spec) error {
	s, err := p.accept(s)
	if err != nil {
		return err
	}
	return p.fleet.Prefetch(ctx, s)
}

// Load returns a daemon's sandboxes per CPU, reduced if the daemon has the image, because a pull costs more than a
// start. The watch of a daemon that is down notices when it is back.
func (d *daemon) Load(s env.Spec, coming int) float64 {
	facts, up := d.known()
	if !up {
		return math.Inf(+1)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	load := float64(len(d.live)+coming) / float64(max(facts.NCPU, 1))
	if d.images.has(s.Image) {
		load -= 0.5
	}
	return load
}

// Launch starts a container.
func (d *daemon) Launch(ctx context.Context, s env.Spec, _ bool) (*Sandbox, error) {
	if err := d.usable(ctx); err != nil {
		return nil, err
	}
	sandbox, err := d.start(ctx, s)
	if ctx.Err() == nil && errors.Is(err, env.ErrInfrastructure) {
		d.recheck()
	}
	return sandbox, err
}

// Fetch prepares for a Launch.
func (d *daemon) Fetch(ctx context.Context, s env.Spec) error {
	if err := d.usable(ctx); err != nil {
		return err
	}
	b, err := d.plan(ctx, s)
	if err == nil {
		d.images.own.unpin(b.image)
	}
	return err
}

// comesBack waits while all daemons are down, if one of them worked before, and reports whether one works again.
func (p *Provider) comesBack(ctx context.Context, since time.Time) bool {
	for waited := false; ; waited = true {
		worked := false
		for _, d := range p.daemons {
			if _, up := d.known(); up {
				return waited
			}
			worked = worked || d.worked()
		}
		if !worked || p.life.Err() != nil || time.Since(since) >= p.waits.back || env.Sleep(ctx, p.waits.watch) != nil {
			return false
		}
	}
}

// start starts a container for a spec. copyAndPrepare copies and prepares the repository afterwards.
func (d *daemon) start(ctx context.Context, s env.Spec) (*Sandbox, error) {
	ctx, cancel := d.whileUp(ctx)
	defer cancel()
	for again := false; ; again = true {
		b, err := d.plan(ctx, s)
		if err != nil {
			return nil, err
		}
		sandbox, err := d.boot(ctx, b)
		if err == nil && s.CopyIn == "" {
			if err = sandbox.makeDir(ctx); err != nil {
				err = errors.Join(err, sandbox.Close(ctx))
			}
		}
		d.images.own.unpin(b.image)
		if err != nil && vanished(err) && !again {
			// The image, or the guest's volume, was removed meanwhile.
			d.images.drop(b.image.id)
			d.installer.drop(b.installation)
			continue
		}
		if err != nil {
			return nil, d.infrastructure(ctx, "start sandbox", err)
		}
		return sandbox, nil
	}
}

// vanished reports whether a start failed because the image or the volume had been removed.
func vanished(err error) bool {
	text := err.Error()
	return errdefs.IsNotFound(err) || strings.Contains(text, guestPath) && strings.Contains(text, "no such file")
}

// plan resolves everything that a container is created from. It pins the image.
func (d *daemon) plan(ctx context.Context, s env.Spec) (b launch, err error) {
	ctx, cancel := d.whileUp(ctx)
	defer cancel()
	defer func() { err = d.infrastructure(ctx, "start sandbox", err) }()
	b = launch{kind: kindSandbox, name: sandboxName(s), spec: s}
	var installErr error
	var installing sync.WaitGroup
	installing.Go(func() { b.installation, installErr = d.installer.get(ctx) })
	b.image, err = d.images.get(ctx, s.Image)
	installing.Wait()
	if err = errors.Join(err, installErr); err != nil {
		return b, err
	}
	if s.Source != "" && s.Dir == s.Source {
		// The copy must not mix with files that the image has at that path.
		has, err := d.images.contains(ctx, s.Image, s.Dir)
		if err != nil {
			return b, err
		}
		if has {
			s.Dir = usualDir
			b.spec = s
		}
	}
	if s.Installed != nil && s.Installed.Image != "" {
		if b.image, err = d.images.get(ctx, s.Installed.Image); err != nil {
			return b, err
		}
	}
	if len(s.Prepare) > 0 && s.CopyIn == "" {
		if b.image, err = d.prepare(ctx, b.image, s); err != nil {
			return b, err
		}
		b.spec.Prepare = nil // already run
	}
	if b.user, err = d.images.commandUser(ctx, b.image, s); err != nil {
		return b, err
	}
	d.images.own.pin(b.image)
	return b, nil
}

// copyAndPrepare copies the repository into a started sandbox and runs the Prepare commands that are not part of
// its image. The guest is told what was copied, so that it need not read all of it again for the first tree.
func (d *daemon) copyAndPrepare(ctx context.Context, s *Sandbox) (err error) {
	if s.spec.CopyIn == "" {
		return nil
	}
	ctx, cancel := d.whileUp(ctx)
	defer cancel()
	defer func() { err = d.infrastructure(ctx, "start sandbox", err) }()
	files, err := d.copyIn(ctx, s)
	if err != nil {
		return err
	}
	if s.spec.Dir == s.spec.Source {
		if err := s.letIn(ctx); err != nil {
			return err
		}
	}
	if err := s.PrepareCopy(ctx, s.spec); err != nil {
		return err
	}
	return s.Remember(ctx, s.spec.Dir, files)
}

// letIn allows the command user to enter the directories above the repository, one of which may be the image's /root.
func (s *Sandbox) letIn(ctx context.Context) error {
	line := "chmod o+x --"
	for dir := path.Dir(s.spec.Dir); dir != "/"; dir = path.Dir(dir) {
		line += " " + env.ShellQuote(dir)
	}
	// It fails for other users' directories. These may be the command user's own.
	_, err := s.Prepare(ctx, env.Command{Line: line, Timeout: env.PrepareTimeout})
	return err
}

// accept fills in a spec's defaults, returns an error if it asks for something unsupported, and starts the
// provider's background work.
func (p *Provider) accept(s env.Spec) (_ env.Spec, err error) {
	if s.Image == "" && s.Dockerfile != "" {
		if s.Image, err = p.built(s.Dockerfile, s.Recipe); err != nil {
			return s, err
		}
	}
	s.Dockerfile, s.Recipe = "", env.Recipe{}
	switch {
	case s.Fills() && !p.here():
		return s, fmt.Errorf("%w: containers of another machine cannot fill folders of this one: "+
			"use a daemon on this machine, or --env bwrap", env.ErrUnsupported)
	case s.Image == "":
		return s, fmt.Errorf("%w: a docker sandbox requires --image (--env bwrap does not)", env.ErrUnsupported)
	}
	if s.Dir == "" {
		s.Dir = usualDir
		if path.IsAbs(s.Source) && !systemPath(s.Source) {
			s.Dir = s.Source // unless the image has files there: see plan
		}
	}
	if s, err = s.CheckedForImage(); err != nil {
		return s, err
	}
	if p.life.Err() != nil {
		return s, fmt.Errorf("%w: the docker provider is closed", env.ErrInfrastructure)
	}
	p.beginWatch()
	return s, nil
}

// here reports whether all daemons are on this machine, as far as their addresses say.
func (p *Provider) here() bool {
	return !slices.ContainsFunc(p.daemons, func(d *daemon) bool { return !strings.HasPrefix(d.host, "unix:") })
}

// usualDir is the repository's path if neither the spec nor the image determines it.
const usualDir = "/testbed"

// systemPath reports whether an image may have programs at or below the path.
func systemPath(dir string) bool {
	for _, system := range []string{
		"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var",
		guestDir,
	} {
		if dir == "/" || dir == system || strings.HasPrefix(dir, system+"/") {
			return true
		}
	}
	return false
}

// sandboxName returns a unique name that tells users of docker ps what the container is for.
func sandboxName(s env.Spec) string {
	name := cmp.Or(s.Rollout, s.Run)
	name = invalidInName.ReplaceAllString(name[:min(len(name), 48)], "-")
	if name != "" {
		name += "-"
	}
	return "deepswe-" + name + fleet.Nonce()
}

// invalidInName matches the characters that a container's name must not contain, and dashes.
var invalidInName = regexp.MustCompile(`[^a-zA-Z0-9._]`)
