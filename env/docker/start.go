package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"deepswe/env"
	"deepswe/env/owner"
)

// Start returns a ready sandbox: one that is kept warm, or a new one on the daemon with the most room. A daemon that
// fails is taken out of use, and the next one is tried.
func (p *Provider) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	s, err := p.accept(s)
	if err != nil {
		return nil, err
	}
	sandbox, ok := p.warm.Take(ctx, s)
	if !ok {
		if sandbox, err = p.startOn(ctx, s); err != nil {
			return nil, err
		}
	}
	if err := sandbox.d.copyAndPrepare(ctx, sandbox); err != nil {
		return nil, errors.Join(err, sandbox.Close(ctx))
	}
	return sandbox, nil
}

// Prefetch prepares for a Start of the spec: it pulls the image, runs the spec's Prepare commands on it, and, while
// fewer than Options.Warm sandboxes wait, starts one. Unused sandboxes are removed by Close.
func (p *Provider) Prefetch(ctx context.Context, s env.Spec) error {
	s, err := p.accept(s)
	if err != nil {
		return err
	}
	if filled, err := p.warm.Fill(ctx, s); filled {
		return err
	}
	d, err := p.pick(ctx, s, nil)
	if d == nil {
		return err
	}
	defer d.expect(-1)
	b, err := d.plan(ctx, s)
	if err == nil {
		d.unpin(b.image)
	}
	return err
}

// startOn starts a container on the first daemon that can.
func (p *Provider) startOn(ctx context.Context, s env.Spec) (*Sandbox, error) {
	var failures []error
	tried := map[*daemon]bool{}
	for {
		d, err := p.pick(ctx, s, tried)
		if d == nil {
			return nil, errors.Join(append(failures, err)...)
		}
		sandbox, err := d.start(ctx, s)
		d.expect(-1)
		if err == nil {
			return sandbox, nil
		}
		if ctx.Err() != nil || !errors.Is(err, env.ErrInfrastructure) {
			return nil, err
		}
		d.recheck()
		failures, tried[d] = append(failures, err), true
	}
}

// pick chooses the daemon with the most room among those not tried yet, and counts a start on it. Daemons that are out
// of use are only asked again when no other is left; otherwise their watch notices when they are back.
func (p *Provider) pick(ctx context.Context, s env.Spec, tried map[*daemon]bool) (*daemon, error) {
	var best *daemon
	var least float64
	for _, d := range p.daemons {
		if load, up := d.load(s); up && !tried[d] && (best == nil || load < least) {
			best, least = d, load
		}
	}
	var failures error
	for _, d := range p.daemons {
		if best == nil && !tried[d] {
			if err := d.usable(ctx); err != nil {
				failures = errors.Join(failures, err)
			} else {
				best = d
			}
		}
	}
	if best != nil {
		best.expect(+1)
	}
	return best, failures
}

// expect changes the number of sandboxes that are being started on the daemon.
func (d *daemon) expect(change int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.coming += change
}

// load is a daemon's sandboxes per CPU. It counts as lower where the image is known already, because a pull costs more
// than a start.
func (d *daemon) load(s env.Spec) (load float64, up bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	load = float64(len(d.live)+d.coming) / float64(max(d.facts.NCPU, 1))
	if _, ok := d.images[s.Image]; ok {
		load -= 0.5
	}
	return load, d.down == nil
}

// start starts a container for a spec. What is copied in and run in it comes later, in copyAndPrepare.
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
		d.unpin(b.image)
		if err != nil && vanished(err) && !again {
			// The image, or the guest's volume, was removed in between.
			d.dropImage(b.image)
			d.dropInstallation(b.installation)
			continue
		}
		if err != nil {
			return nil, d.infrastructure(ctx, "start sandbox", err)
		}
		return sandbox, nil
	}
}

// vanished reports whether a start failed because the image or the volume was removed.
func vanished(err error) bool {
	text := err.Error()
	return errdefs.IsNotFound(err) || strings.Contains(text, guestPath) && strings.Contains(text, "no such file")
}

