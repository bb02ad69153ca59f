package repo

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sh runs a command line in a directory, with an identity for git.
func sh(t *testing.T, dir, line string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-c", "set -e; "+line)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a",
		"GIT_AUTHOR_EMAIL=a@localhost", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@localhost")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

// A checkout has the files and the id of its commit, but no object that only other commits have: later or earlier ones,
// or those of branches, tags, stashes or replacements.
func TestCheckOut(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) { checkOutOf(t, format) })
	}
}

// checkOutOf tests a repository with the given object format.
func checkOutOf(t *testing.T, format string) {
	t.Helper()
	source := t.TempDir()
	sh(t, source, `git init -q --initial-branch=main --object-format=`+format+` .
echo OLD >f; git add .; git commit -qm one
echo base >f; mkdir 'a dir'; echo run >'a dir/x'; chmod +x 'a dir/x'; ln -s f link; git add .; git commit -qm two
git tag base
echo FIX >f; git commit -qam three; git tag v1; git checkout -qb other; echo OTHER >f; git commit -qam four
echo STASH >f; git stash -q; git replace base v1; git gc -q`)
	commit := sh(t, source, "git rev-parse base")
	parents := []string{t.TempDir()}
	if memory, err := os.MkdirTemp("/dev/shm", "deepswe-test-"); err == nil { // another file system
		t.Cleanup(func() { os.RemoveAll(memory) })
		parents = append(parents, memory)
	}
	for i, from := range []string{source, filepath.Join(source, ".git")} {
		dir := filepath.Join(parents[i%len(parents)], "out")
		if err := CheckOut(t.Context(), from, commit, dir); err != nil {
			t.Fatal(err)
		}
		got := sh(t, dir, "cat f link; test -x 'a dir/x'; git status --porcelain; git rev-parse HEAD; "+
			"git log --all --format=%s")
		if got != "base\nbase\n"+commit+"\ntwo" {
			t.Errorf("it has %q", got)
		}
		got = sh(t, dir, "git cat-file --batch-all-objects --batch | grep -a -c -e OLD -e FIX -e OTHER -e STASH || true")
		if got != "0" {
			t.Errorf("%s lines of other commits can be found", got)
		}
		if got := sh(t, dir, "git fsck --no-dangling 2>&1; git branch --show-current; git remote"); got != "main" {
			t.Errorf("git says %q", got)
		}
		if got := sh(t, dir, "git reflog"); got != "" {
			t.Errorf("the reflog has %q, want nothing", got)
		}
	}
	err := CheckOut(t.Context(), source, strings.Repeat("1", 40), filepath.Join(t.TempDir(), "out"))
	if !errors.Is(err, ErrSource) {
		t.Errorf("an unknown commit: %v", err)
	}
	err = CheckOut(t.Context(), filepath.Join(source, "gone"), commit, filepath.Join(t.TempDir(), "out"))
	if !errors.Is(err, ErrSource) || !strings.Contains(err.Error(), "is not there any more") {
		t.Errorf("a repository that is gone: %v", err)
	}
}

// A submodule has the files of the commit that the repository names, or is empty if it was not fetched.
func TestCheckOutOfSubmodules(t *testing.T) {
	t.Parallel()
	inner, source := t.TempDir(), t.TempDir()
	sh(t, inner, "git init -q .; echo data >d; git add .; git commit -qm one")
	sh(t, source, `git init -q .; git -c protocol.file.allow=always submodule add -q `+inner+` suite; git commit -qm one
cd suite; echo later >d; git add .; git commit -qm two`)
	commit := sh(t, source, "git rev-parse HEAD")
	dir := filepath.Join(t.TempDir(), "out")
	if err := CheckOut(t.Context(), source, commit, dir); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, dir, "cat suite/d; ls -A suite; git status --porcelain"); got != "data\nd" {
		t.Errorf("it has %q", got)
	}
	if err := os.Remove(filepath.Join(source, "suite/.git")); err != nil { // as if it had never been fetched
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "out")
	if err := CheckOut(t.Context(), source, commit, dir); err != nil || sh(t, dir, "ls -A suite") != "" {
		t.Errorf("without it: %v", err)
	}
}
