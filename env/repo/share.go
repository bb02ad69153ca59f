package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"deepswe/env"
)

// share makes what a sandbox needs that shows the source itself: a git directory of its own, which borrows the
// source's objects. Files that are as the last commit has them are not even read.
func (s *Snapshot) share(ctx context.Context, repository bool, l *listing) error {
	seed := filepath.Join(s.parent, "shared")
	if _, err := (git{}).run(ctx, nil, "init", "-q", "-b", "main", "--template=", seed); err != nil {
		return err
	}
	s.git = filepath.Join(seed, ".git")
	s.Checkout = &env.Checkout{Root: s.Source, Links: s.links, Git: s.git, Hidden: l.hidden}
	g := git{dir: s.Source, env: append([]string{"GIT_DIR=" + s.git, "GIT_WORK_TREE=" + s.Source}, identity...)}
	if err := os.MkdirAll(filepath.Join(s.git, "info"), 0o755); err != nil {
		return err
	}
	if repository {
		if err := s.borrow(ctx, g); err != nil {
			return err
		}
		if err := s.adopt(ctx, g, nil); err != nil {
			return err
		}
	}
	paths := strings.NewReader(strings.Join(append(l.names, l.gone...), "\x00") + "\x00")
	if len(l.names)+len(l.gone) == 0 {
		paths.Reset("")
	}
	_, err := g.run(ctx, paths, "-c", "core.bigFileThreshold=8m", "-c", "core.splitIndex=false",
		"update-index", "--add", "--remove", "--ignore-skip-worktree-entries", "-z", "--stdin")
	if err != nil {
		return err
	}
	if err := s.commitIndex(ctx, g); err != nil {
		return err
	}
	return s.settle()
}

// borrow starts from the source's commit and index.
func (s *Snapshot) borrow(ctx context.Context, g git) error {
	source := git{dir: s.Source, user: true}
	head, err := source.line(ctx, nil, "rev-parse", "--verify", "-q", "HEAD^{commit}")
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		head = ""
	}
	if s.Checkout.Objects, err = stores(ctx, source); err != nil {
		return err
	}
	alternates := []byte(strings.Join(s.Checkout.Objects, "\n") + "\n")
	if err := os.MkdirAll(filepath.Join(s.git, "objects", "info"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.git, "objects", "info", "alternates"), alternates, 0o644); err != nil {
		return err
	}
	for _, name := range []string{"index", "shallow", "info/exclude"} {
		path, err := source.path(ctx, name)
		if err != nil {
			return err
		}
		if err := copyFile(path, filepath.Join(s.git, name)); err != nil {
			return err
		}
		shared, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "sharedindex.*")) // the pattern is fine
		for _, part := range shared {
			if err := copyFile(part, filepath.Join(s.git, filepath.Base(part))); err != nil {
				return err
			}
		}
	}
	if head == "" {
		return nil
	}
	if _, err := g.run(ctx, nil, "update-ref", "HEAD", head); err != nil {
		return err
	}
	s.Head = head
	if _, err := os.Stat(filepath.Join(s.git, "index")); errors.Is(err, fs.ErrNotExist) {
		_, err = g.run(ctx, nil, "read-tree", "HEAD")
		return err
	}
	return nil
}

// stores are the directories with the repository's objects: its own, and those that it borrows from in turn.
func stores(ctx context.Context, g git) ([]string, error) {
	first, err := g.path(ctx, "objects")
	if err != nil {
		return nil, err
	}
	all := []string{first}
	known := map[string]bool{first: true}
	for i := 0; i < len(all); i++ {
		data, err := os.ReadFile(filepath.Join(all[i], "info", "alternates"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for line := range strings.SplitSeq(string(data), "\n") {
			dir := strings.TrimSuffix(line, "\r")
			if dir == "" || dir[0] == '#' {
				continue
			}
			if !filepath.IsAbs(dir) {
				dir = filepath.Join(all[i], dir)
			}
			info, err := os.Stat(dir)
			if err == nil && info.IsDir() && !known[dir] {
				known[dir] = true
				all = append(all, dir)
			}
		}
	}
	return all, nil
}

// path is where git keeps a file of its directory.
func (g git) path(ctx context.Context, name string) (string, error) {
	out, err := g.run(ctx, nil, "rev-parse", "--git-path", name)
	path := strings.TrimSuffix(string(out), "\n")
	if err == nil && !filepath.IsAbs(path) {
		path = filepath.Join(g.dir, path)
	}
	return path, err
}

// copyFile copies a small file, if there is one.
func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// commitIndex commits what the index has and the last commit has not.
func (s *Snapshot) commitIndex(ctx context.Context, g git) error {
	tree, err := g.line(ctx, nil, "write-tree")
	if err != nil {
		return err
	}
	args := []string{"commit-tree", tree, "-m", "State of the work tree at the start"}
	if s.Head != "" {
		was, err := g.line(ctx, nil, "rev-parse", "--verify", "-q", "HEAD^{tree}")
		if err == nil && was == tree {
			return nil
		}
		args = append(args, "-p", s.Head)
	}
	commit, err := g.line(ctx, nil, args...)
	if err != nil {
		return err
	}
	_, err = g.run(ctx, nil, "update-ref", "HEAD", commit)
	return err
}

// settle writes the configuration that holds in the sandbox, where files have the same sizes and times, but other
// owners and numbers.
func (s *Snapshot) settle() error {
	shared, _ := filepath.Glob(filepath.Join(s.git, "sharedindex.*")) // the pattern is fine
	for _, part := range append(shared, filepath.Join(s.git, "logs")) {
		if err := os.RemoveAll(part); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(filepath.Join(s.git, "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\tcheckStat = minimal\n\ttrustctime = false\n" +
		"[user]\n\tname = deepswe\n\temail = deepswe@localhost\n")
	return errors.Join(err, f.Close())
}

// kept returns a file as the repository recorded it at the start, which may differ from what was on disk where git
// converts line endings.
func (s *Snapshot) kept(ctx context.Context, path string) ([]byte, error) {
	if s.git == "" {
		return nil, fs.ErrNotExist
	}
	data, err := git{env: []string{"GIT_DIR=" + s.git}}.run(ctx, nil, "cat-file", "blob", "HEAD:"+path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return data, nil
}
