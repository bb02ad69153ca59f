package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// copyAll copies what is listed, one after the other: the file system is what it waits for. What may not be read is
// left out, and told.
func (s *Snapshot) copyAll(ctx context.Context, l *listing) error {
	s.Omitted = l.omitted
	made := "" // the directory that was made last: names come sorted
	for _, name := range l.names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if dir := filepath.Dir(filepath.Join(s.Dir, name)); dir != made {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			made = dir
		}
		switch err := s.copy(name); {
		case err == nil, errors.Is(err, fs.ErrNotExist): // deleted since it was listed
		case errors.Is(err, fs.ErrPermission):
			s.Omitted = append(s.Omitted, Omission{Path: filepath.ToSlash(name), Reason: "not readable"})
		default:
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	slices.SortFunc(s.Omitted, func(a, b Omission) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// copy copies one file or link, with its mode and time.
func (s *Snapshot) copy(name string) error {
	from, to := filepath.Join(s.Source, name), filepath.Join(s.Dir, name)
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case !info.Mode().IsRegular():
		return nil
	}
	// Whatever has taken the file's place meanwhile: no link is followed, and no pipe waited for.
	in, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	// The owner must be able to change the copy, whatever the original allows.
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}
