package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"deepswe/env/disk"
)

// ErrConflict says that a patch does not fit the tree that it was to be applied to. Nothing was changed.
var ErrConflict = errors.New("the patch does not apply")

// Apply puts a patch into the files below dir, all of it or nothing. No commit is made and the index is left alone.
func Apply(ctx context.Context, dir string, patch []byte) error {
	if len(bytes.TrimSpace(patch)) == 0 {
		return nil
	}
	root, err := toplevel(ctx, dir)
	if err != nil {
		return fmt.Errorf("apply patch: %w", err)
	}
	if root == "" {
		root = dir
	}
	// With an empty GIT_DIR, git takes the files as they are: no attribute, filter or line ending setting of a
	// repository changes the bytes that the patch was computed from.
	empty, err := disk.MakeScratch("", "apply")
	if err != nil {
		return fmt.Errorf("apply patch: %w", err)
	}
	defer disk.RemoveScratch(empty)
	g := git{dir: root, env: []string{"GIT_DIR=" + filepath.Join(empty, "none.git")}}
	before, err := remember(ctx, g, patch)
	if err != nil {
		return err
	}
	defer before.Close()
	// Git checks the whole patch before it writes anything; only the writing itself can still fail half way.
	if _, err = g.run(ctx, bytes.NewReader(patch), "apply", "--whitespace=nowarn", "-"); err == nil {
		return nil
	}
	if rerr := before.restore(); rerr != nil {
		return fmt.Errorf("apply patch: %w; and restoring the files: %w", err, rerr)
	}
	return refused(root, err)
}

// refused explains git's refusal of a patch.
func refused(root string, err error) error {
	if exitedWith(err, 1) {
		return fmt.Errorf("%w to %s: %s", ErrConflict, root, reason(err))
	}
	return fmt.Errorf("apply patch: %w", err)
}

// CheckBranch returns the error that Branch would fail with, so that it is known before hours of work.
func CheckBranch(ctx context.Context, dir, name string) error {
	_, _, err := branchBase(ctx, dir, name)
	return err
}

// branchBase returns the repository that dir is in and the commit that a new branch begins with.
func branchBase(ctx context.Context, dir, name string) (g git, commit string, err error) {
	root, err := toplevel(ctx, dir)
	switch {
	case err != nil:
		return g, "", fmt.Errorf("branch: %w", err)
	case root == "":
		return g, "", fmt.Errorf("branch: %s is not in a git repository", dir)
	}
	g = git{dir: root, user: true} // from its root: in a subdirectory, git would leave out the files above it
	if _, err := g.run(ctx, nil, "check-ref-format", "--branch", name); err != nil {
		return g, "", fmt.Errorf("branch: %q is not a valid branch name", name)
	}
	if _, err := g.run(ctx, nil, "rev-parse", "--verify", "-q", "refs/heads/"+name); err == nil {
		return g, "", fmt.Errorf("branch: %q exists already: choose another name or delete it (git branch -D %s)", name, name)
	}
	if commit, err = g.line(ctx, nil, "rev-parse", "--verify", "HEAD^{commit}"); err != nil {
		return g, "", fmt.Errorf("branch: %s has no commit to build on: %w", dir, err)
	}
	if _, err := g.run(ctx, nil, "var", "GIT_COMMITTER_IDENT"); err != nil {
		if ctx.Err() != nil {
			return g, "", context.Cause(ctx)
		}
		return g, "", errors.New("branch: git has no committer identity; " +
			"to fix: git config --global user.name NAME, and user.email ADDRESS")
	}
	return g, commit, nil
}

// Branch commits a patch on top of the current commit, as a new branch, and leaves the work tree and the index alone.
// It returns the commit.
func Branch(ctx context.Context, dir, name, message string, patch []byte) (commit string, err error) {
	g, parent, err := branchBase(ctx, dir, name)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("branch: %w", err)
		}
	}()
	private, err := disk.MakeScratch("", "branch")
	if err != nil {
		return "", err
	}
	defer disk.RemoveScratch(private)
	g.env = []string{"GIT_INDEX_FILE=" + filepath.Join(private, "index")}
	if _, err := g.run(ctx, nil, "read-tree", parent); err != nil {
		return "", err
	}
	if _, err := g.run(ctx, bytes.NewReader(patch), "apply", "--cached", "--whitespace=nowarn", "-"); err != nil {
		return "", fmt.Errorf("%w to the last commit: %s (it builds on uncommitted changes, or on files that git "+
			"stores in another form than they have on disk: commit the changes first, or use --apply)", ErrConflict, reason(err))
	}
	tree, err := g.line(ctx, nil, "write-tree")
	if err != nil {
		return "", err
	}
	commit, err = g.line(ctx, strings.NewReader(message), "commit-tree", tree, "-p", parent)
	if err != nil {
		return "", err
	}
	// The old value, all zeros, makes git refuse a branch that exists by now.
	_, err = g.run(ctx, nil, "update-ref", "refs/heads/"+name, commit, strings.Repeat("0", 40))
	return commit, err
}

func exitedWith(err error, code int) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.ExitCode() == code
}

// reason is git's own message in the error of a failed command.
func reason(err error) string {
	text := err.Error()
	if _, after, ok := strings.Cut(text, "exit status 1: "); ok {
		text = after
	}
	return strings.ReplaceAll(text, "error: ", "")
}
