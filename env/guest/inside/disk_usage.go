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

// usage is room on a disk: bytes that are allocated, and inodes.
type usage struct{ bytes, files int64 }

func (u usage) plus(o usage) usage { return usage{u.bytes + o.bytes, u.files + o.files} }

func (u usage) exceeds(most usage) bool { return u.bytes > most.bytes || u.files > most.files }

// lesser is the lower of two upper bounds.
func lesser(a, b usage) usage { return usage{min(a.bytes, b.bytes), min(a.files, b.files)} }

// diskRoot is a place where commands can write.
type diskRoot struct {
	path string
	// layered is set where the file system is an overlay: a change copies every directory above it.
	layered bool
	// memory is set where the file system is in memory: its bytes are limited already, and its files are all ours.
	memory bool
}

// writableRoots are the mounts of a sandbox, described as /proc/self/mountinfo does, that commands can fill.
func writableRoots(mountinfo string) []diskRoot {
	var roots []diskRoot
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		mount, source := strings.Fields(before), strings.Fields(after)
		if !ok || len(mount) < 6 || len(source) < 1 || !slices.Contains(strings.Split(mount[5], ","), "rw") {
			continue
		}
		root := diskRoot{path: unescapeMount(mount[4])}
		switch source[0] {
		case "proc", "sysfs", "devpts", "devtmpfs", "mqueue", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "bpf",
			"pstore", "hugetlbfs", "binfmt_misc", "configfs", "fusectl", "nsfs", "rpc_pipefs":
			continue
		case "tmpfs":
			root.memory = true
		case "overlay":
			root.layered = true
		}
		roots = append(roots, root)
	}
	return roots
}

// unescapeMount undoes the kernel's octal escapes of blanks, tabs, line feeds and backslashes.
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

// deepest is how deep directories are looked into. No path of the kernel names anything deeper.
const deepest = 2048

// diskTally adds up what commands have written. A file belongs to them when its change time, which only the kernel
// sets, is later than the first command. It belongs to one goroutine.
type diskTally struct {
	// since is when the first command began. What an overlay shows unchanged is older than pristine.
	since, pristine time.Time
	// most ends the count early: more than too much need not be known.
	most usage

	total usage
	links map[inode]bool // files with several names, or with none, that were counted
	deep  bool
}

type inode struct{ device, number uint64 }

var errEnough = errors.New("more than the limit")

// add counts a file.
func (t *diskTally) add(s *syscall.Stat_t) error {
	if !changed(s).After(t.since) {
		return nil
	}
	if s.Nlink != 1 && s.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		id := inode{s.Dev, s.Ino}
		if t.links[id] {
			return nil
		}
		if t.links == nil {
			t.links = map[inode]bool{}
		}
		t.links[id] = true
	}
	t.total = t.total.plus(usage{s.Blocks * 512, 1})
	if t.total.exceeds(t.most) {
		return errEnough
	}
	return nil
}

func changed(s *syscall.Stat_t) time.Time {
	return time.Unix(int64(s.Ctim.Sec), int64(s.Ctim.Nsec)) //nolint:unconvert // of another size elsewhere
}

// root counts what is below a root. What cannot be read is left out.
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

// directory counts what is in a directory and below, on its own device.
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

// names counts the files of one directory, and returns the directories to enter.
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
				continue // it is gone
			}
			s := info.Sys().(*syscall.Stat_t)
			if info.IsDir() && s.Dev != device {
				continue // a mount, which is a root of its own
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

// enter counts what is below a directory, also where its owner has closed it: that must hide nothing.
func (t *diskTally) enter(dir *os.Root, name string, layered bool, device uint64, depth int) error {
	sub, err := dir.OpenRoot(name)
	if errors.Is(err, os.ErrPermission) {
		if info, statErr := dir.Lstat(name); statErr == nil && info.IsDir() && dir.Chmod(name, info.Mode()|0o500) == nil {
			defer func() { _ = dir.Chmod(name, info.Mode()) }() // or it is gone
			sub, err = dir.OpenRoot(name)
		}
	}
	if err != nil {
		return nil
	}
	defer sub.Close()
	return t.directory(sub, layered, device, depth+1)
}

// unlinked counts files that have no name any more and are still open in a process.
func (t *diskTally) unlinked(all []disk.Stat) error {
	const tmpfs, hugetlbfs = 0x01021994, 0x958458f6
	for _, p := range all {
		fds := "/proc/" + strconv.Itoa(p.PID) + "/fd"
		entries, _ := os.ReadDir(fds) // of a process that cannot be looked into: none
		for _, e := range entries {
			path := fds + "/" + e.Name()
			if target, err := os.Readlink(path); err != nil || !strings.HasSuffix(target, " (deleted)") {
				continue
			}
			var s syscall.Stat_t
			var on syscall.Statfs_t
			if syscall.Stat(path, &s) != nil || syscall.Statfs(path, &on) != nil || s.Nlink != 0 ||
				s.Mode&syscall.S_IFMT != syscall.S_IFREG || on.Type == tmpfs || on.Type == hugetlbfs {
				continue
			}
			if err := t.add(&s); err != nil {
				return err
			}
		}
	}
	return nil
}
