//go:build linux

package inside

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"deepswe/env/disk"
)

// usage is an amount of disk: allocated bytes, and inodes.
type usage struct{ bytes, files int64 }

func (u usage) plus(o usage) usage { return usage{u.bytes + o.bytes, u.files + o.files} }

func (u usage) exceeds(most usage) bool { return u.bytes > most.bytes || u.files > most.files }

// lesser returns the lower value of each limit.
func lesser(a, b usage) usage { return usage{min(a.bytes, b.bytes), min(a.files, b.files)} }

// diskRoot is a mount where commands can write.
type diskRoot struct {
	path string
	// layered is set if the file system is an overlay, where changing a file also copies every directory above it.
	layered bool
	// memory is set if the mount is a whole file system in memory: the memory limit already covers its bytes, and all
	// its files are the sandbox's. It is not set if the mount is only a directory of such a file system on the host.
	memory bool
}

// holds reports whether a path is the mount or below it.
func (r diskRoot) holds(path string) bool {
	rest, below := strings.CutPrefix(path, strings.TrimSuffix(r.path, "/"))
	return below && (rest == "" || rest[0] == '/')
}

// writableRoots returns the mounts that commands can fill, from the content of /proc/self/mountinfo. There, a mount
// comes after the one that it covers.
func writableRoots(mountinfo string) []diskRoot {
	var roots []diskRoot
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		mount, source := strings.Fields(before), strings.Fields(after)
		if !ok || len(mount) < 6 || len(source) < 1 {
			continue
		}
		root := diskRoot{path: unescapeMount(mount[4])}
		roots = slices.DeleteFunc(roots, func(covered diskRoot) bool { return covered.path == root.path })
		if !slices.Contains(strings.Split(mount[5], ","), "rw") {
			continue
		}
		switch source[0] {
		case "proc", "sysfs", "devpts", "devtmpfs", "mqueue", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "bpf",
			"pstore", "hugetlbfs", "binfmt_misc", "configfs", "fusectl", "nsfs", "rpc_pipefs":
			continue
		case "tmpfs":
			root.memory = mount[3] == "/"
		case "overlay":
			root.layered = true
		}
		roots = append(roots, root)
	}
	return roots
}

// unescapeMount decodes the kernel's octal escapes of spaces, tabs, line feeds and backslashes.
func unescapeMount(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+3 < len(path) {
			if c, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

// deepest is the most levels of directories that are counted. A path that is passed to the kernel cannot have more.
const deepest = 2048

// diskTally adds up what commands have written: the files whose change time, which only the kernel can set, is
// later than the start of the first command. It is not safe for concurrent use.
type diskTally struct {
	// since is the start of the first command. Unchanged files of an overlay are older than pristine.
	since, pristine time.Time
	// most ends the count as soon as it is exceeded.
	most  usage
	roots []diskRoot

	total usage
	seen  map[inode]bool // counted files that are open, or have several names
	deep  bool
}

type inode struct{ device, number uint64 }

var errEnough = errors.New("more than the limit")

// of counts what the processes have written. It begins with the files that they have open, so that a single file that
// grows fast ends the count at once, however many other files there are.
func (t *diskTally) of(processes []disk.Stat) error {
	if err := t.open(processes); err != nil {
		return err
	}
	for _, r := range t.roots {
		if r.memory {
			continue
		}
		if err := t.root(r); err != nil {
			return err
		}
	}
	return nil
}

// add counts a file, unless it was counted before under another name.
func (t *diskTally) add(s *syscall.Stat_t) error {
	if s.Nlink == 1 && len(t.seen) == 0 || s.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		return t.addNew(s)
	}
	id := inode{s.Dev, s.Ino}
	if t.seen[id] {
		return nil
	}
	if s.Nlink != 1 {
		t.see(id)
	}
	return t.addNew(s)
}

func (t *diskTally) see(id inode) {
	if t.seen == nil {
		t.seen = map[inode]bool{}
	}
	t.seen[id] = true
}

func (t *diskTally) addNew(s *syscall.Stat_t) error {
	if !changed(s).After(t.since) {
		return nil
	}
	t.total = t.total.plus(usage{s.Blocks * 512, 1})
	if t.total.exceeds(t.most) {
		return errEnough
	}
	return nil
}

func changed(s *syscall.Stat_t) time.Time {
	return time.Unix(int64(s.Ctim.Sec), int64(s.Ctim.Nsec)) //nolint:unconvert // its type depends on the architecture
}

// root counts what is below a root, except what cannot be read.
func (t *diskTally) root(r diskRoot) error {
	var s syscall.Stat_t
	if syscall.Lstat(r.path, &s) != nil {
		return nil
	}
	if s.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return t.add(&s)
	}
	dir, err := os.OpenRoot(r.path)
	if err != nil {
		return nil
	}
	defer dir.Close()
	return t.directory(dir, r.layered, s.Dev, 0)
}

