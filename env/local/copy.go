//go:build linux

package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// copyWorkers is how many files are copied at once.
const copyWorkers = 4

// tree copies the content of a directory with its modes, times and symbolic links, without following links, and
// shares blocks instead of copying them if the file system supports that. It leaves out devices, sockets and pipes.
type tree struct {
	// uid and gid will own the copy; -1 means the copying user.
	uid, gid int
	// dirs are set last, because creating a file changes its directory's times.
	dirs []dirTimes
}

type dirTimes struct {
	path string
	info fs.FileInfo
}

func (t *tree) copy(ctx context.Context, from, to string) error {
	files, copying := errgroup.WithContext(ctx)
	files.SetLimit(copyWorkers)
	t.dirs = nil
	err := t.directory(copying, from, to, files)
	if failed := files.Wait(); failed != nil {
		err = failed // it ended the walk
	}
	for _, d := range slices.Backward(t.dirs) {
		set := errors.Join(os.Chmod(d.path, d.info.Mode().Perm()), os.Chtimes(d.path, time.Time{}, d.info.ModTime()))
		err = cmp.Or(err, set)
	}
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

// add copies one file, symbolic link or directory.
func (t *tree) add(ctx context.Context, from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return t.copy(ctx, from, to)
	}
	return t.file(from, to, fs.FileInfoToDirEntry(info))
}

// directory creates the directory and everything below it, leaving the copying of files to others.
func (t *tree) directory(ctx context.Context, from, to string, files *errgroup.Group) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := t.own(to); err != nil {
		return err
	}
	t.dirs = append(t.dirs, dirTimes{to, info})
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		src, dst := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if e.IsDir() {
			if err := t.directory(ctx, src, dst, files); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		files.Go(func() error { return t.file(src, dst, e) })
	}
	return nil
}

func (t *tree) file(from, to string, entry fs.DirEntry) (err error) {
	switch {
	case entry.Type()&fs.ModeSymlink != 0:
		err = t.symlink(from, to, entry)
	case entry.Type().IsRegular():
		err = t.regular(from, to)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed while the directory was read
	}
	return err
}

func (t *tree) symlink(from, to string, entry fs.DirEntry) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	if err := os.Symlink(target, to); err != nil {
		return err
	}
	if info, err := entry.Info(); err == nil {
		at := unix.NsecToTimespec(info.ModTime().UnixNano())
		_ = unix.UtimesNanoAt(unix.AT_FDCWD, to, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW) // best effort
	}
	return t.own(to)
}

func (t *tree) regular(from, to string) error {
	src, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil // replaced meanwhile
	}
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	if _, err := io.Copy(dst, src); err != nil { // uses copy_file_range(2) if possible
		return err
	}
	err = errors.Join(t.own(to), dst.Chmod(info.Mode().Perm()), dst.Close())
	return errors.Join(err, os.Chtimes(to, time.Time{}, info.ModTime()))
}

func (t *tree) own(path string) error {
	if t.uid < 0 {
		return nil
	}
	return os.Lchown(path, t.uid, t.gid)
}
