package repo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
)

// Read runs a git command in a repository that it does not change, and returns what the command prints. The user's
// configuration, and whatever of the repository's could start a program, is ignored.
func Read(ctx context.Context, dir string, args ...string) ([]byte, error) {
	return git{dir: dir}.run(ctx, nil, args...)
}

// StartAt starts a sandbox with a copy of the spec's commit in place of its repository. A spec without a commit stays
// as it is.
func StartAt(ctx context.Context, s env.Spec, start func(env.Spec) (env.Sandbox, error)) (env.Sandbox, error) {
	if s.Commit == "" {
		return start(s)
	}
	scratch, err := disk.MakeScratch("", "commit")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(scratch, "repo")
	if err := CheckOut(ctx, s.CopyIn, s.Commit, dir); err != nil {
		return nil, errors.Join(err, disk.RemoveScratch(scratch))
	}
	s.CopyIn, s.Commit = dir, ""
	sandbox, err := start(s)
	if removed := disk.RemoveScratch(scratch); removed != nil && err == nil {
		return nil, errors.Join(removed, sandbox.Close(ctx))
	}
	return sandbox, err
}

// CheckOut makes a repository of one commit in dir, which must not exist: its files, and a history that contains this
// commit alone, so that nothing which came later, or was there before, can be found. Submodules are files of it where
// the repository has them, and empty directories otherwise.
func CheckOut(ctx context.Context, repository, commit, dir string) error {
	if err := checkOut(ctx, git{dir: repository}, commit, dir); err != nil {
		return fmt.Errorf("check out %s of %s: %w", commit, repository, err)
	}
	return nil
}

func checkOut(ctx context.Context, from git, commit, dir string) error {
	if _, err := os.Stat(from.dir); err != nil {
		return fmt.Errorf("%w: the repository is not there any more; to fix: clone it to that place", ErrSource)
	}
	found, err := from.line(ctx, nil, "rev-parse", "--verify", "--quiet", commit+"^{commit}")
	switch {
	case ctx.Err() != nil || errors.Is(err, ErrNoGit):
		return err
	case err != nil:
		return fmt.Errorf("%w: the repository does not have this commit: to fix: git fetch", ErrSource)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	to := git{dir: dir}
	if err := from.initLike(ctx, to, "--initial-branch=main"); err != nil {
		return err
	}
	// Borrowed for as long as it takes to pack them: the repository itself may be read-only, or on another file system.
	lent, err := stores(ctx, from)
	if err == nil {
		err = borrow(filepath.Join(dir, ".git"), lent)
	}
	if err != nil {
		return err
	}
	objects := filepath.Join(dir, ".git", "objects")
	wanted := strings.NewReader("--shallow " + found + "\n" + found + "\n")
	if _, err := to.run(ctx, wanted, "pack-objects", "--revs", "-q", filepath.Join(objects, "pack", "pack")); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(objects, "info")); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, ".git", "shallow"), []byte(found+"\n"), 0o644); err != nil {
		return err
	}
	for _, command := range [][]string{{"update-ref", "refs/heads/main", found}, {"reset", "-q", "--hard"}} {
		unlogged := append([]string{"-c", "core.logAllRefUpdates=false"}, command...) // a log names this machine's user
		if _, err := to.run(ctx, nil, unlogged...); err != nil {
			return err
		}
	}
	return submodules(ctx, from, to)
}

// submodules fills the directories of a checkout's submodules, without their histories.
func submodules(ctx context.Context, from, to git) error {
	out, err := to.run(ctx, nil, "ls-files", "-s", "-z")
	if err != nil {
		return err
	}
	for entry := range strings.SplitSeq(string(out), "\x00") {
		of, name, _ := strings.Cut(entry, "\t")
		hash, module := strings.CutPrefix(of, ModeSubmodule+" ")
		if !module || !filepath.IsLocal(name) {
			continue
		}
		hash, _, _ = strings.Cut(hash, " ")
		dir := filepath.Join(to.dir, name)
		inner := git{dir: filepath.Join(from.dir, name)}
		if _, err := os.Stat(filepath.Join(inner.dir, ".git")); err != nil {
			continue // it was never fetched
		}
		if err := checkOut(ctx, inner, hash, dir); err != nil && !errors.Is(err, ErrSource) {
			return err
		}
		if err := os.RemoveAll(filepath.Join(dir, ".git")); err != nil {
			return err
		}
	}
	return nil
}
