//go:build linux

package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/guest"
	"deepswe/env/repo"
)

// Host starts sandboxes without isolation. Commands run as the user who runs deepswe, with a separate home and
// without the host's environment, on a copy of the repository or, in a mount namespace, on an overlay over it.
// Nothing keeps them from the rest of the machine.
type Host struct{ base }

var _ env.Overlayer = (*Host)(nil)

// NewHost returns the provider, or an error if a guest cannot run on this machine.
func NewHost(o Options) (*Host, error) {
	b, err := newBase("host", o)
	if err != nil {
		return nil, err
	}
	return &Host{base: *b}, nil
}

// Capabilities reports the host's programs, and the limits that this process can enforce.
func (h *Host) Capabilities() env.Capabilities {
	c := h.groups.capabilities()
	c.HostToolchain, c.DiskLimit = true, true
	return c
}

// CanOverlay implements env.Overlayer.
func (h *Host) CanOverlay(ctx context.Context, root string) error { return h.overlays().try(ctx, root) }

// Start copies the Spec's directory, or mounts an overlay for its Checkout, and starts a guest there. It does not
// enforce Spec.Network false.
func (h *Host) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	return repo.StartAt(ctx, s, func(s env.Spec) (env.Sandbox, error) { return h.start(ctx, s, "") })
}

// start starts a sandbox. What commands write is kept in the directory keep, unless that is empty.
func (h *Host) start(ctx context.Context, s env.Spec, keep string) (env.Sandbox, error) {
	if len(s.Shown) > 0 {
		return nil, fmt.Errorf("start a host sandbox that shows %s: %w: use --env bwrap", s.Shown[0].Path, env.ErrUnsupported)
	}
	copied := &tree{uid: -1, gid: -1}
	return h.beginSandbox(ctx, s, copied, func(sc *scratch) (launch, error) {
		limits := s.Limits.WithDefaults(h.limits)
		home, temp := filepath.Join(sc.dir, "home"), filepath.Join(sc.dir, "tmp")
		if err := errors.Join(os.Mkdir(home, 0o700), os.Mkdir(temp, 0o700), h.limit(sc, limits)); err != nil {
			return launch{}, err
		}
		own := []string{"HOME=" + home, "TMPDIR=" + temp}
		if isDir(h.toolchain.goCache) {
			own = append(own, "GOCACHE="+h.toolchain.goCache)
		}
		dir := sc.repo(s)
		if s.Checkout != nil {
			dir = s.Checkout.Root
		}
		bent, err := h.toolchain.bend(s.Source, dir)
		if err == nil && s.Checkout != nil {
			bent, err = h.toolchain.settings(dir)
		}
		if err != nil {
			return launch{}, err
		}
		args := []string{guest.Arg, "--dir", dir, "--build", h.build, "--disk-dir", sc.dir}
		args = append(args, limits.DiskArguments()...)
		if counter := sc.group.oomFile(); counter != "" {
			args = append(args, "--oom-file", counter)
		}
		started := launch{
			path: h.executable, args: args,
			env: guest.Overlay(h.toolchain.environment(s.Network || keep != ""), own, bent, s.Env),
		}
		if s.Checkout == nil {
			return started, nil
		}
		l := &layout{overlays: h.overlays(), tree: copied, dir: sc.dir, keep: keep, over: kept(s)}
		defer l.close()
		if err := errors.Join(l.checkout(ctx, s.Checkout, dir, sc.dir), h.userCaches(l, dir, home)); err != nil {
			return launch{}, fmt.Errorf("lay out the repository: %w", err)
		}
		return l.before(started)
	})
}

// userCaches puts overlays over the user's caches, so that commands do not change the originals, and links in the
// commands' home to these overlays. During and after a set-up, that home is an overlay as well.
func (h *Host) userCaches(l *layout, repository, home string) error {
	links := home
	if l.whole() {
		if err := l.cover("home", nil, home, nil); err != nil {
			return err
		}
		links = l.upper("home")
	}
	all := h.toolchain.found(false)
	for name, dir := range map[string]string{
		".cache/go-build": h.toolchain.goCache, goModules: h.toolchain.goModCache, cargoHome: h.toolchain.vars["CARGO_HOME"],
	} {
		all = append(all, found{name: name, dir: dir})
	}
	for _, f := range all {
		if !isDir(f.dir) || within(f.dir, repository) || within(repository, f.dir) ||
			within(l.dir, f.dir) || !opens(f.dir, os.O_RDONLY) {
			continue
		}
		if _, err := l.cache(f, f.dir); err != nil {
			return err
		}
		if below, err := filepath.Rel(h.toolchain.home, f.dir); err == nil && filepath.IsLocal(below) {
			link := filepath.Join(links, below)
			err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.RemoveAll(link), os.Symlink(f.dir, link))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// base is the common part of both providers.
type base struct {
	name       string
	executable string
	build      string
	parent     string
	limits     env.Limits // replace zero limits of a spec
	log        *slog.Logger
	owner      owner
	forker     *forker
	toolchain  *toolchain
	groups     cgroups
}

func newBase(name string, o Options) (_ *base, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s sandboxes: %w", name, err)
		}
	}()
	b := &base{name: name, limits: o.Limits, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler))}
	if b.parent, err = filepath.Abs(cmp.Or(o.Scratch, os.TempDir())); err != nil {
		return nil, err
	}
	if b.executable, err = os.Executable(); err == nil {
		b.executable, err = filepath.EvalSymlinks(b.executable)
	}
	if err != nil {
		return nil, fmt.Errorf("find this program's own file: %w", err)
	}
	if b.owner, err = newOwner(name); err != nil {
		return nil, err
	}
	info, err := os.Stat(b.executable)
	if err != nil {
		return nil, err
	}
	b.build = fmt.Sprintf("%d-%d", info.Size(), info.ModTime().UnixNano())
	if b.toolchain, err = newToolchain(os.Environ()); err != nil {
		return nil, err
	}
	b.groups = detectGroups(b.owner.prefix() + rand.Text()[:8])
	b.forker = newForker()
	return b, nil
}

