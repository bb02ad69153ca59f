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
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/guest"
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
		return nil, fmt.Errorf("bwrap sandboxes: bubblewrap is not installed: to fix: "+
			"apt-get install bubblewrap (or dnf, pacman, apk): %w", err)
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

// start keeps what commands write, where keep is a directory.
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
		to := b.layout(sc, uid, gid)
		to.keep, to.over = keep, kept(s)
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
		file, err := writeArguments(sc.dir, options)
		if err != nil {
			return launch{}, err
		}
		args := append([]string{"--args", "3", "--"}, command...)
		started := launch{path: b.program, args: args, env: []string{}, files: []*os.File{file}}
		if s.Checkout == nil {
			return started, nil
		}
		return to.before(started)
	})
}

// layout prepares the mounts of a sandbox whose commands run as the given user.
func (b *Bwrap) layout(sc *scratch, uid, gid int) *layout {
	l := &layout{overlays: b.overlays(), dir: sc.dir, uid: -1, gid: -1}
	if b.root {
		l.uid, l.gid = uid, gid
	}
	return l
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

// writeArguments writes arguments to a private file in the format that bwrap reads.
func writeArguments(dir string, args []string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "args-*")
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(strings.Join(args, "\x00") + "\x00")
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		f.Close()
		return nil, fmt.Errorf("write bwrap's arguments: %w", err)
	}
	return f, nil
}

// arguments returns bwrap's options for one sandbox, and the command that it executes.
func (b *Bwrap) arguments(
	sc *scratch, s env.Spec, l env.Limits, uid, gid int, caches []string, to *layout,
) (options, command []string, err error) {
	dir := inside(s)
	args := []string{
		"--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "deepswe",
		"--as-pid-1", "--die-with-parent", "--new-session", "--clearenv",
	}
	if !s.Network {
		args = append(args, "--unshare-net")
	}
	if b.root {
		args = append(args, "--cap-drop", "ALL")
		for _, c := range []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SETPCAP"} {
			args = append(args, "--cap-add", c)
		}
	} else {
		args = append(args, "--unshare-user", "--uid", strconv.Itoa(uid), "--gid", strconv.Itoa(gid))
	}
	own := filepath.Join(sc.dir, "etc")
	if err := writeOwnEtc(own, uid, gid, s.Network); err != nil {
		return nil, nil, fmt.Errorf("write a sandbox's /etc: %w", err)
	}
	// Files in memory count towards the sandbox's limit and killing processes does not free them, so at least half
	// of the limit must remain for programs.
	shared := min(l.Memory/8, 256<<20)
	args = append(args, "--perms", "1777", "--size", strconv.FormatInt(l.Memory/2-shared, 10), "--tmpfs", "/tmp")
	if args = append(args, "--dir", "/var"); within(dir, "/var/tmp") {
		args = append(args, "--perms", "1777", "--dir", "/var/tmp")
	} else {
		args = append(args, "--symlink", "../tmp", "/var/tmp")
	}
	args = append(append(args, b.mounts...), caches...)
	args = append(args, b.etcArgs...)
	args = append(append(args, parents(ownEtc)...), "--ro-bind", own, ownEtc)
	if cache := b.toolchain.goCache; cache != "" && !s.Network && to.keep == "" {
		// The host's compiled packages, but not for a sandbox that could send them over the network.
		args = append(append(args, parents(cache)...), "--ro-bind-try", cache, cache)
	}
	args = append(args, b.replaced(s)...)
	args = append(args,
		"--proc", "/proc", "--dev", "/dev",
		"--perms", "1777", "--size", strconv.FormatInt(shared, 10), "--tmpfs", "/dev/shm", "--remount-ro", "/dev")
	args = append(append(args, parents(dir)...), "--bind", sc.repo(s), dir)
	args = append(args, b.around(sc, s)...)
	for _, f := range s.Shown {
		if f.Host == "" {
			args = append(args, parents(f.Path)...)
			args = append(args, "--perms", "1777", "--size", strconv.FormatInt(shared, 10), "--tmpfs", f.Path)
			if !f.Writable {
				args = append(args, "--remount-ro", f.Path)
			}
			continue
		}
		bind := "--ro-bind"
		if f.Writable {
			bind = "--bind"
		}
		args = append(append(args, parents(f.Path)...), bind, f.Host, f.Path)
		args = append(args, b.interpreter(f.Host)...)
	}
	args = append(args, "--ro-bind", b.executable, guestPath)
	guestArgs := []string{
		guest.Arg, "--dir", dir, "--home", homePath, "--build", b.build,
		"--uid", strconv.Itoa(uid), "--gid", strconv.Itoa(gid),
	}
	if counter := sc.group.oomFile(); counter != "" {
		args = append(args, "--ro-bind", counter, oomPath)
		guestArgs = append(guestArgs, "--oom-file", oomPath)
	} else {
		guestArgs = append(guestArgs, "--rlimit-memory", strconv.FormatInt(l.Memory+guestMemory, 10))
	}
	if b.groups.parents["pids"] == "" && b.countsProcesses() {
		guestArgs = append(guestArgs, "--rlimit-processes", strconv.FormatInt(l.Processes+guestThreads, 10))
	}
	guestArgs = append(guestArgs, l.DiskArguments()...)
	args = append(args, "--remount-ro", "/")
	var settings []string
	if s.Checkout != nil {
		if settings, err = b.toolchain.settings(s.Checkout.Root); err != nil {
			return nil, nil, err
		}
	}
	for _, kv := range guest.Overlay(settings, b.environment(s, to)) {
		key, value, _ := strings.Cut(kv, "=")
		args = append(args, "--setenv", key, value)
	}
	return args, append([]string{guestPath}, guestArgs...), nil
}

