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
	// root is the root of the work tree, or the directory itself, with symbolic links resolved.
	root       string
	repository bool
	// links are other paths of root, through symbolic links.
	links []string
}

// Root returns the directory that a snapshot of dir would copy: the root of the git work tree around dir, or dir
// itself.
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
	// named is the path as the user gave it. What it has below the root must be cut off.
	if below, ok := strings.CutPrefix(real, w.root); ok && named != real {
		if link, ok := strings.CutSuffix(named, below); ok && link != w.root {
			w.links = append(w.links, link)
		}
	}
	return w, nil
}

// tooMuch returns an error for directories that contain more than one project.
func tooMuch(root string) error {
	home, err := os.UserHomeDir()
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	switch {
	case err == nil && root == home:
		return fmt.Errorf("%w: it is your home directory, with your keys and mail beside the project: "+
			"clone it elsewhere first (git clone %s /tmp/project)", ErrSource, root)
	case slices.Contains([]string{
		"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root", "/run",
		"/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/lib", "/usr/local", "/usr/share", "/var", "/var/lib", "/var/tmp",
	}, root):
		return fmt.Errorf("%w: it belongs to the system: name the project's own directory, or clone it elsewhere first",
			ErrSource)
	}
	return nil
}
