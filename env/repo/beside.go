package repo

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepswe/env/disk"
)

// Beside makes dir a bare repository, unless it is one, that borrows the objects of another one, given by its
// absolute path, and has the same HEAD. Commits can be made there that the other repository must not have.
func Beside(ctx context.Context, repository, dir string) error {
	from, to := git{dir: repository}, git{dir: dir}
	head, err := from.line(ctx, nil, "rev-parse", "--verify", "HEAD^{commit}")
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err != nil {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := from.initLike(ctx, to, "--bare"); err != nil {
			return err
		}
	}
	lent, err := stores(ctx, from)
	if err != nil {
		return err
	}
	if err := borrow(dir, lent); err != nil {
		return err
	}
	_, err = to.run(ctx, nil, "update-ref", "--no-deref", "HEAD", head)
	return err
}

// FirstTwo makes a commit of the tree before that has no parent, and one of the tree after on top of it, whose name it
// returns. The same trees, time and message always give the same commits.
func FirstTwo(ctx context.Context, dir, before, after string, at time.Time, message string) (string, error) {
	when := at.UTC().Format(time.RFC3339)
	g := git{dir: dir, env: append([]string{"GIT_AUTHOR_DATE=" + when, "GIT_COMMITTER_DATE=" + when}, identity...)}
	first, err := g.line(ctx, strings.NewReader("The state before\n"), "commit-tree", before)
	if err != nil {
		return "", err
	}
	return g.line(ctx, strings.NewReader(message), "commit-tree", after, "-p", first)
}

// WithFiles returns a tree like the given one, but with other contents of some of its files.
func WithFiles(ctx context.Context, dir, tree string, files map[string][]byte) (string, error) {
	private, err := disk.MakeScratch("", "tree")
	if err != nil {
		return "", err
	}
	defer disk.RemoveScratch(private)
	g := git{dir: dir, env: []string{"GIT_INDEX_FILE=" + filepath.Join(private, "index")}}
	if _, err := g.run(ctx, nil, "read-tree", tree); err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		entry, err := g.line(ctx, nil, "--literal-pathspecs", "ls-files", "-s", "--", name)
		if err != nil {
			return "", err
		}
		blob, err := g.line(ctx, bytes.NewReader(files[name]), "hash-object", "-w", "--stdin")
		if err != nil {
			return "", err
		}
		mode, _, _ := strings.Cut(entry, " ")
		if _, err := g.run(ctx, nil, "update-index", "--cacheinfo", mode+","+blob+","+name); err != nil {
			return "", err
		}
	}
	return g.line(ctx, nil, "write-tree")
}

// TreeOf returns the name of a commit's tree.
func TreeOf(ctx context.Context, dir, commit string) (string, error) {
	return git{dir: dir}.line(ctx, nil, "rev-parse", "--verify", commit+"^{tree}")
}
