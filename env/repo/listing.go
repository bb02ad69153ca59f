package repo

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// listing is what a snapshot copies: names relative to its source, each once.
type listing struct {
	names []string
	// absent are tracked files that a sparse checkout leaves out of the work tree.
	absent []string
	// omitted are places that may not be read.
	omitted []Omission

	seen map[string]bool
	// links are directories on the way to a name that are none, but links to somewhere.
	links map[string]bool
}

func list(ctx context.Context, source string, repository bool) (*listing, error) {
	l := &listing{seen: make(map[string]bool), links: make(map[string]bool)}
	if repository {
		return l, l.tracked(ctx, source, "")
	}
	return l, l.walk(ctx, source, "")
}

// tracked adds the files of the repository at source/prefix that are tracked, and those that are neither tracked nor
// ignored.
func (l *listing) tracked(ctx context.Context, source, prefix string) error {
	g := git{dir: filepath.Join(source, prefix), user: true}
	out, err := g.run(ctx, nil, "ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	for entry := range bytes.SplitSeq(out, []byte{0}) {
		const skipped = "S " // by a sparse checkout
		if len(entry) < len(skipped) {
			continue
		}
		name := filepath.Join(prefix, strings.TrimSuffix(string(entry[len(skipped):]), "/"))
		if err := l.add(ctx, source, name, string(entry[:len(skipped)]) == skipped && prefix == ""); err != nil {
			return err
		}
	}
	return nil
}

func (l *listing) add(ctx context.Context, source, name string, mayLack bool) error {
	if l.seen[name] || l.behindLink(source, filepath.Dir(name)) {
		return nil
	}
	l.seen[name] = true
	info, err := os.Lstat(filepath.Join(source, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if mayLack {
			l.absent = append(l.absent, name)
		}
		return nil // deleted, but not yet from the index
	case errors.Is(err, fs.ErrPermission):
		l.omit(name)
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		l.names = append(l.names, name)
		return nil
	}
	// A submodule, or a repository inside the repository: its files belong to what the agent works on.
	if _, err := os.Lstat(filepath.Join(source, name, ".git")); err == nil {
		if err := l.tracked(ctx, source, name); err == nil || ctx.Err() != nil || errors.Is(err, ErrNoGit) {
			return err
		}
		// Not a repository after all: a .git file that leads nowhere.
	}
	return l.walk(ctx, source, name)
}

// behindLink reports whether a directory is reached through a link. A tracked file behind one is deleted as git sees
// it, and what is there is not the repository's.
func (l *listing) behindLink(source, dir string) bool {
	if dir == "." {
		return false
	}
	behind, known := l.links[dir]
	if !known {
		info, err := os.Lstat(filepath.Join(source, dir))
		behind = l.behindLink(source, filepath.Dir(dir)) || err == nil && info.Mode()&fs.ModeSymlink != 0
		l.links[dir] = behind
	}
	return behind
}

// walk adds every file below source/prefix, without anything called .git.
func (l *listing) walk(ctx context.Context, source, prefix string) error {
	root := filepath.Join(source, prefix)
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name, rerr := filepath.Rel(source, path)
		if rerr != nil {
			return rerr
		}
		switch {
		case errors.Is(err, fs.ErrPermission) && path != root:
			l.omit(name)
			return nil
		case errors.Is(err, fs.ErrNotExist) && path != root:
			return nil // gone while the directory was read
		case err != nil:
			return err
		case d.Name() == ".git" && path != root:
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir() || l.seen[name]:
			return nil
		}
		l.seen[name] = true
		l.names = append(l.names, name)
		return nil
	})
}

func (l *listing) omit(name string) {
	l.omitted = append(l.omitted, Omission{Path: filepath.ToSlash(name), Reason: "not readable"})
}
