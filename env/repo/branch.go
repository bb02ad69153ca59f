package repo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"deepswe/env/disk"
)

// ErrChanged reports that what was delivered is no longer as it was left. Nothing was changed.
var ErrChanged = errors.New("it has changed since")

// CheckBranch returns the error that Branch would return, so that a run can fail early.
func CheckBranch(ctx context.Context, dir, name string) error {
	_, _, err := branchBase(ctx, dir, name)
	return err
}

// branchBase returns the repository that dir is in, and the commit on which the new branch starts.
func branchBase(ctx context.Context, dir, name string) (g git, commit string, err error) {
	root, err := toplevel(ctx, dir)
	switch {
	case err != nil:
		return g, "", fmt.Errorf("branch: %w", err)
	case root == "":
		return g, "", fmt.Errorf("branch: %s is not in a git repository", dir)
	}
	g = git{dir: root, user: true} // its root: elsewhere, git would ignore files above
	if _, err := g.run(ctx, nil, "check-ref-format", "--branch", name); err != nil {
		return g, "", fmt.Errorf("branch: %q is not a valid branch name", name)
	}
	if _, err := g.run(ctx, nil, "rev-parse", "--verify", "-q", "refs/heads/"+name); err == nil {
		return g, "", fmt.Errorf("branch: %q exists already: choose another name or delete it (git branch -D %s)", name, name)
	}
	if commit, err = g.line(ctx, nil, "rev-parse", "--verify", "HEAD^{commit}"); err != nil {
		return g, "", fmt.Errorf("branch: %s has no commit to build on: %w", dir, err)
	}
	if _, _, err := Identity(ctx, root); err != nil {
		return g, "", fmt.Errorf("branch: %w", err)
	}
	return g, commit, nil
}

// Branch commits a patch on a new branch, without touching the work tree or the index. The branch starts at the
// current commit, with the patch merged if necessary. If that fails, it starts at base, the commit that the patch
// was made on, unless base is empty. Branch returns the new commit and the commit that the branch starts at. The error
// wraps ErrApplied if that commit has the changes already.
func Branch(
	ctx context.Context, dir, name, message string, patch []byte, base string,
) (commit, parent string, err error) {
	g, head, err := branchBase(ctx, dir, name)
	if err != nil {
		return "", "", err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("branch: %w", err)
		}
	}()
	parents := []string{head}
	if base != "" && base != head {
		parents = append(parents, base)
	}
	tree := ""
	var failed error
	for _, parent = range parents {
		if tree, err = g.patched(ctx, parent, patch); err == nil {
			break
		}
		failed = cmp.Or(failed, err) // report git's message about the current commit
	}
	if err != nil {
		if ctx.Err() != nil {
			return "", "", context.Cause(ctx)
		}
		return "", "", fmt.Errorf("%w to the last commit: %s (it builds on uncommitted changes, or on files that git "+
			"stores in another form than they have on disk: commit the changes first, or use --apply)",
			ErrConflict, reason(failed))
	}
	switch before, err := g.line(ctx, nil, "rev-parse", "--verify", "-q", parent+"^{tree}"); {
	case err != nil:
		return "", "", err
	case before == tree:
		return "", "", fmt.Errorf("%w: the commit %.10s has its changes", ErrApplied, parent)
	}
	commit, err = g.line(ctx, strings.NewReader(message), "commit-tree", tree, "-p", parent)
	if err != nil {
		return "", "", err
	}
	// The empty old value makes git refuse if the branch exists by now.
	_, err = g.run(ctx, nil, "update-ref", "refs/heads/"+name, commit, "")
	return commit, parent, err
}