// interpreter returns the arguments that show the Python of a virtual environment; none if the directory is no such.
func (b *Bwrap) interpreter(dir string) (args []string) {
	for _, path := range b.toolchain.needs(filepath.Join(dir, "bin/python")) {
		if !slices.ContainsFunc(append(b.shown, dir), func(shown string) bool { return within(path, shown) }) {
			args = append(append(args, parents(path)...), "--ro-bind-try", path, path)
		}
	}
	return args
}

// replaced returns the arguments that hide the machine's caches of what the spec has caches of its own for: they may
// hold other versions of the project.
func (b *Bwrap) replaced(s env.Spec) (args []string) {
	hide := func(key string, dirs ...string) {
		if !slices.ContainsFunc(s.Env, func(kv string) bool { return strings.HasPrefix(kv, key+"=") }) {
			return
		}
		for _, dir := range dirs {
			if isDir(dir) && slices.ContainsFunc(b.shown, func(shown string) bool { return within(dir, shown) }) {
				args = append(args, "--tmpfs", dir, "--remount-ro", dir)
			}
		}
	}
	hide("GOMODCACHE", b.toolchain.goModCache)
	cargo := b.toolchain.vars["CARGO_HOME"]
	hide("CARGO_HOME", filepath.Join(cargo, "registry"), filepath.Join(cargo, "git"))
	return args
}

// around returns the arguments that show what a checkout refers to outside itself.
func (b *Bwrap) around(sc *scratch, s env.Spec) []string {
	if s.Checkout == nil {
		return nil
	}
	var args []string
	for i := range s.Checkout.Objects {
		name := fmt.Sprintf("objects%d", i)
		args = append(args, "--ro-bind", filepath.Join(sc.dir, name), filepath.Join(filepath.Dir(guestPath), name))
	}
	seen := func(path string) bool {
		return slices.ContainsFunc(append(b.shown, s.Checkout.Root), func(dir string) bool { return within(path, dir) })
	}
	for _, dir := range s.Checkout.Shown {
		if !seen(dir) && !b.toolchain.private(dir) && !within(s.Checkout.Root, dir) {
			args = append(append(args, parents(dir)...), "--ro-bind-try", dir, dir)
		}
	}
	for _, link := range s.Checkout.Links {
		if !seen(link) {
			args = append(append(args, parents(link)...), "--symlink", s.Checkout.Root, link)
		}
	}
	return args
}

func (b *Bwrap) environment(s env.Spec, to *layout) []string {
	own := []string{"PATH=" + strings.Join(b.seen, ":"), "HOME=" + homePath}
	if b.toolchain.goCache != "" && to.keep == "" {
		own = append(own, "GOCACHEPROG="+guestPath+" "+guest.Arg+" --go-cache "+b.toolchain.goCache)
	}
	if to.whole() && s.Checkout != nil {
		own = append(own, "GOMODCACHE="+filepath.Join(homePath, goModules), "CARGO_HOME="+filepath.Join(homePath, cargoHome))
	}
	return guest.Overlay(b.toolchain.environment(s.Network || s.Fills() || to.keep != ""), own, s.Env)
}
