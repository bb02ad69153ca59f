package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"deepswe/env/disk"
)

// Snapshot is a private copy of a directory as it was at one moment, uncommitted changes included. A sandbox gets a
// copy of it, and a patch is computed against it. It implements env.Origin.
//
// Where the source is a git work tree, the copy is a repository of its own: the last commits of the source, and one
// more on top with what was uncommitted, so that an agent's "git checkout -- file" cannot lose the user's work. Nothing
// of the source's configuration is in it: no remote, no credential, no hook.
type Snapshot struct {
	// Dir holds the copy.
	Dir string
	// Source is the directory that was copied: the work tree's root where there is one.
	Source string
	// Head is the source's commit, empty outside a repository or before its first commit.
	Head string
	// Omitted are files that this process may not read; they are not in the copy.
	Omitted []Omission

	parent string
}

// Take copies dir, or, where dir is in a git work tree, all of that. Ignored files are left out; so are devices,
// sockets and pipes. The source is only read.
func Take(ctx context.Context, dir string) (*Snapshot, error) {
	source, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", dir, err)
	}
	info, err := os.Stat(source)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("snapshot %s: %w: it is not a directory", dir, ErrSource)
	}
	root, err := toplevel(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", dir, err)
	}
	parent, err := disk.MakeScratch("", "base")
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", dir, err)
	}
	s := &Snapshot{Dir: filepath.Join(parent, "base"), Source: source, parent: parent}
	if root != "" {
		s.Source = root
	}
	if err := s.fill(ctx, root != ""); err != nil {
		return nil, errors.Join(fmt.Errorf("snapshot %s: %w", dir, err), s.Close())
	}
	return s, nil
}

func (s *Snapshot) fill(ctx context.Context, repository bool) error {
	if err := os.Mkdir(s.Dir, 0o755); err != nil {
		return err
	}
	files, err := list(ctx, s.Source, repository)
	if err != nil {
		return err
	}
	if err := s.copyAll(ctx, files); err != nil {
		return err
	}
	return s.commit(ctx, repository, files.absent)
}

// Original implements env.Origin.
func (s *Snapshot) Original(_ context.Context, path string) ([]byte, error) {
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Lstat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := root.Readlink(path)
		return []byte(target), err
	}
	return root.ReadFile(path)
}

// Close removes the copy.
func (s *Snapshot) Close() error {
	return disk.RemoveScratch(s.parent)
}
