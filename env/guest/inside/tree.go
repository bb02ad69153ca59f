//go:build linux

package inside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"deepswe/env/guest"
)

// mostRead is the most bytes that a tree reads of unknown files. A sparse file needs no space on the disk, but takes as
// long to read as any other.
const mostRead = 16 << 30

// tree sends every file below root, sorted by path. Several threads hash the files.
func (s *server) tree(c *guest.Call, root string, o guest.TreeOptions) (guest.Message, error) {
	s.parallel.widen()
	defer s.parallel.narrow()
	before := s.memory.recall(root, o.Remember)
	var after *memory
	if o.Remember {
		after = newMemory(root)
	}
	hashing := fan[treeEntry, []treeEntry]{
		ctx: c.Context(), helpers: s.helpers,
		work: func(files []treeEntry) []treeEntry {
			buf := make([]byte, 64<<10)
			for i := range files {
				if files[i].Version == "" && !files[i].left {
					hash(c.Context(), root, &files[i], buf)
				}
			}
			return files
		},
		deliver: func(files []treeEntry) error {
			for i := range files {
				after.add(&files[i])
				if err := c.Add(&files[i].FileInfo); err != nil {
					return err
				}
			}
			return c.Context().Err()
		},
	}
	count, unknown := 0, int64(0)
	add := func(path string, info fs.FileInfo) error {
		if count++; count > o.Limit {
			return fmt.Errorf("%s: more than %d files: %w", root, o.Limit, guest.ErrTooLarge)
		}
		f := treeEntry{FileInfo: describe(path, info), stamp: stampOf(info)}
		f.Path = strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
		cost := min(f.Size, mostHashed)
		if before.knows(&f) {
			cost = 0
		}
		if unknown += cost; unknown > mostRead && !o.Remember {
			f.left, cost = true, 0
		}
		return hashing.add(f, cost)
	}
	skip := pathSet(o.Skip)
	skipped := func(path string) bool {
		return len(skip) > 0 && skip[strings.TrimPrefix(strings.TrimPrefix(path, root), "/")]
	}
	walk := walker{
		ctx:   c.Context(),
		enter: func(path, name string) bool { return name != ".git" && !skipped(path) },
		file: func(path string, entry os.DirEntry) error {
			if skipped(path) {
				return nil
			}
			return treeFile(path, entry, add)
		},
		broken: func(path string, err error) error { return treeBroken(path, err, add) },
	}
	if err := hashing.finish(walk.walk(root)); err != nil {
		return nil, err
	}
	s.memory.keep(after)
	return nil, nil
}

// treeEntry is a file of a tree, with a stamp that changes whenever its content does.
type treeEntry struct {
	guest.FileInfo
	stamp stamp
	left  bool // not to be read
}

func pathSet(paths []string) map[string]bool {
	set := make(map[string]bool, len(paths))
	for _, p := range paths {
		set[p] = true
	}
	return set
}

// treeFile adds a file, if it still exists and is not named .git, which links a submodule or worktree to its
// repository.
func treeFile(path string, entry os.DirEntry, add func(string, fs.FileInfo) error) error {
	if entry.Name() == ".git" {
		return nil
	}
	info, err := entry.Info()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return add(path, info)
}

// treeBroken adds a directory that cannot be read, because a comparison of trees must know that something is hidden
// there.
func treeBroken(path string, broken error, add func(string, fs.FileInfo) error) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(broken, fs.ErrNotExist), errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil, guest.Broken(broken): // the latter is the machine's failure, not an attempt to hide something
		return broken
	}
	return add(path, info)
}

// hash sets the version of a regular file that can be read.
func hash(ctx context.Context, root string, f *treeEntry, buf []byte) {
	if f.Kind != guest.KindFile || f.Size > mostHashed {
		return
	}
	file, info, err := openRegular(join(root, f.Path), true)
	if err != nil {
		return
	}
	defer file.Close()
	f.stamp = stampOf(info)
	f.Version, f.Size, _ = version(ctx, file, buf)
}

// hugeDirectory is the most names of one directory to hold in memory; a directory with more counts as unreadable.
const hugeDirectory = 250_000

