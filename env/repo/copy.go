package repo

import (
	"bytes"
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

// listing is what a snapshot copies: names relative to its source, each once.
type listing struct {
	names []string
	// absent are tracked files that a sparse checkout leaves out of the work tree.
	absent []string
	// omitted are paths that this process may not read.
	omitted []Omission
	// gone are tracked files that the work tree does not have any more.
	gone []string
	// hidden are what a sandbox that is shown the source must not see; inner are the repositories inside.
	hidden []string
	inner  []string

	seen map[string]bool
	// links caches behindLink.
	links map[string]bool
}

func list(ctx context.Context, source string, repository bool) (*listing, error) {
	l := &listing{seen: make(map[string]bool), links: make(map[string]bool)}
	if repository {
		return l, l.tracked(ctx, source, "")
	}
	return l, l.walk(ctx, source, "")
}

// tracked adds the files of the repository at source/prefix that are tracked, or neither tracked nor ignored.
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
	if l.seen[name] {
		return nil
	}
	if l.behindLink(source, filepath.Dir(name)) {
		l.gone = append(l.gone, name)
		return nil
	}
	l.seen[name] = true
	info, err := os.Lstat(filepath.Join(source, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if mayLack {
			l.absent = append(l.absent, name)
		} else {
			l.gone = append(l.gone, name) // deleted, but not yet from the index
		}
		return nil
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
		l.hidden = append(l.hidden, filepath.Join(name, ".git"))
		err := l.tracked(ctx, source, name)
		if err == nil {
			l.inner = append(l.inner, name)
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrNoGit) {
			return err
		}
		// Not a repository after all: a .git file that refers to none.
	}
	return l.walk(ctx, source, name)
}

// behindLink reports whether a directory is reached through a link. To git, a tracked file behind one is deleted, and
// what is there does not belong to the repository.
func (l *listing) behindLink(source, dir string) bool {
	if dir == "." {
		return false
	}
	if _, known := l.links[dir]; !known {
		info, err := os.Lstat(filepath.Join(source, dir))
		l.links[dir] = l.behindLink(source, filepath.Dir(dir)) || err == nil && info.Mode()&fs.ModeSymlink != 0
	}
	return l.links[dir]
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
		case d.Name() == ".git" && d.IsDir() && path != root:
			if name != ".git" {
				l.hidden = append(l.hidden, name)
			}
			return fs.SkipDir
		case d.IsDir() || d.Name() == ".git" && path != root || l.seen[name]:
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

// copyAll copies the listed files, one after the other: the file system is the bottleneck. Files that may not be read
// are left out, and reported.
func (s *Snapshot) copyAll(ctx context.Context, l *listing) error {
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
			l.omit(name)
		default:
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	s.leaveOut(l)
	return nil
}

// leaveOut says what of the listing is missing in the snapshot.
func (s *Snapshot) leaveOut(l *listing) {
	s.Omitted = l.omitted
	slices.SortFunc(s.Omitted, func(a, b Omission) int { return strings.Compare(a.Path, b.Path) })
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
	// The file may have been replaced by now: do not follow a link, and do not wait for a pipe.
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
