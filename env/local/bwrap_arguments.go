//go:build linux

package local

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"deepswe/env"
	"deepswe/env/guest"
)

// arguments returns bwrap's options for one sandbox, and the command that it executes.
func (b *Bwrap) arguments(
	sc *scratch, s env.Spec, l env.Limits, uid, gid int, caches []string, to *layout,
) (options, command []string, err error) {
	dir := inside(s)
	args := b.isolation(s, uid, gid)
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
	args = append(args, b.folders(s.Shown, shared)...)
	args = append(args, "--ro-bind", b.executable, guestPath)
	more, command := b.guest(sc, dir, l, uid, gid)
	args = append(append(args, more...), "--remount-ro", "/")
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
	return args, command, nil
}

// isolation returns the options for a sandbox's namespaces and privileges.
func (b *Bwrap) isolation(s env.Spec, uid, gid int) []string {
	args := []string{
		"--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "deepswe",
		"--as-pid-1", "--die-with-parent", "--new-session", "--clearenv",
	}
	if !s.Network {
		args = append(args, "--unshare-net")
	}
	if !b.root {
		return append(args, "--unshare-user", "--uid", strconv.Itoa(uid), "--gid", strconv.Itoa(gid))
	}
	args = append(args, "--cap-drop", "ALL")
	for _, c := range []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SETPCAP"} {
		args = append(args, "--cap-add", c)
	}
	return args
}

// folders returns the options for the directories of the machine that a sandbox sees, and for empty ones of at most
// size bytes.
func (b *Bwrap) folders(shown []env.Shown, size int64) (args []string) {
	for _, f := range shown {
		args = append(args, parents(f.Path)...)
		switch {
		case f.Host == "":
			args = append(args, "--perms", "1777", "--size", strconv.FormatInt(size, 10), "--tmpfs", f.Path)
			if !f.Writable {
				args = append(args, "--remount-ro", f.Path)
			}
			continue
		case f.Writable:
			args = append(args, "--bind", f.Host, f.Path)
		default:
			args = append(args, "--ro-bind", f.Host, f.Path)
		}
		args = append(args, b.interpreter(f.Host)...)
	}
	return args
}

// guest returns the command that a sandbox runs, and the options for what it needs.
func (b *Bwrap) guest(sc *scratch, dir string, l env.Limits, uid, gid int) (options, command []string) {
	command = []string{
		guestPath, guest.Arg, "--dir", dir, "--home", homePath, "--build", b.build,
		"--uid", strconv.Itoa(uid), "--gid", strconv.Itoa(gid),
	}
	if counter := sc.group.oomFile(); counter != "" {
		options = []string{"--ro-bind", counter, oomPath}
		command = append(command, "--oom-file", oomPath)
	} else {
		command = append(command, "--rlimit-memory", strconv.FormatInt(l.Memory+guestMemory, 10))
	}
	if b.groups.parents["pids"] == "" && b.countsProcesses() {
		command = append(command, "--rlimit-processes", strconv.FormatInt(l.Processes+guest.MostThreads, 10))
	}
	return options, append(command, l.DiskArguments()...)
}

// interpreter returns the arguments that show the Python of a virtual environment; none if the directory is not one.
func (b *Bwrap) interpreter(dir string) (args []string) {
	for _, path := range b.toolchain.needs(filepath.Join(dir, "bin/python")) {
		if !within(path, dir) && !withinAny(path, b.shown...) {
			args = append(append(args, parents(path)...), "--ro-bind-try", path, path)
		}
	}
	return args
}

// replaced returns the arguments that hide those of the machine's caches that the spec replaces: they may hold other
// versions of the project.
func (b *Bwrap) replaced(s env.Spec) (args []string) {
	hide := func(key string, dirs ...string) {
		if !slices.ContainsFunc(s.Env, func(kv string) bool { return strings.HasPrefix(kv, key+"=") }) {
			return
		}
		for _, dir := range dirs {
			if isDir(dir) && withinAny(dir, b.shown...) {
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
	seen := func(path string) bool { return within(path, s.Checkout.Root) || withinAny(path, b.shown...) }
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
