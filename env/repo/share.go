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
	"deepswe/env/disk"
)

// share creates a git directory for a sandbox that shows the source itself. It borrows the source's objects, and
// does not even read files that are unchanged since the last commit.
func (s *Snapshot) share(ctx context.Context, repository bool, l *listing) error {
	seed := filepath.Join(s.parent, "shared")
	if _, err := (git{}).run(ctx, nil, "init", "-q", "-b", "main", "--template=", seed); err != nil {
		return err
	}
	s.git = filepath.Join(seed, ".git")
	s.Checkout = &env.Checkout{Root: s.Source, Links: s.links, Git: s.git, Hidden: l.hidden,
		Shown: append(references(s.Source, s.Aside), neighbours(s.Source, l.names)...)}
	g := git{dir: s.Source, env: append([]string{"GIT_DIR=" + s.git, "GIT_WORK_TREE=" + s.Source}, identity...)}
	if err := os.MkdirAll(filepath.Join(s.git, "info"), 0o755); err != nil {
		return err
	}
	head := ""
	if repository {
		var err error
		if head, err = s.adoptIndex(ctx, g); err != nil {
			return err
		}
	}
	if err := updateIndex(ctx, g, l.gone, "--force-remove"); err != nil {
		return err
	}
	if err := updateIndex(ctx, g, l.names, "--add", "--replace", "--ignore-skip-worktree-entries"); err != nil {
		return err
	}
	// Before borrow: git would refresh the times of existing objects, and the source's must not change.
	tree, err := g.line(ctx, nil, "write-tree", "--missing-ok")
	if err != nil {
		return err
	}
	if err := borrow(s.git, s.Checkout.Objects); err != nil {
		return err
	}
	if err := commitTree(ctx, g, tree, head); err != nil {
		return err
	}
	return s.settle()
}

func updateIndex(ctx context.Context, g git, paths []string, how ...string) error {
	if len(paths) == 0 {
		return nil
	}
	args := append([]string{"-c", "core.bigFileThreshold=8m", "-c", "core.splitIndex=false", "update-index"}, how...)
	_, err := g.run(ctx, strings.NewReader(strings.Join(paths, "\x00")+"\x00"), append(args, "-z", "--stdin")...)
	return err
}

// adoptIndex starts from a copy of the source's index, and returns the source's current commit.
func (s *Snapshot) adoptIndex(ctx context.Context, g git) (head string, err error) {
	source := git{dir: s.Source, user: true}
	if head, err = Head(ctx, s.Source); err != nil {
		return "", err
	}
	if s.Checkout.Objects, err = stores(ctx, source); err != nil {
		return "", err
	}
	for _, name := range []string{"index", "shallow", "info/exclude"} {
		path, err := source.path(ctx, name)
		if err != nil {
			return "", err
		}
		if err := copyFile(path, filepath.Join(s.git, name)); err != nil {
			return "", err
		}
		for _, part := range disk.Glob(filepath.Dir(path), "sharedindex.*") {
			if err := copyFile(part, filepath.Join(s.git, filepath.Base(part))); err != nil {
				return "", err
			}
		}
	}
	return head, s.adopt(ctx, g)
}

// borrow lets the repository with a git directory find the objects in the stores of others.
func borrow(dir string, stores []string) error {
	if len(stores) == 0 {
		return nil
	}
	info := filepath.Join(dir, "objects", "info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return err
	}
	var alternates strings.Builder
	for _, dir := range stores {
		if strings.ContainsAny(dir, "\"\n") {
			dir = quote(dir)
		}
		alternates.WriteString(dir + "\n")
	}
	return os.WriteFile(filepath.Join(info, "alternates"), []byte(alternates.String()), 0o644)
}

// stores returns the directories with the repository's objects: its own, and those that it borrows from,
// recursively.
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

// path returns where git keeps a file of its git directory.
func (g git) path(ctx context.Context, name string) (string, error) {
	out, err := g.run(ctx, nil, "rev-parse", "--git-path", name)
	path := strings.TrimSuffix(string(out), "\n")
	if err == nil && !filepath.IsAbs(path) {
		path = filepath.Join(g.dir, path)
	}
	return path, err
}

// copyFile copies a small file, if it exists.
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

// commitTree commits the difference between the work tree and the last commit.
func commitTree(ctx context.Context, g git, tree, head string) error {
	args := []string{"commit-tree", tree, "-m", "State of the work tree at the start"}
	if head != "" {
		was, err := g.line(ctx, nil, "rev-parse", "--verify", "-q", head+"^{tree}")
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil && was == tree {
			_, err := g.run(ctx, nil, "update-ref", "HEAD", head)
			return err
		}
		args = append(args, "-p", head)
	}
	commit, err := g.line(ctx, nil, args...)
	if err != nil {
		return err
	}
	_, err = g.run(ctx, nil, "update-ref", "HEAD", commit)
	return err
}

// settle writes the configuration for the sandbox, where files have the same sizes and times, but other owners and
// inode numbers.
func (s *Snapshot) settle() error {
	for _, part := range append(disk.Glob(s.git, "sharedindex.*"), filepath.Join(s.git, "logs")) {
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

// kept returns a file as the repository recorded it at the start. If git converts line endings, that may differ
// from the file on disk at the time.
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

// dropUsers removes changes that were made to the source itself since the snapshot, because a sandbox that shows
// the source shows them too.
func (s *Snapshot) dropUsers(changes []change) (kept []change, dropped []Omission) {
	if s.Checkout == nil {
		return changes, nil
	}
	root, err := os.OpenRoot(s.Source)
	if err != nil {
		return changes, nil
	}
	defer root.Close()
	for _, c := range changes {
		if !sameOnDisk(root, c.after, c.path) {
			kept = append(kept, c)
			continue
		}
		dropped = append(dropped, Omission{Path: c.path, Reason: "changed in the repository itself during the run"})
	}
	return kept, dropped
}

// sameOnDisk reports whether a file of the source is the same as the sandbox's, which is nil if the sandbox has
// none.
func sameOnDisk(root *os.Root, f *env.FileInfo, path string) bool {
	info, err := root.Lstat(path)
	switch {
	case f == nil:
		return errors.Is(err, fs.ErrNotExist)
	case err != nil:
		return false
	case f.Kind == env.KindSymlink:
		target, err := root.Readlink(path)
		return err == nil && target == f.Target
	case !info.Mode().IsRegular() || info.Size() != f.Size || info.Mode()&0o100 != f.Mode&0o100:
		return false
	}
	data, err := root.ReadFile(path)
	return err == nil && version(data) == f.Version
}
