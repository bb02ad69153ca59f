package repo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/env"
)

// future makes a repository whose base is followed by a fix, which is reachable in every way that git has.
const future = `
git init -q -b work . && git config user.name u && git config user.email u@u
echo broken > code && git add . && git commit -qm first && git tag v1
echo more >> code && git commit -qam base && git tag -a -m annotated v2
git rev-parse HEAD > ../base
echo THEFIX > code && git commit -qam 'the fix' && git tag v3 && git branch later
echo THEFIX-notes | git notes add -F - HEAD
echo THEFIX-stash > code && git stash -q
git update-ref refs/remotes/origin/main HEAD && git config remote.origin.url https://u:token@example.invalid/
git gc -q && git commit-graph write --reachable 2>/dev/null
echo THEFIX-loose > code && git commit -qam loose && git reset -q --hard $(cat ../base)
git config core.fsmonitor 'touch ../ran' && mkdir -p .git/hooks && printf '#!/bin/sh\ntouch ../ran\n' > .git/hooks/post-checkout && chmod +x .git/hooks/post-checkout
git config filter.evil.clean 'touch ../ran' && echo '* filter=evil' > .git/info/attributes
echo dirt >> code && echo untracked > new
`

func TestHygieneTakesTheFutureAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repo")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	shell(t, dir, future)
	base := strings.TrimSpace(shell(t, dir, "cat ../base"))
	shell(t, dir, Hygiene(base))

	for what, script := range map[string]string{
		"objects":    "git cat-file --batch-all-objects --batch | grep -a THEFIX || true",
		"refs":       "git for-each-ref | grep -v -e refs/heads/main -e refs/tags/v1 -e refs/tags/v2 || true",
		"stash":      "git stash list",
		"config":     "grep -e token -e evil -e fsmonitor .git/config || true",
		"hooks":      "ls .git/hooks 2>/dev/null || true",
		"damage":     "git fsck --full --strict 2>&1 | grep -v -e dangling -e '^Checking' || true",
		"executions": "ls ../ran 2>/dev/null || true",
		"raw files":  "grep -ra THEFIX .git || true",
	} {
		if got := shell(t, dir, script); strings.TrimSpace(got) != "" {
			t.Errorf("%s left:\n%s", what, got)
		}
	}
	if got, want := shell(t, dir, "git log --format=%s; git status --porcelain; cat code"),
		"State of the work tree at the start\nbase\nfirst\n?? new\nbroken\nmore\ndirt\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHygieneLeavesOtherDirectoriesAlone(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "x\n"})
	shell(t, dir, Hygiene(""))
	if got := contents(t, dir)["a"]; got != "x\n" {
		t.Errorf("a = %q", got)
	}
}

func TestHygieneWithoutACommit(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "x\n"})
	shell(t, dir, "git init -q . && git hash-object -w a")
	shell(t, dir, Hygiene(""))
	if got := shell(t, dir, "ls -A"); got != "a\n" {
		t.Errorf("left: %q", got)
	}
}

func TestHygieneTwiceDoesNoHarm(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "x\n"})
	commit(t, dir)
	for range 2 {
		shell(t, dir, Hygiene(""))
	}
	if got := shell(t, dir, "git log --format=%s; git status --porcelain"); got != "start\n" {
		t.Errorf("got %q", got)
	}
}

func TestHygieneRefusesAnUnknownBase(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "x\n"})
	commit(t, dir)
	script := "sh -c " + env.ShellQuote(Hygiene("0123456789012345678901234567890123456789")) + " 2>&1 && exit 1 || true"
	if got := shell(t, dir, script); !strings.Contains(got, "Needed a single revision") {
		t.Errorf("it said %q", got)
	}
}