// plan resolves everything that a container is made of. It pins the image.
func (d *daemon) plan(ctx context.Context, s env.Spec) (b launch, err error) {
	ctx, cancel := d.whileUp(ctx)
	defer cancel()
	defer func() { err = d.infrastructure(ctx, "start sandbox", err) }()
	b = launch{kind: kindSandbox, name: sandboxName(s), spec: s}
	var installErr error
	var installing sync.WaitGroup
	installing.Go(func() { b.installation, installErr = d.install(ctx) })
	b.image, err = d.image(ctx, s.Image)
	installing.Wait()
	if err = errors.Join(err, installErr); err != nil {
		return b, err
	}
	if s.Source != "" && s.Dir == s.Source {
		// The copy must not mix with what the image has at that path.
		has, err := d.contains(ctx, s.Image, s.Dir)
		if err != nil {
			return b, err
		}
		if has {
			s.Dir = usualDir
			b.spec = s
		}
	}
	if len(s.Prepare) > 0 && s.CopyIn == "" {
		if b.image, err = d.prepare(ctx, b.image, s); err != nil {
			return b, err
		}
		b.spec.Prepare = nil // done
	}
	if b.user, err = d.commandUser(ctx, b.image, s); err != nil {
		return b, err
	}
	d.pin(b.image)
	return b, nil
}

// copyAndPrepare copies the repository into a started sandbox and prepares it there, where the spec says so.
func (d *daemon) copyAndPrepare(ctx context.Context, s *Sandbox) (err error) {
	if s.spec.CopyIn == "" {
		return nil
	}
	ctx, cancel := d.whileUp(ctx)
	defer cancel()
	defer func() { err = d.infrastructure(ctx, "start sandbox", err) }()
	if err := d.copyIn(ctx, s); err != nil || len(s.spec.Prepare) == 0 {
		return err
	}
	if err := s.RunPrepare(ctx, s.spec.Prepare); err != nil {
		return err
	}
	// The command user must be able to change the files that the guest's user made.
	result, err := s.Prepare(ctx, env.Command{
		Line:    fmt.Sprintf(`chown -hR %d:%d -- %s`, s.user.uid, s.user.gid, env.ShellQuote(s.spec.Dir)),
		Timeout: env.PrepareTimeout,
	})
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("give %s to the command user: exit code %d: %s", s.spec.Dir, result.ExitCode, result.Stderr.Head)
	}
	return err
}

// accept fills in a spec's defaults, refuses what cannot be done, and starts the provider's background work.
func (p *Provider) accept(s env.Spec) (_ env.Spec, err error) {
	if s.Image == "" && s.Dockerfile != "" {
		if s.Image, err = p.built(s.Dockerfile); err != nil {
			return s, err
		}
	}
	s.Dockerfile = ""
	if s.Image == "" {
		return s, fmt.Errorf("%w: a docker sandbox requires --image (--env bwrap does not)", env.ErrUnsupported)
	}
	if s.Dir == "" {
		s.Dir = usualDir
		if path.IsAbs(s.Source) && !systemPath(s.Source) {
			s.Dir = s.Source // where the image has nothing there: see plan
		}
	}
	if s, err = s.CheckedForImage(); err != nil {
		return s, err
	}
	if p.life.Err() != nil {
		return s, fmt.Errorf("%w: the docker provider is closed", env.ErrInfrastructure)
	}
	p.begin()
	return s, nil
}

// usualDir is where the repository is when neither the spec nor the image says so.
const usualDir = "/testbed"

// systemPath reports whether programs of an image may be at the path or below it.
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

// sandboxName is what docker ps shows.
func sandboxName(s env.Spec) string {
	name := cmp.Or(s.Rollout, s.Run)
	name = invalidInName.ReplaceAllString(name[:min(len(name), 48)], "-")
	if name != "" {
		name += "-"
	}
	return "deepswe-" + name + owner.Nonce()
}

// invalidInName are the characters that a container's name cannot have, and the dash.
var invalidInName = regexp.MustCompile(`[^a-zA-Z0-9._]`)