// RemoveBranch removes a branch that still is at the commit and is checked out nowhere.
func RemoveBranch(ctx context.Context, dir, name, commit string) error {
	g := git{dir: dir, user: true}
	now, err := g.line(ctx, nil, "rev-parse", "--verify", "-q", "refs/heads/"+name)
	switch {
	case ctx.Err() != nil || errors.Is(err, ErrNoGit):
		return err
	case err != nil:
		return fmt.Errorf("%w: there is no branch %s", ErrChanged, name)
	case now != commit:
		return fmt.Errorf("%w: the branch %s was at %.10s and is at %.10s now", ErrChanged, name, commit, now)
	}
	trees, err := g.run(ctx, nil, "worktree", "list", "--porcelain")
	if err != nil {
		return err
	}
	if slices.Contains(strings.Split(string(trees), "\n"), "branch refs/heads/"+name) {
		return fmt.Errorf("%w: the branch %s is checked out", ErrChanged, name)
	}
	_, err = g.run(ctx, nil, "update-ref", "-d", "refs/heads/"+name, commit)
	return err
}

// patched returns the tree of a commit with the patch applied, merged if it does not apply directly. Of the repository,
// it uses the objects alone: a merge would start programs that the configuration names.
func (g git) patched(ctx context.Context, commit string, patch []byte) (tree string, err error) {
	private, err := disk.MakeScratch("", "branch")
	if err != nil {
		return "", err
	}
	defer disk.RemoveScratch(private)
	before, err := g.line(ctx, nil, "rev-parse", "--verify", commit+"^{tree}")
	if err != nil {
		return "", err
	}
	objects, err := g.path(ctx, "objects")
	if err != nil {
		return "", err
	}
	if err := g.initLike(ctx, git{dir: private}, "--bare"); err != nil {
		return "", err
	}
	g = git{dir: private, env: []string{"GIT_DIR=" + private, "GIT_OBJECT_DIRECTORY=" + objects}}
	for _, merge := range [][]string{nil, {"--3way"}} {
		if _, rerr := g.run(ctx, nil, "read-tree", before); rerr != nil {
			return "", rerr
		}
		args := append([]string{"apply", "--cached", "--whitespace=nowarn"}, merge...)
		_, aerr := g.run(ctx, bytes.NewReader(patch), append(args, "-")...)
		if aerr == nil {
			return g.line(ctx, nil, "write-tree")
		}
		err = cmp.Or(err, aerr)
	}
	return "", err
}

// Head returns the current commit of the repository around dir, or "" if there is none.
func Head(ctx context.Context, dir string) (string, error) {
	commit, err := git{dir: dir, user: true}.line(ctx, nil, "rev-parse", "--verify", "-q", "HEAD^{commit}")
	if ctx.Err() != nil || errors.Is(err, ErrNoGit) {
		return "", err
	}
	return commit, nil
}

// Remote returns the URL of the remote "origin" of the repository around dir, or "" if there is none.
func Remote(ctx context.Context, dir string) (string, error) {
	address, err := git{dir: dir, user: true}.line(ctx, nil, "config", "--get", "remote.origin.url")
	if ctx.Err() != nil || errors.Is(err, ErrNoGit) {
		return "", err
	}
	return address, nil
}

// Modified returns the tracked files of the repository around dir that differ from its last commit, sorted. Files
// that can only be compared by running a filter from the repository's configuration are included.
func Modified(ctx context.Context, dir string) ([]string, error) {
	root, err := toplevel(ctx, dir)
	if err != nil || root == "" {
		return nil, err
	}
	g := git{dir: root, user: true}
	staged, err := g.run(ctx, nil, "diff-index", "--cached", "--name-only", "-z", "HEAD", "--")
	if err != nil {
		return nil, err
	}
	changed := nameSet(staged)
	// --raw compares times and sizes, without reading files.
	raw, err := g.run(ctx, nil, "diff-files", "--raw", "-z", "--abbrev=64")
	if err != nil {
		return nil, err
	}
	touched, err := readChanges(raw)
	if err != nil {
		return nil, err
	}
	for _, c := range touched {
		if c.OldMode == c.NewMode {
			if now, err := g.line(ctx, nil, "hash-object", "--no-filters", "--", c.Path); err == nil && now == c.OldBlob {
				continue // only its time has changed
			}
		}
		changed[c.Path] = true
	}
	return slices.Sorted(maps.Keys(changed)), ctx.Err()
}
