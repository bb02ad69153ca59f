package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// stream prepares a source that sandboxes copy in themselves, so that each file is written only once: it makes the
// git directory that they get, and decides which paths they do not get.
func (s *Snapshot) stream(ctx context.Context, repository bool, l *listing, c choice) error {
	s.leaveOutUnreadable(l)
	if repository {
		if err := s.setAside(ctx, l, c); err != nil {
			return err
		}
		if err := s.afford(ctx, l, c); err != nil {
			return err
		}
	}
	if err := s.share(ctx, repository, l); err != nil {
		return err
	}
	s.Checkout, s.streamed = nil, true
	for _, name := range l.hidden {
		s.without = append(s.without, filepath.ToSlash(name))
	}
	s.leaveOut(l)
	return s.packHistory(ctx)
}

// leaveOutUnreadable takes files that this process may not read off the listing.
func (s *Snapshot) leaveOutUnreadable(l *listing) {
	if os.Geteuid() == 0 {
		return
	}
	l.names = slices.DeleteFunc(l.names, func(name string) bool {
		unreadable := cannotRead(filepath.Join(s.Source, name))
		if unreadable {
			l.omit(name)
			l.hidden, l.gone = append(l.hidden, name), append(l.gone, name)
		}
		return unreadable
	})
}

func cannotRead(file string) bool {
	const read = 4
	return errors.Is(syscall.Access(file, read), fs.ErrPermission)
}

// afford hides ignored paths that are not within the budget for copies.
func (s *Snapshot) afford(ctx context.Context, l *listing, c choice) error {
	left := room{bytes: copyBudget, files: copyFiles}
	var kept []string
	for _, name := range s.byUse() {
		ok, err := s.fits(ctx, l, c, name, &left)
		switch {
		case err != nil:
			return err
		case ok:
			kept = append(kept, name)
		default:
			l.hidden = append(l.hidden, filepath.FromSlash(name))
		}
	}
	s.Aside = kept
	return nil
}

// packHistory makes the repository independent of the source's objects: it packs the last commits and everything in
// them. A partial clone may have only what the last one needs.
func (s *Snapshot) packHistory(ctx context.Context) error {
	g := git{env: []string{"GIT_DIR=" + s.git}}
	// What git remembers of conflicts that were resolved is not part of any commit.
	if _, err := g.run(ctx, nil, "update-index", "--clear-resolve-undo"); err != nil {
		return err
	}
	if err := s.packCommits(ctx, g, historyCommits); err == nil || ctx.Err() != nil {
		return err
	}
	return s.packCommits(ctx, g, 1)
}

// packCommits keeps the last commits and drops the others. What the source has in packs is taken from there as it is,
// and the rest is not compressed. That is several times faster than a fetch, which searches for similar files, and
// hashes what it gets.
func (s *Snapshot) packCommits(ctx context.Context, g git, most int) error {
	if err := s.cutHistory(ctx, g, most); err != nil {
		return err
	}
	objects := filepath.Join(s.git, "objects")
	if err := os.MkdirAll(filepath.Join(objects, "pack"), 0o755); err != nil {
		return err
	}
	// Small windows: otherwise git maps, and holds, the whole of the source's packs. The objects are copies, so that
	// nothing is lost if they never reach the disk.
	if _, err := g.run(ctx, strings.NewReader("HEAD\n"), "-c", "pack.compression=0", "-c", "core.fsync=none",
		"-c", "core.packedGitWindowSize=1m", "-c", "core.packedGitLimit=16m", "-c", "core.deltaBaseCacheLimit=8m",
		"pack-objects", "-q", "--revs", "--window=0", "--threads=1", "--delta-base-offset",
		filepath.Join(objects, "pack", "pack")); err != nil {
		return err
	}
	entries, err := os.ReadDir(objects)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != "pack" {
			if err := os.RemoveAll(filepath.Join(objects, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// historyCommits is how many commits of the source the agent gets.
const historyCommits = 50

// cutHistory makes the repository shallow, so that it has at most so many of the last commits.
func (s *Snapshot) cutHistory(ctx context.Context, g git, most int) error {
	out, err := g.run(ctx, nil, "rev-list", "--parents", fmt.Sprintf("--max-count=%d", 20*most), "HEAD")
	if err != nil {
		return err
	}
	parents := map[string][]string{}
	var queue []string
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			parents[fields[0]] = fields[1:]
			queue = append(queue, fields[0])
		}
	}
	queue = queue[:1]
	kept := map[string]bool{queue[0]: true}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, parent := range parents[queue[0]] {
			if _, known := parents[parent]; known && !kept[parent] && len(kept) < most {
				kept[parent] = true
				queue = append(queue, parent)
			}
		}
	}
	file := filepath.Join(s.git, "shallow")
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var cut []string
	for _, commit := range strings.Fields(string(before)) {
		if kept[commit] {
			cut = append(cut, commit)
		}
	}
	for commit := range kept {
		if slices.ContainsFunc(parents[commit], func(parent string) bool { return !kept[parent] }) {
			cut = append(cut, commit)
		}
	}
	if len(cut) == 0 {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	slices.Sort(cut)
	return os.WriteFile(file, []byte(strings.Join(cut, "\n")+"\n"), 0o644)
}
