package repo

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// undo remembers the files that a patch changes, so that a partly applied patch can be undone.
type undo struct {
	root  *os.Root
	files []remembered
	// missing lists directories that do not exist yet, outer ones first.
	missing []string
}

// remembered is the state of one file; its mode is 0 if the file did not exist.
type remembered struct {
	path string
	mode fs.FileMode
	data []byte // for a symbolic link, its target
}

// remember reads the files below g's directory that the patch touches.
func remember(ctx context.Context, g git, patch []byte) (*undo, error) {
	out, err := g.run(ctx, bytes.NewReader(patch), "apply", "--numstat", "-z", "-")
	if err != nil {
		return nil, refused(g.dir, err)
	}
	root, err := os.OpenRoot(g.dir)
	if err != nil {
		return nil, err
	}
	u := &undo{root: root}
	for _, path := range touched(out) {
		if err := u.remember(path); err != nil {
			return nil, errors.Join(err, u.Close())
		}
	}
	return u, nil
}

// touched returns the paths in the output of git apply --numstat -z: "added TAB removed TAB path NUL" or, for a
// rename, an empty path followed by the old and the new path.
func touched(numstat []byte) []string {
	var paths []string
	bare := 0 // how many of the next fields are only a path
	for field := range bytes.SplitSeq(numstat, []byte{0}) {
		columns := bytes.SplitN(field, []byte{'\t'}, 3)
		switch {
		case bare > 0:
			paths = append(paths, string(field))
			bare--
		case len(columns) < 3: // the last, empty field
		case len(columns[2]) > 0:
			paths = append(paths, string(columns[2]))
		default:
			bare = 2
		}
	}
	return paths
}

func (u *undo) remember(path string) error {
	if !filepath.IsLocal(path) {
		return nil // git will refuse it
	}
	for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
		if _, err := u.root.Lstat(dir); errors.Is(err, fs.ErrNotExist) && !slices.Contains(u.missing, dir) {
			u.missing = append(u.missing, dir)
		}
	}
	was := remembered{path: path}
	info, err := u.root.Lstat(path)
	switch {
	case err != nil:
		// The file is missing or not accessible; git reports why.
	case info.Mode().IsRegular():
		was.mode = info.Mode()
		was.data, err = u.root.ReadFile(path)
	case info.Mode()&fs.ModeSymlink != 0:
		var target string
		was.mode = info.Mode()
		target, err = u.root.Readlink(path)
		was.data = []byte(target)
	default:
		return nil // git will neither remove nor replace it
	}
	if err != nil && was.mode != 0 {
		return err
	}
	u.files = append(u.files, was)
	return nil
}

// restore restores every file.
func (u *undo) restore() error {
	var failed []error
	for _, was := range u.files {
		failed = append(failed, u.putBack(was))
	}
	slices.Sort(u.missing)
	for _, dir := range slices.Backward(u.missing) {
		if err := u.root.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func (u *undo) putBack(was remembered) error {
	switch {
	case was.mode == 0:
		if err := u.root.Remove(was.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			if info, lerr := u.root.Lstat(was.path); lerr == nil && !info.IsDir() {
				return err
			}
		}
		return nil
	case u.same(was):
		return nil // unchanged, including its times
	}
	if err := u.root.MkdirAll(filepath.Dir(was.path), 0o755); err != nil {
		return err
	}
	if err := u.root.RemoveAll(was.path); err != nil {
		return err
	}
	if was.mode&fs.ModeSymlink != 0 {
		return u.root.Symlink(string(was.data), was.path)
	}
	if err := u.root.WriteFile(was.path, was.data, was.mode.Perm()); err != nil {
		return err
	}
	return u.root.Chmod(was.path, was.mode.Perm())
}

// same reports whether a file is still the same.
func (u *undo) same(was remembered) bool {
	info, err := u.root.Lstat(was.path)
	if err != nil || info.Mode() != was.mode {
		return false
	}
	if was.mode&fs.ModeSymlink != 0 {
		target, err := u.root.Readlink(was.path)
		return err == nil && target == string(was.data)
	}
	data, err := u.root.ReadFile(was.path)
	return err == nil && bytes.Equal(data, was.data)
}

// Close closes the directory.
func (u *undo) Close() error { return u.root.Close() }
