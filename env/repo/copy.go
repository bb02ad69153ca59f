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

	"deepswe/env/disk"
)

// listing lists what a snapshot copies, as unique names relative to its source.
type listing struct {
	names []string
	bytes int64 // their size, as far as it is known
	// omitted are paths that this process has no permission to read.
	omitted []Omission
	// gone are tracked files that are missing from the work tree.
	gone []string
	// hidden are paths that a sandbox sharing the source must not see; inner are nested repositories.
	hidden []string
	inner  []string

	seen map[string]bool
	// links caches the results of behindLink.
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
	out, err := g.run(ctx, nil, append([]string{"ls-files", "-z", "-t", "--cached"}, listUntracked()...)...)
	if err != nil {
		return err
	}
	for entry := range bytes.SplitSeq(out, []byte{0}) {
		const skipped = "S " // the status of files left out by a sparse checkout
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
		if !mayLack {
			l.gone = append(l.gone, name) // deleted, but still in the index
		}
		return nil
	case errors.Is(err, fs.ErrPermission):
		l.omit(name)
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		l.names = append(l.names, name)
		l.bytes += info.Size()
		return nil
	}
	// A submodule or another nested repository: its files are part of what the agent works on.
	if _, err := os.Lstat(filepath.Join(source, name, ".git")); err == nil {
		l.hidden = append(l.hidden, filepath.Join(name, ".git"))
		err := l.tracked(ctx, source, name)
		if err == nil {
			l.inner = append(l.inner, name)
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrNoGit) {
			return err
		}
		// Not a repository after all, but a .git file that points to none.
	}
	return l.walk(ctx, source, name)
}

// behindLink reports whether a directory is reached through a symbolic link. To git, tracked files behind it are
// deleted, and the files that are there are not part of the repository.
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

// walk adds every file below source/prefix, except entries called .git.
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
			return nil // removed while the directory was read
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

// copyAll makes the copy that sandboxes get, of what they would copy in otherwise. Files that cannot be read are left
// out and reported.
func (s *Snapshot) copyAll(ctx context.Context, l *listing) error {
	s.Dir = filepath.Join(s.parent, "base")
	if err := os.Mkdir(s.Dir, 0o755); err != nil {
		return err
	}
	defer s.leaveOut(l)
	if err := s.copyListed(ctx, l); err != nil {
		return err
	}
	for _, name := range s.Aside {
		if err := s.copyBelow(ctx, l, name); err != nil {
			return err
		}
	}
	git := s.git
	s.git, s.streamed, s.without = "", false, nil
	return os.Rename(git, filepath.Join(s.Dir, ".git"))
}

// copyListed copies the listed files one at a time, because the file system is the bottleneck.
func (s *Snapshot) copyListed(ctx context.Context, l *listing) error {
	made := "" // the last directory created; names are sorted
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
		case err == nil, errors.Is(err, fs.ErrNotExist): // ErrNotExist: deleted since it was listed
		case errors.Is(err, fs.ErrPermission):
			l.omit(name)
		default:
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return nil
}

// leaveOut records which files of the listing are missing from the snapshot.
func (s *Snapshot) leaveOut(l *listing) {
	s.Omitted = l.omitted
	slices.SortFunc(s.Omitted, func(a, b Omission) int { return strings.Compare(a.Path, b.Path) })
}

// copy copies one file or symbolic link, with its mode and time.
func (s *Snapshot) copy(name string) error {
	from, to := filepath.Join(s.Source, name), filepath.Join(s.Dir, name)
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	s.progress.add(info.Size())
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
	in, err := disk.OpenUntrusted(from) // it may have been replaced by now
	if err != nil {
		return err
	}
	defer in.Close()
	// The owner must be able to change the copy, whatever the original's mode.
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