// Name returns the value of --env.
func (b *base) Name() string { return b.name }

// Prefetch implements env.Provider. There is nothing to prefetch.
func (b *base) Prefetch(context.Context, env.Spec) error { return nil }

// Close releases the provider. All sandboxes must be closed first.
func (b *base) Close() error {
	b.forker.close()
	return nil
}

func (b *base) overlays() *overlays {
	return &overlays{executable: b.executable, parent: b.parent, root: os.Geteuid() == 0}
}

// limit creates a sandbox's control group, if possible.
func (b *base) limit(sc *scratch, l env.Limits) (err error) {
	if len(b.groups.parents) == 0 {
		return nil
	}
	l.Processes += guest.MostThreads
	if sc.group, err = b.groups.make(filepath.Base(sc.dir), l); err != nil {
		return err
	}
	sc.owner.Groups = sc.group.paths()
	return sc.owner.save(sc.dir)
}

// beginSandbox creates a scratch directory, starts a guest with the launch that prepare returns, and runs the Spec's
// Prepare commands.
func (b *base) beginSandbox(
	ctx context.Context, s env.Spec, copy *tree, prepare func(*scratch) (launch, error),
) (_ env.Sandbox, err error) {
	if image := cmp.Or(s.Image, s.Dockerfile); image != "" {
		return nil, fmt.Errorf("start a %s sandbox: image %s: %w: use --env docker", b.name, image, env.ErrUnsupported)
	}
	if s.Dir != "" && !filepath.IsAbs(s.Dir) {
		return nil, fmt.Errorf("start a %s sandbox: directory %q is not absolute: %w", b.name, s.Dir, env.ErrUnsupported)
	}
	fail := func(err error) error {
		if ctx.Err() != nil {
			return fmt.Errorf("start a %s sandbox: %w", b.name, ctx.Err())
		}
		return fmt.Errorf("start a %s sandbox: %w: %w", b.name, env.ErrInfrastructure, err)
	}
	if err := b.room(); err != nil {
		return nil, fail(err)
	}
	sc, err := newScratch(ctx, b.parent, b.owner, s, copy)
	if err != nil {
		return nil, fail(err)
	}
	var guestProcess *running
	remove := func(context.Context) error {
		var failed error
		if guestProcess != nil {
			if err := guestProcess.stop(); err != nil || guestProcess.err != nil {
				// A guest that was killed has not ended its processes.
				b.log.Warn("a guest did not end by itself", "provider", b.name, "run", s.Run, "rollout", s.Rollout,
					"error", errors.Join(err, guestProcess.err), "said", guestProcess.errOut.String())
				failed = errors.Join(err, sweep(sc.dir))
			}
		}
		return errors.Join(failed, sc.group.remove(), sc.remove())
	}
	l, err := prepare(sc)
	if err != nil {
		return nil, fail(errors.Join(err, remove(ctx)))
	}
	l.build, l.group = b.build, sc.group
	if guestProcess, err = b.forker.start(ctx, l); err != nil {
		return nil, fail(errors.Join(err, remove(ctx)))
	}
	sandbox := env.NewGuestSandbox(guestProcess.client, remove)
	if p, err := disk.FindProcess(guestProcess.cmd.Process.Pid); err == nil {
		sc.owner.Guest = &p
	}
	if err := sc.owner.save(sc.dir); err != nil {
		return nil, fail(errors.Join(err, sandbox.Close(ctx)))
	}
	// The command user owns the copy.
	if err := env.RunLines(ctx, s.Prepare, sandbox.Run); err != nil {
		closed := sandbox.Close(ctx)
		if errors.Is(err, guest.ErrClosed) || ctx.Err() != nil || closed != nil {
			return nil, fail(errors.Join(err, closed))
		}
		return nil, fmt.Errorf("start a %s sandbox: %w", b.name, err)
	}
	return sandbox, nil
}

// room returns an error if the machine's disk has no room for a sandbox.
func (b *base) room() error {
	space, err := disk.SpaceOf(b.parent)
	if err == nil {
		err = space.Check(b.parent)
	}
	if err != nil {
		return fmt.Errorf("%w: to fix: free some (deepswe clean removes what dead runs left), or set TMPDIR to a directory "+
			"on another disk", err)
	}
	return nil
}
