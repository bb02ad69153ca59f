//go:build linux

package inside

import (
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

// list sends a directory's entries; each directory is followed by its own entries.
func list(c *guest.Call, path string, o guest.ListOptions) (guest.Message, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: %w", path, guest.ErrNotDirectory)
	}
	l := lister{call: c, hidden: o.Hidden, left: o.Limit}
	l.device = uint64(info.Sys().(*syscall.Stat_t).Dev) //nolint:unconvert // its type depends on the architecture
	cut, err := l.level(path, max(o.Depth, 1))
	if err != nil {
		return nil, err
	}
	return &guest.Listing{Truncated: cut}, nil
}

type lister struct {
	call   *guest.Call
	hidden bool
	left   int
	device uint64
}

// level lists one directory and those below it, and reports whether the limit cut the listing.
func (l *lister) level(dir string, depth int) (cut bool, err error) {
	if err := l.call.Context().Err(); err != nil {
		return false, err
	}
	entries, cut, err := l.first(dir)
	if err != nil {
		return false, err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			continue // removed meanwhile
		}
		if l.left == 0 {
			return true, nil
		}
		l.left--
		f := describe(join(dir, entry.Name()), info)
		if err := l.call.Add(&f); err != nil {
			return false, err
		}
		if _, ok := mounted(f.Path, l.device); f.Kind != guest.KindDir || depth == 1 || !ok {
			continue
		}
		below, err := l.level(f.Path, depth-1)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			continue // listed, but not entered
		}
		if below || err != nil {
			return below, err
		}
	}
	return cut, nil
}

// first returns the first names of a directory in sorted order, as many as the limit still allows, without holding
// more than twice as many.
func (l *lister) first(dir string) (entries []os.DirEntry, cut bool, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	trim := func() {
		slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		if len(entries) > l.left {
			entries, cut = entries[:l.left], true
		}
	}
	for {
		some, err := f.ReadDir(1024)
		for _, entry := range some {
			if l.hidden || !strings.HasPrefix(entry.Name(), ".") {
				entries = append(entries, entry)
			}
		}
		if errors.Is(err, io.EOF) {
			trim()
			return entries, cut, nil
		}
		if err != nil {
			return nil, false, err
		}
		if len(entries) > 2*l.left+1024 {
			trim()
		}
	}
}
