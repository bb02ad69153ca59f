//go:build linux

package local

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/repo"
)

// Bwrap starts sandboxes in namespaces: a copy of the repository, a temporary home, the host's programs read-only,
// and nothing else of the host. It needs neither an image nor a daemon.
//
// If deepswe runs as root, the guest keeps only the privileges to change users and to signal, and each sandbox's
// commands run as a separate user that does not exist elsewhere. Otherwise, everything is in a user namespace and
// commands run as the user who runs deepswe; the guest is then protected by being PID 1, by being untraceable, and
// by a seccomp filter.
type Bwrap struct {
	base
	program string
	root    bool
	mounts  []string // bwrap arguments common to all sandboxes
	shown   []string // the host directories that mounts shows
	seen    []string // directories of PATH that exist in sandboxes
	etc     string   // the scratch directory of the /etc that all sandboxes share
	etcArgs []string // bwrap arguments that mount it
}

var _ env.Overlayer = (*Bwrap)(nil)

// NewBwrap returns the provider after trying to start a sandbox. An error says how to fix the problem.
func NewBwrap(o Options) (*Bwrap, error) {
	program, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, fmt.Errorf("bwrap sandboxes: bubblewrap is not installed (%w): to fix: "+
			"apt-get install bubblewrap (or dnf, pacman, apk)", err)
	}
	common, err := newBase("bwrap", o)
	if err != nil {
		return nil, err
	}
	b := &Bwrap{base: *common, program: program, root: os.Geteuid() == 0}
	b.mounts, b.shown, b.seen = b.hostMounts()
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	if err := b.shareEtc(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("bwrap sandboxes: make an /etc: %w", err), b.Close())
	}
	if err := b.try(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// shareEtc creates the /etc of all sandboxes in a scratch directory, which is reaped if its owner dies.
func (b *Bwrap) shareEtc(ctx context.Context) error {
	dir, err := os.MkdirTemp(b.parent, b.owner.prefix()+"etc-*")
	if err != nil {
		return err
	}
	b.etc = dir
	if err := b.owner.save(dir); err != nil {
		return err
	}
	b.etcArgs, err = makeEtc(ctx, filepath.Join(dir, "etc"))
	return err
}

// Close releases the provider. All sandboxes must be closed first.
func (b *Bwrap) Close() error {
	err := b.base.Close()
	if b.etc != "" {
		err = errors.Join(err, disk.RemoveScratch(b.etc))
	}
	return err
}

// try starts a sandbox and removes it.
func (b *Bwrap) try(ctx context.Context) error {
	sandbox, err := b.Start(ctx, env.Spec{})
	if err == nil {
		err = errors.Join(sandbox.Ping(ctx), sandbox.Close(ctx))
	}
	if err != nil {
		return fmt.Errorf("bwrap sandboxes do not work here: %w%s", err, advice(err.Error()))
	}
	return nil
}

// advice returns how to fix the problem that bwrap's output describes, or "".
func advice(said string) string {
	for _, known := range []struct{ sign, what string }{
		{"No permissions to create", "user namespaces are disabled: to fix: sysctl kernel.unprivileged_userns_clone=1, " +
			"and user.max_user_namespaces above 0; inside a container: use --env docker, " +
			"or start it with --security-opt seccomp=unconfined"},
		{"Creating new namespace failed", "namespaces are not allowed here: to fix: sysctl user.max_user_namespaces=15000; " +
			"inside a container: use --env docker, or start it with --privileged"},
		{"setting up uid map", "AppArmor forbids user namespaces: to fix: " +
			"sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give bwrap a profile that allows them"},
		{"RTM_NEWADDR", "the namespace's network cannot be set up: to fix: " +
			"sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
		{"mount proc", "/proc cannot be mounted: inside a container, " +
			"start it with --security-opt systempaths=unconfined, or use --env docker"},
		{"Unknown option", "this bubblewrap is too old: 0.8 or later is needed"},
	} {
		if strings.Contains(said, known.sign) {
			return "\n" + known.what
		}
	}
	return ""
}

// Capabilities reports what is enforced on this machine.
func (b *Bwrap) Capabilities() env.Capabilities {
	c := b.groups.capabilities()
	c.Isolated, c.NetworkOff, c.HostToolchain, c.DiskLimit, c.SeparateUser = true, true, true, true, b.root
	c.ProcessLimit = c.ProcessLimit || b.countsProcesses()
	return c
}

// countsProcesses reports whether a limit on a user's processes applies to one sandbox only: either each sandbox
// has its own user, or the kernel counts per user namespace, as it does since Linux 5.14.
func (b *Bwrap) countsProcesses() bool {
	if b.root {
		return true
	}
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	var major, minor int
	_, _ = fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return major > 5 || major == 5 && minor >= 14
}

// Start copies the Spec's directory, or lays out its Checkout, and starts a guest in namespaces around that.
func (b *Bwrap) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	return repo.StartAt(ctx, s, func(s env.Spec) (env.Sandbox, error) { return b.start(ctx, s, "") })
}

// start starts a sandbox. What commands write is kept in the directory keep, unless that is empty.
func (b *Bwrap) start(ctx context.Context, s env.Spec, keep string) (env.Sandbox, error) {
	if err := b.free(s); err != nil {
		return nil, fmt.Errorf("start a bwrap sandbox: %w", err)
	}
	limits := s.Limits.WithDefaults(b.limits)
	uid, gid, copied := os.Getuid(), os.Getgid(), &tree{uid: -1, gid: -1}
	if b.root {
		uid = freshUser()
		gid = uid
		copied = &tree{uid: uid, gid: gid}
	}
	return b.beginSandbox(ctx, s, copied, func(sc *scratch) (launch, error) {
		if err := b.limit(sc, limits); err != nil {
			return launch{}, err
		}
		to := &layout{overlays: b.overlays(), tree: copied, dir: sc.dir, keep: keep, over: kept(s)}
		defer to.close()
		if s.Checkout != nil {
			if err := to.checkout(ctx, s.Checkout, sc.repo(s), filepath.Dir(guestPath)); err != nil {
				return launch{}, fmt.Errorf("lay out the repository: %w", err)
			}
		}
		caches, err := b.userCaches(to, s)
		if err != nil {
			return launch{}, fmt.Errorf("lay out the user's caches: %w", err)
		}
		options, command, err := b.arguments(sc, s, limits, uid, gid, caches, to)
		if err != nil {
			return launch{}, err
		}
		// Command lines are visible to all users of the machine, but this file is private.
		file, err := unnamedFile(sc.dir, []byte(strings.Join(options, "\x00")+"\x00"))
		if err != nil {
			return launch{}, fmt.Errorf("write bwrap's arguments: %w", err)
		}
		args := append([]string{"--args", "3", "--"}, command...)
		started := launch{path: b.program, args: args, env: []string{}, files: []*os.File{file}}
		if s.Checkout == nil {
			return started, nil
		}
		return to.before(started)
	})
}

// CanOverlay implements env.Overlayer.
func (b *Bwrap) CanOverlay(ctx context.Context, root string) error {
	if err := b.free(env.Spec{Checkout: &env.Checkout{Root: root}}); err != nil {
		return err
	}
	return b.overlays().try(ctx, root)
}

// free returns an error if something else occupies the repository's path in the sandbox. For a checkout, which
// keeps its path on the host, a directory of programs above or below it is not a conflict.
func (b *Bwrap) free(s env.Spec) error {
	dir := inside(s)
	taken := []string{"/etc", "/proc", "/dev", "/sys", filepath.Dir(guestPath), homePath}
	if s.Checkout == nil {
		taken = append(taken, b.shown...)
	} else {
		for _, system := range append(system(), "/tmp", "/var/tmp") {
			if within(system, dir) {
				taken = append(taken, system)
			}
		}
	}
	for _, shown := range taken {
		if within(dir, shown) || within(shown, dir) {
			return fmt.Errorf("the repository cannot be at %s, because %s belongs to the host: %w: "+
				"choose another directory", dir, shown, env.ErrUnsupported)
		}
	}
	return nil
}

// freshUser returns a random user ID from a range that systems do not use.
func freshUser() int {
	const first, bits = 0x70000000, 27
	var random [4]byte
	rand.Read(random[:]) // never fails
	return first + int(binary.LittleEndian.Uint32(random[:])&(1<<bits-1))
}

// unnamedFile returns a file for a process to inherit, which no other process can open.
func unnamedFile(dir string, content []byte) (*os.File, error) {
	f, err := os.CreateTemp(dir, "inherited-*")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(content)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
