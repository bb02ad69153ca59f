//go:build linux

package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/guest"
)

// overlays knows over which directories overlays can be mounted on this machine. That depends on its namespaces,
// and on the file systems of the directory and of the scratch directory.
type overlays struct {
	executable string
	parent     string
	root       bool // otherwise mounting needs a user namespace
}

// try mounts an overlay over the directory, in namespaces that end afterwards.
func (o *overlays) try(ctx context.Context, root string) error {
	if within(o.parent, root) {
		return fmt.Errorf("the directory for temporary files, %s, is in the repository", o.parent)
	}
	dir, err := disk.MakeScratch(o.parent, "overlay")
	if err != nil {
		return err
	}
	defer disk.RemoveScratch(dir)
	l := &layout{overlays: o, tree: &tree{uid: -1, gid: -1}, dir: dir}
	if o.root {
		l.uid = freshUser()
		l.gid = l.uid
	}
	defer l.close()
	if err := l.cover("repo", []string{root}, root, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	args, files, err := l.launch(nil)
	if err != nil {
		return err
	}
	defer closeAll(files)
	cmd := exec.CommandContext(ctx, o.executable, args...)
	cmd.ExtraFiles, cmd.Env, cmd.SysProcAttr = files, []string{}, o.attributes()
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("this machine does not allow an overlay of it: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// attributes make a process start in namespaces in which it may mount.
func (o *overlays) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if o.root {
		return attr
	}
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	// These are limited to the namespace. An overlay acts with the privileges of the process that mounted it.
	attr.AmbientCaps = []uintptr{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_SETPCAP, unix.CAP_SYS_ADMIN,
	}
	return attr
}

// layout prepares the mounts of one sandbox in its scratch directory.
type layout struct {
	*overlays
	*tree // its owner is the command user, if that is another user
	dir   string
	// keep is the directory that keeps the layers of this set-up, and over that of an earlier one; a layer is found
	// there by its name. Both are empty in a sandbox without a set-up.
	keep, over string

	stage guest.Stage
	shift *os.File
	count int
}

// cover adds an overlay over directories of the host, the uppermost first, to be mounted at to. The layer of this
// name that an earlier set-up has kept, if any, is above them. hidden are paths relative to the last directory.
func (l *layout) cover(name string, from []string, to string, hidden []string) error {
	l.count++
	place := filepath.Join(l.dir, fmt.Sprintf("layer%d", l.count))
	layers := guest.Layers{Upper: l.upper(name), Work: filepath.Join(place, "work"), To: to}
	if l.keep != "" {
		layers.Work = filepath.Join(l.keep, name+workSuffix) // on the same file system
	}
	for _, dir := range []string{place, layers.Upper, layers.Work} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	lowest := ""
	if len(from) > 0 {
		lowest = from[len(from)-1]
	}
	if err := l.mirror(lowest, layers.Upper); err != nil {
		return err
	}
	for _, name := range hidden {
		if err := l.hide(lowest, layers.Upper, name); err != nil {
			return fmt.Errorf("hide %s: %w", name, err)
		}
	}
	if kept := filepath.Join(l.over, name); l.over != "" && isDir(kept) {
		from = append([]string{kept}, from...)
	}
	for i, dir := range from {
		lower := filepath.Join(place, fmt.Sprintf("lower%d", i))
		if err := os.Mkdir(lower, 0o700); err != nil {
			return err
		}
		if err := l.view(dir, lower); err != nil {
			return err
		}
		layers.Lower = append(layers.Lower, lower)
	}
	if len(from) == 0 {
		layers.Lower = []string{filepath.Join(place, "empty")}
		if err := os.Mkdir(layers.Lower[0], 0o700); err != nil {
			return err
		}
	}
	l.stage.Overlays = append(l.stage.Overlays, layers)
	return nil
}

// workSuffix is the suffix of the work directories of overlays, which are next to the layers that a set-up keeps.
const workSuffix = ".work"

// upper returns the directory that takes what is written to the overlay of that name.
func (l *layout) upper(name string) string {
	if l.keep != "" {
		return filepath.Join(l.keep, name)
	}
	return filepath.Join(l.dir, "upper-"+name)
}

// whole reports whether commands get a separate home and caches, as in a set-up.
func (l *layout) whole() bool { return l.keep != "" || l.over != "" }

// view adds a read-only view of a directory in which its owner appears as the command user.
func (l *layout) view(from, to string) error {
	shifted := l.uid >= 0
	if shifted && l.shift == nil {
		var err error
		if l.shift, err = l.shiftOwner(from); err != nil {
			return fmt.Errorf("show files as the command user's: %w", err)
		}
	}
	l.stage.Views = append(l.stage.Views, guest.View{From: from, To: to, Shift: shifted})
	return nil
}

// shiftOwner creates a user namespace that maps the directory's owner to the command user, and all other users to
// themselves.
func (l *layout) shiftOwner(dir string) (*os.File, error) {
	var stat syscall.Stat_t
	if err := syscall.Stat(dir, &stat); err != nil {
		return nil, err
	}
	mapping := func(owner, becomes int) []syscall.SysProcIDMap {
		all := []syscall.SysProcIDMap{{ContainerID: owner, HostID: becomes, Size: 1}}
		if owner > 0 {
			all = append(all, syscall.SysProcIDMap{ContainerID: 0, HostID: 0, Size: owner})
		}
		if rest := becomes - owner - 1; rest > 0 {
			all = append(all, syscall.SysProcIDMap{ContainerID: owner + 1, HostID: owner + 1, Size: rest})
		}
		return all
	}
	// A guest that nothing connects to: the namespace needs a process until it has been opened.
	holder := exec.Command(l.executable, guest.Arg)
	holder.Env = []string{}
	holder.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: mapping(int(stat.Uid), l.uid),
		GidMappings: mapping(int(stat.Gid), l.gid), Pdeathsig: syscall.SIGKILL,
	}
	in, err := holder.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := holder.Start(); err != nil {
		return nil, err
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", holder.Process.Pid))
	_ = holder.Process.Kill()
	in.Close()
	_ = holder.Wait()
	return ns, err
}

// mirror gives a directory of an upper layer the owner, mode and time of the directory that it covers.
func (l *layout) mirror(from, to string) error {
	if err := l.own(to); err != nil {
		return err
	}
	if from == "" {
		return os.Chmod(to, 0o755)
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	// Keep the restrictions that the owner has set on the host, except on entering.
	return errors.Join(os.Chmod(to, info.Mode().Perm()), os.Chtimes(to, time.Time{}, info.ModTime()))
}

// hide creates a whiteout in an upper layer, so that the overlay shows nothing at the path.
func (l *layout) hide(from, upper, name string) error {
	if !filepath.IsLocal(name) {
		return fs.ErrInvalid
	}
	for i, c := range name {
		if c != '/' {
			continue
		}
		switch err := os.Mkdir(filepath.Join(upper, name[:i]), 0o700); {
		case errors.Is(err, fs.ErrExist):
			continue
		case err != nil:
			return err
		}
		if err := l.mirror(filepath.Join(from, name[:i]), filepath.Join(upper, name[:i])); err != nil {
			return err
		}
	}
	err := unix.Mknod(filepath.Join(upper, name), unix.S_IFCHR, 0)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// replace puts a copy of a directory into an upper layer, where it replaces what is below.
func (l *layout) replace(ctx context.Context, from, to string) error {
	if err := l.copy(ctx, from, to); err != nil {
		return err
	}
	mark := "user.overlay.opaque"
	if l.root {
		mark = "trusted.overlay.opaque"
	}
	return unix.Setxattr(to, mark, []byte("y"), 0)
}

// launch returns the command line and inherited files of a process that makes all mounts and then executes the
// program. The program's own files keep their descriptors.
func (l *layout) launch(files []*os.File, program ...string) (args []string, inherited []*os.File, err error) {
	const first = 3
	l.stage.Plain = !l.root
	inherited = files
	if l.shift != nil {
		l.stage.Shift = first + len(inherited)
		inherited = append(inherited, l.shift)
		l.shift = nil
	}
	stage, err := json.Marshal(l.stage)
	if err != nil {
		return nil, nil, err
	}
	file, err := unnamedFile(l.dir, stage)
	if err != nil {
		return nil, nil, err
	}
	args = append([]string{guest.Arg, "--stage", fmt.Sprint(first + len(inherited)), "--"}, program...)
	return args, append(inherited, file), nil
}

// before makes a launch perform the mounts first.
func (l *layout) before(started launch) (launch, error) {
	args, files, err := l.launch(started.files, append([]string{started.path}, started.args...)...)
	if err != nil {
		closeAll(started.files)
		return launch{}, fmt.Errorf("lay out the repository: %w", err)
	}
	started.path, started.args, started.files, started.attr = l.executable, args, files, l.attributes()
	return started, nil
}

func (l *layout) close() {
	if l.shift != nil {
		l.shift.Close()
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// checkout prepares the working copy: the overlay, its own git directory, and the object stores that it borrows
// from, which commands find below seen.
func (l *layout) checkout(ctx context.Context, c *env.Checkout, to, seen string) error {
	if err := l.cover("repo", []string{c.Root}, to, c.Hidden); err != nil {
		return err
	}
	if c.Git == "" {
		return nil
	}
	private := filepath.Join(l.upper("repo"), ".git")
	if err := l.replace(ctx, c.Git, private); err != nil {
		return err
	}
	var alternates strings.Builder
	for i, dir := range c.Objects {
		place := filepath.Join(l.dir, fmt.Sprintf("objects%d", i))
		if err := os.Mkdir(place, 0o755); err != nil {
			return err
		}
		if err := l.view(dir, place); err != nil {
			return err
		}
		fmt.Fprintf(&alternates, "%s/objects%d\n", seen, i)
	}
	own := filepath.Join(private, "objects", "info", "alternates")
	if err := os.WriteFile(own, []byte(alternates.String()), 0o644); err != nil {
		return err
	}
	return l.own(own)
}
