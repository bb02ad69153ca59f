package repo

import (
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

	"deepswe/env/disk"
)

// stream makes the snapshot one that sandboxes copy in themselves, so that each file is written only once.
func (s *Snapshot) stream(ctx context.Context, l *listing) error {
	stores := s.Checkout.Objects
	s.Checkout, s.streamed = nil, true
	for _, name := range l.hidden {
		s.without = append(s.without, filepath.ToSlash(name))
	}
	return s.keepHistory(ctx, stores, l.bytes)
}

// leaveOutUnreadable removes from the listing the files that this process may not read.
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

// keepHistory makes the repository independent of the source's objects, and keeps the last commits. Copying all
// objects is several times faster than selecting those of the last commits, unless most of them belong to older ones.
func (s *Snapshot) keepHistory(ctx context.Context, stores []string, bytes int64) error {
	g := git{env: []string{"GIT_DIR=" + s.git}}
	// What git remembers of conflicts that were resolved is not part of any commit.
	if _, err := g.run(ctx, nil, "update-index", "--clear-resolve-undo"); err != nil {
		return err
	}
	objects := filepath.Join(s.git, "objects")
	if files, ok := objectFiles(stores, max(bytes, smallStore)); ok {
		if err := s.cutHistory(ctx, g, historyCommits); err != nil {
			return err
		}
		err := errors.Join(copyObjects(files, objects), os.RemoveAll(filepath.Join(objects, "info"))) // names the source's
		if err == nil {
			_, err = g.run(ctx, nil, "rev-list", "--objects", "--quiet", "HEAD") // fails if one is missing
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		// It is a partial clone, or the user has packed it meanwhile.
		if err := borrow(s.git, stores); err != nil {
			return err
		}
	}
	// A partial clone may have only what the last commit needs.
	if err := s.packCommits(ctx, g, historyCommits); err == nil || ctx.Err() != nil {
		return err
	}
	return s.packCommits(ctx, g, 1)
}

// Stores of objects are copied whole up to smallStore bytes, or up to the size of the work tree if that is larger, and
// only if they have at most mostObjectFiles files.
const (
	smallStore      = 4 << 20
	mostObjectFiles = 256
)

// objectFiles returns the files of the stores with objects, by their paths below a store. It returns false if they have
// more files or bytes than are worth copying.
func objectFiles(stores []string, most int64) (files map[string]string, ok bool) {
	files = map[string]string{}
	var bytes int64
	for _, store := range stores {
		for _, pattern := range []string{"pack/*.*", "[0-9a-f][0-9a-f]/*"} {
			for _, file := range disk.Glob(store, pattern) {
				info, err := os.Stat(file)
				switch name := strings.TrimPrefix(file, store); {
				case err != nil:
					return nil, false
				case slices.Contains([]string{".pack", ".idx", ""}, filepath.Ext(file)):
					files[name] = file
					bytes += info.Size()
				}
				if bytes > most || len(files) > mostObjectFiles {
					return nil, false
				}
			}
		}
	}
	return files, true
}

func copyObjects(files map[string]string, store string) error {
	for name, from := range files {
		to := filepath.Join(store, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		in, err := os.Open(from)
		if err != nil {
			return err
		}
		out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = io.Copy(out, in)
			err = errors.Join(err, out.Close())
		}
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
	}
	return nil
}

// packCommits packs the last commits and everything in them. What the source has in packs is taken from there as it is,
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

// cutHistory makes the repository shallow, so that it has at most the given number of the last commits.
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
