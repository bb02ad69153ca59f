//go:build linux

package setup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sift removes from an overlay's upper layer what a set-up must not change: the repository's own files and its history.
// It returns the paths that are new (directories as a whole) and those that were changed. Everything below the paths in
// aside, which the repository ignores, is kept as the set-up left it. hidden are paths that the sandbox did not show.
func Sift(layer, source string, aside, hidden []string) (added, restored []string, err error) {
	s := sieve{layer: layer, source: source, keep: map[string]bool{}, hidden: map[string]bool{}}
	for _, name := range aside {
		s.keep[name] = true
	}
	for _, name := range hidden {
		s.hidden[filepath.ToSlash(name)] = true
	}
	if err := s.directory(""); err != nil {
		return nil, nil, err
	}
	slices.Sort(s.added)
	slices.Sort(s.restored)
	return s.added, s.restored, nil
}

type sieve struct {
	layer, source   string
	keep, hidden    map[string]bool
	added, restored []string
}

func (s *sieve) directory(name string) error {
	entries, err := os.ReadDir(filepath.Join(s.layer, name))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := s.entry(strings.TrimPrefix(name+"/"+e.Name(), "/")); err != nil {
			return err
		}
	}
	for _, mark := range []string{"trusted.overlay.opaque", "user.overlay.opaque"} {
		// A directory that was replaced would hide the repository's own files below it.
		err := unix.Lremovexattr(filepath.Join(s.layer, name), mark)
		if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOTSUP) {
			return err
		}
	}
	return nil
}

// entry decides on one entry of the layer.
func (s *sieve) entry(name string) error {
	path := filepath.Join(s.layer, name)
	if s.keep[name] {
		return nil
	}
	if name == ".git" {
		return os.RemoveAll(path)
	}
	now, err := os.Lstat(path)
	if err != nil {
		return err
	}
	was, err := os.Lstat(filepath.Join(s.source, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	missing := err != nil
	switch {
	case removed(now):
		if !missing && !s.hidden[name] {
			s.restored = append(s.restored, name)
		}
		return os.Remove(path)
	case missing:
		s.added = append(s.added, name)
		return nil
	case now.IsDir() && was.IsDir():
		if err := s.directory(name); err != nil {
			return err
		}
		_ = os.Remove(path) // fails if it is not empty
		return nil
	}
	if s.hidden[name] {
		s.added = append(s.added, name) // it would hide what the user has there
		return nil
	}
	if !sameFile(path, now, filepath.Join(s.source, name), was) {
		s.restored = append(s.restored, name)
	}
	return os.RemoveAll(path)
}

// removed reports whether an entry of a layer is a whiteout, which stands for a removed file.
func removed(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode()&fs.ModeCharDevice != 0 && stat.Rdev == 0
}

func sameFile(a string, aInfo fs.FileInfo, b string, bInfo fs.FileInfo) bool {
	if aInfo.Mode() != bInfo.Mode() || aInfo.Size() != bInfo.Size() {
		return false
	}
	if aInfo.Mode()&fs.ModeSymlink != 0 {
		x, err := os.Readlink(a)
		y, errB := os.Readlink(b)
		return err == nil && errB == nil && x == y
	}
	if !aInfo.Mode().IsRegular() {
		return true
	}
	x, err := os.ReadFile(a)
	y, errB := os.ReadFile(b)
	return err == nil && errB == nil && bytes.Equal(x, y)
}
