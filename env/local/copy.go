//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// copyWorkers is how many files are copied at once.
const copyWorkers = 4

// tree copies what a directory holds. Modes, times and symbolic links stay what they are, no link is followed, and
// where the file system can, blocks are shared instead of copied. Devices, sockets and pipes are left out.
type tree struct {
	// uid and gid own the copy; -1 for the copying user.
	uid, gid int

	mu   sync.Mutex
	err  error
	dirs []dirTimes
}

// dirTimes are set last: every file that is created in a directory changes them.
type dirTimes struct {
	path string
	info fs.FileInfo
}

type copyJob struct {
	from, to string
	entry    fs.DirEntry
}

func (t *tree) copy(ctx context.Context, from, to string) error {
	jobs := make(chan copyJob)
	var workers sync.WaitGroup
	for range copyWorkers {
		workers.Go(func() {
			for j := range jobs {
				if err := t.file(j); err != nil {
					t.fail(err)
				}
			}
		})
	}
	t.err, t.dirs = nil, nil
	t.fail(t.directory(ctx, from, to, jobs))
	close(jobs)
	workers.Wait()
	for i := len(t.dirs) - 1; i >= 0; i-- {
		d := t.dirs[i]
		t.fail(errors.Join(os.Chmod(d.path, d.info.Mode().Perm()), os.Chtimes(d.path, time.Time{}, d.info.ModTime())))
	}
	if t.err != nil {
		return fmt.Errorf("copy %s: %w", from, t.err)
	}
	return nil
}

// add copies one file, link or directory.
func (t *tree) add(ctx context.Context, from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return t.copy(ctx, from, to)
	}
	return t.file(copyJob{from, to, fs.FileInfoToDirEntry(info)})
}

func (t *tree) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
}

func (t *tree) failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err != nil
}

// directory makes the directory and everything below it; the files themselves are left to the workers.
func (t *tree) directory(ctx context.Context, from, to string, jobs chan<- copyJob) error {
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
		if ctx.Err() != nil || t.failed() {
			return ctx.Err()
		}
		src, dst := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if e.IsDir() {
			if err := t.directory(ctx, src, dst, jobs); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		select {
		case jobs <- copyJob{src, dst, e}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (t *tree) file(j copyJob) error {
	var err error
	switch {
	case j.entry.Type()&fs.ModeSymlink != 0:
		err = t.symlink(j)
	case j.entry.Type().IsRegular():
		err = t.regular(j)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it went away while the directory was read
	}
	return err
}

func (t *tree) symlink(j copyJob) error {
	target, err := os.Readlink(j.from)
	if err != nil {
		return err
	}
	if err := os.Symlink(target, j.to); err != nil {
		return err
	}
	if info, err := j.entry.Info(); err == nil {
		at := unix.NsecToTimespec(info.ModTime().UnixNano())
		_ = unix.UtimesNanoAt(unix.AT_FDCWD, j.to, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW) // best effort
	}
	return t.own(j.to)
}

func (t *tree) regular(j copyJob) error {
	src, err := os.OpenFile(j.from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil // exchanged for something else
	}
	dst, err := os.OpenFile(j.to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	if _, err := io.Copy(dst, src); err != nil { // copy_file_range(2), where both ends allow it
		return err
	}
	if err := t.own(j.to); err != nil {
		return err
	}
	if err := dst.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	if err := dst.Close(); err != nil {
		return err
	}
	return os.Chtimes(j.to, time.Time{}, info.ModTime())
}

func (t *tree) own(path string) error {
	if t.uid < 0 {
		return nil
	}
	return os.Lchown(path, t.uid, t.gid)
}
