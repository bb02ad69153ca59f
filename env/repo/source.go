package repo

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// source is a directory to work on.
type source struct {
	// root is the work tree's root, or the directory itself, without symbolic links.
	root       string
	repository bool
	// links are other paths of root, through a symbolic link.
	links []string
}

// Root is the directory that a snapshot of dir is of: the root of the git work tree that dir is in, or dir itself.
func Root(ctx context.Context, dir string) (string, error) {
	w, err := find(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("snapshot %s: %w", dir, err)
	}
	return w.root, nil
}

func find(ctx context.Context, dir string) (source, error) {
	named, err := filepath.Abs(dir)
	if err != nil {
		return source{}, err
	}
	info, err := os.Stat(named)
	if err != nil {
		return source{}, err
	}
	if !info.IsDir() {
		return source{}, fmt.Errorf("%w: it is not a directory", ErrSource)
	}
	top, err := toplevel(ctx, named)
	if err != nil {
		return source{}, err
	}
	real, err := filepath.EvalSymlinks(named)
	if err != nil {
		return source{}, err
	}
	w := source{root: cmp.Or(top, real), repository: top != ""}
	if err := tooMuch(w.root); err != nil {
		return source{}, err
	}
	// The path that the user knows: what it adds to the root has to be cut off again.
	if below, ok := strings.CutPrefix(real, w.root); ok && named != real {
		if link, ok := strings.CutSuffix(named, below); ok && link != w.root {
			w.links = append(w.links, link)
		}
	}
	return w, nil
}

// tooMuch refuses directories that hold more than a project.
func tooMuch(root string) error {
	home, err := os.UserHomeDir()
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	switch {
	case err == nil && root == home:
		return fmt.Errorf("%w: it is your home directory, with your keys and mail beside the project: "+
			"clone it elsewhere first (git clone %s /tmp/project)", ErrSource, root)
	case slices.Contains([]string{"/", "/etc", "/home", "/usr", "/var", "/tmp", "/run", "/proc", "/sys", "/dev"}, root):
		return fmt.Errorf("%w: it belongs to the system: name the project's own directory, or clone it elsewhere first",
			ErrSource)
	}
	return nil
}
