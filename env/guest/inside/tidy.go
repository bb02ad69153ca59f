//go:build linux

package inside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"deepswe/env/disk"
)

// deepestLeft is how deep directories may be nested when a sandbox is removed. Whoever removes them holds an open file
// for each level, and may not have many.
const deepestLeft = 256

// tidy flattens what is nested deeper than deepestLeft. It looks only if commands may have made that many directories.
func (w *diskWatch) tidy(ctx context.Context) (err error) {
	if w == nil {
		return nil
	}
	gone := w.thread.do(ctx, func() {
		for i, r := range w.roots {
			now, statErr := disk.SpaceOf(r.path)
			if r.memory || statErr == nil && now.Files > 0 && w.first[i].FreeFiles-now.FreeFiles < deepestLeft {
				continue
			}
			err = errors.Join(err, w.flattenRoot(ctx, r))
		}
	})
	return errors.Join(gone, err)
}

func (w *diskWatch) flattenRoot(ctx context.Context, r diskRoot) error {
	var s syscall.Stat_t
	if syscall.Lstat(r.path, &s) != nil || s.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return nil
	}
	dir, err := os.OpenRoot(r.path)
	if err != nil {
		return nil
	}
	defer dir.Close()
	if err := w.flatten(ctx, dir, r.layered, s.Dev, 0); err != nil {
		return fmt.Errorf("flatten %s: %w", r.path, err)
	}
	return nil
}

// flatten flattens what is too deep below a directory. What cannot be looked into is left as it is.
func (w *diskWatch) flatten(ctx context.Context, dir *os.Root, layered bool, device uint64, depth int) error {
	if depth == deepestLeft {
		return disk.Flatten(dir)
	}
	f, err := dir.Open(".")
	if err != nil {
		return nil
	}
	entries, _ := f.ReadDir(-1)
	if err := errors.Join(f.Close(), ctx.Err()); err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		info, err := dir.Lstat(e.Name())
		if err != nil {
			continue
		}
		s := info.Sys().(*syscall.Stat_t)
		if s.Dev != device || layered && changed(s).Before(w.began.Add(-pristineMargin)) {
			continue
		}
		sub, err := dir.OpenRoot(e.Name())
		if errors.Is(err, os.ErrPermission) && dir.Chmod(e.Name(), 0o700) == nil {
			sub, err = dir.OpenRoot(e.Name())
		}
		if err != nil {
			continue
		}
		err = w.flatten(ctx, sub, layered, device, depth+1)
		if err := errors.Join(err, sub.Close()); err != nil {
			return err
		}
	}
	return nil
}