// directory counts what is in a directory and below, on the same device.
func (t *diskTally) directory(dir *os.Root, layered bool, device uint64, depth int) error {
	if depth > deepest {
		t.deep = true
		return errEnough
	}
	below, err := t.names(dir, layered, device)
	for _, name := range below {
		if err != nil {
			return err
		}
		err = t.enter(dir, name, layered, device, depth)
	}
	return err
}

// names counts the files of one directory, and returns the directories to count next.
func (t *diskTally) names(dir *os.Root, layered bool, device uint64) (below []string, err error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			info, err := dir.Lstat(name)
			if err != nil {
				continue // removed meanwhile
			}
			s := info.Sys().(*syscall.Stat_t)
			if info.IsDir() && s.Dev != device {
				continue // another mount, which is counted as a root if commands can write to it
			}
			if err := t.add(s); err != nil {
				return nil, err
			}
			if info.IsDir() && (!layered || !changed(s).Before(t.pristine)) {
				below = append(below, name)
			}
		}
		if err == io.EOF || len(names) == 0 {
			return below, nil
		}
	}
}

// enter counts what is below a directory, even if its permissions deny access: files cannot be hidden that way.
func (t *diskTally) enter(dir *os.Root, name string, layered bool, device uint64, depth int) error {
	sub, err := dir.OpenRoot(name)
	if errors.Is(err, os.ErrPermission) {
		if info, statErr := dir.Lstat(name); statErr == nil && info.IsDir() && dir.Chmod(name, info.Mode()|0o500) == nil {
			defer func() { _ = dir.Chmod(name, info.Mode()) }() // fails if it was removed meanwhile
			sub, err = dir.OpenRoot(name)
		}
	}
	if err != nil {
		return nil
	}
	defer sub.Close()
	return t.directory(sub, layered, device, depth+1)
}

// open counts files that are open in processes, below the roots or deleted. Those in memory are left out, because the
// memory limit covers them.
func (t *diskTally) open(processes []disk.Stat) error {
	devices := map[uint64]bool{}
	for _, r := range t.roots {
		var s syscall.Stat_t
		if !r.memory && syscall.Stat(r.path, &s) == nil {
			devices[s.Dev] = true
		}
	}
	for _, p := range processes {
		fds := "/proc/" + strconv.Itoa(p.PID) + "/fd"
		entries, _ := os.ReadDir(fds) // empty if the process cannot be inspected
		for _, e := range entries {
			path := fds + "/" + e.Name()
			target, err := os.Readlink(path)
			if err != nil || !strings.HasPrefix(target, "/") {
				continue // closed meanwhile, or a pipe, a socket and the like
			}
			var s syscall.Stat_t
			if syscall.Stat(path, &s) != nil || s.Mode&syscall.S_IFMT != syscall.S_IFREG ||
				!t.countsOpen(path, target, &s, devices[s.Dev]) {
				continue
			}
			id := inode{s.Dev, s.Ino}
			if t.seen[id] {
				continue
			}
			t.see(id)
			if err := t.addNew(&s); err != nil {
				return err
			}
		}
	}
	return nil
}

// countsOpen reports whether an open file counts: if it was deleted and is not in memory, or if it is below a root,
// where it would be found as well.
func (t *diskTally) countsOpen(path, target string, s *syscall.Stat_t, onDevice bool) bool {
	const tmpfs, hugetlbfs = 0x01021994, 0x958458f6
	if s.Nlink == 0 {
		var on syscall.Statfs_t
		return syscall.Statfs(path, &on) == nil && (onDevice || on.Type != tmpfs && on.Type != hugetlbfs)
	}
	var named syscall.Stat_t
	return onDevice && slices.ContainsFunc(t.roots, func(r diskRoot) bool { return !r.memory && r.holds(target) }) &&
		syscall.Lstat(target, &named) == nil && named.Dev == s.Dev && named.Ino == s.Ino
}