// walker visits the files below a directory in the byte order of their paths. It does not follow symbolic links,
// and skips the kernel's own file systems (/proc, /sys), unless the walk starts in one: reading them never ends.
type walker struct {
	ctx context.Context
	// enter reports whether to walk a directory.
	enter func(path, name string) bool
	// file is called for everything that is not walked.
	file func(path string, entry os.DirEntry) error
	// broken is called for directories that cannot be read.
	broken func(path string, err error) error
}

func (w walker) walk(root string) error {
	var stat syscall.Stat_t
	if err := syscall.Stat(root, &stat); err != nil {
		return &fs.PathError{Op: "stat", Path: root, Err: err}
	}
	return w.directory(root, stat.Dev, true)
}

func (w walker) directory(dir string, device uint64, top bool) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	entries, err := readDirectory(dir)
	if err != nil {
		if top {
			return err
		}
		return w.broken(dir, err)
	}
	slices.SortFunc(entries, byPath)
	for _, entry := range entries {
		path := join(dir, entry.Name())
		if !entry.IsDir() {
			if err := w.file(path, entry); err != nil {
				return err
			}
			continue
		}
		if !w.enter(path, entry.Name()) {
			continue
		}
		below, ok := mounted(path, device)
		if !ok {
			continue
		}
		if err := w.directory(path, below, false); err != nil {
			return err
		}
	}
	return nil
}

func join(dir, name string) string {
	if strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// byPath compares directory entries so that the paths of all files below come out sorted: a directory counts as
// "name/".
func byPath(a, b os.DirEntry) int {
	an, bn := a.Name(), b.Name()
	n := min(len(an), len(bn))
	if c := strings.Compare(an[:n], bn[:n]); c != 0 {
		return c
	}
	next := func(e os.DirEntry) int {
		switch {
		case len(e.Name()) > n:
			return int(e.Name()[n])
		case e.IsDir():
			return '/'
		}
		return -1
	}
	return next(a) - next(b)
}

// readDirectory returns all names in a directory, unsorted. It never blocks on other kinds of files.
func readDirectory(path string) ([]os.DirEntry, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []os.DirEntry
	for {
		some, err := f.ReadDir(4096)
		all = append(all, some...)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if len(all) > hugeDirectory {
			return nil, fmt.Errorf("%s: more than %d names: %w", path, hugeDirectory, guest.ErrTooLarge)
		}
	}
}

// mounted returns the device of a directory, and whether a walk that comes from another device may enter it.
func mounted(path string, from uint64) (uint64, bool) {
	var stat syscall.Stat_t
	if err := syscall.Lstat(path, &stat); err != nil {
		return from, true // reading it will return the error
	}
	return stat.Dev, stat.Dev == from || !synthetic(path)
}

// synthetic reports whether path is on a file system that the kernel generates.
func synthetic(path string) bool {
	const (
		proc, sysfs, debugfs, tracefs = 0x9fa0, 0x62656572, 0x64626720, 0x74726163
		cgroup, cgroup2, securityfs   = 0x27e0eb, 0x63677270, 0x73636673
		devpts, bpf                   = 0x1cd1, 0xcafe4a11
	)
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return false
	}
	switch int64(stat.Type) { //nolint:unconvert // its type depends on the architecture
	case proc, sysfs, debugfs, tracefs, cgroup, cgroup2, securityfs, devpts, bpf:
		return true
	}
	return false
}

// describe converts the result of lstat to a FileInfo without a version.
func describe(path string, info fs.FileInfo) guest.FileInfo {
	f := guest.FileInfo{Path: path, Mode: info.Mode().Perm(), Size: info.Size(), Kind: kindOf(info.Mode())}
	if f.Kind == guest.KindSymlink {
		f.Target, _ = os.Readlink(path)
	}
	return f
}

func kindOf(mode fs.FileMode) guest.Kind {
	switch {
	case mode.IsRegular():
		return guest.KindFile
	case mode.IsDir():
		return guest.KindDir
	case mode&fs.ModeSymlink != 0:
		return guest.KindSymlink
	}
	return guest.KindOther
}
