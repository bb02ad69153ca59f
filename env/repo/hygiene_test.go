package repo

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deepswe/env"
)

// past makes a repository with two commits. The function fix commits a third, which must not be found afterwards, and
// deletes its branch.
const past = `
export GIT_AUTHOR_NAME=u GIT_AUTHOR_EMAIL=u@u GIT_COMMITTER_NAME=u GIT_COMMITTER_EMAIL=u@u
git init -q -b main . && mkdir -p .git/info
echo broken >code && git add . && git commit -qm first && git tag v1
echo more >>code && git commit -qam base && git tag -a -m annotated v2
fix() {
  git checkout -q -b later && echo THEFIX >code && git commit -qam THEFIX && git rev-parse HEAD >../fix
  git checkout -q - && git branch -q -D later
}
base=$(git rev-parse HEAD)
`

// plants are ways in which a repository may keep the fix.
var plants = []struct{ name, script string }{
	{"a reflog", `fix`},
	{"packed", `fix && git gc -q`},
	{"a branch", `fix && git branch x $(cat ../fix)`},
	{"a remote", `fix && git update-ref refs/remotes/origin/main $(cat ../fix) && git config remote.origin.url ../THEFIX`},
	{"a tag", `fix && git tag x $(cat ../fix) && git tag -a -m THEFIX y $(cat ../fix)`},
	{"a tag of a file", `git tag x $(echo THEFIX | git hash-object -w --stdin)`},
	{"a stash", `echo THEFIX >code && git stash -q && echo THEFIX >x && git stash -qu`},
	{"a note", `echo THEFIX | git notes add -F -`},
	{"a ref of another kind", `fix && git update-ref refs/pull/1/head $(cat ../fix)`},
	{"a fetched commit", `git clone -q . ../up && (cd ../up && fix && git branch x $(cat ../fix)) && git fetch -q ../up x`},
	{"a merge under way", `fix && git merge -q --no-ff --no-commit $(cat ../fix) && git checkout -q HEAD -- code`},
	{"heads of other work", `fix && for x in ORIG CHERRY_PICK REVERT REBASE BISECT FETCH; do cp ../fix .git/${x}_HEAD; done`},
	{"a rebase under way", `fix && git checkout -q $(cat ../fix) && GIT_SEQUENCE_EDITOR='sed -i s/pick/edit/' git rebase -q -i HEAD~ 2>&1 &&
git checkout -q main`},
	{"a bisection", `fix && git bisect start $(cat ../fix) $base~ >/dev/null && git checkout -q main`},
	{"another work tree", `git worktree add -q ../other && cd ../other && fix && echo THEFIX >code && git add code`},
	{"an object in place of another", `fix && git replace $base $(cat ../fix)`},
	{"a parent by a graft", `fix && echo $base $(cat ../fix) >.git/info/grafts`},
	{"the end of a shallow history", `fix && cp ../fix .git/shallow`},
	{"objects of another repository", `git clone -q . ../up && (cd ../up && fix) &&
realpath ../up/.git/objects >.git/objects/info/alternates`},
	{"all objects elsewhere", `fix && mv .git/objects ../all && mkdir -p .git/objects/info && realpath ../all >.git/objects/info/alternates`},
	{"a commit graph", `fix && git branch x $(cat ../fix) && git commit-graph write --reachable 2>&1`},
	{"an index of packs", `fix && git repack -q -d && git multi-pack-index write --no-progress`},
	{"a bundle", `fix && git branch x $(cat ../fix) && git bundle create -q .git/x.bundle x && git branch -q -D x`},
	{"a resolved conflict", `mkdir -p .git/rr-cache/1 && echo THEFIX >.git/rr-cache/1/postimage`},
	{"a large file", `mkdir -p .git/lfs/objects/aa/bb && echo THEFIX >.git/lfs/objects/aa/bb/aabb`},
	{"the index", `git update-index --add --cacheinfo 100644,$(echo THEFIX | git hash-object -w --stdin),x`},
	{"a loose object", `echo THEFIX | git hash-object -w --stdin`},
	{"settings", `git config x.y THEFIX && git config include.path more && echo '# THEFIX' >.git/more`},
	{"a file of another program", `mkdir -p .git/x/.y && echo THEFIX | tee .git/x/.y/z >.git/.w`},
	{"a hook", `mkdir -p .git/hooks && printf '#!/bin/sh\n# THEFIX\ntouch ../ran\n' >.git/hooks/post-index-change &&
chmod +x .git/hooks/*`},
	{"programs", `git config core.fsmonitor 'touch ../ran; : THEFIX' && git config filter.x.clean 'touch ../ran' &&
echo '* filter=x' >.git/info/attributes && git config uploadpack.packObjectsHook 'touch ../ran'`},
	{"a submodule", `git init -q ../inner && (cd ../inner && echo data >d && git add d && git commit -qm data) && git -c protocol.file.allow=always submodule add -q ../inner inner &&
git commit -qm base && cd inner && echo THEFIX >d && git commit -qam THEFIX && git checkout -q HEAD~ && cd ..`},
	{"nothing", ``},
}

func TestHygieneKeepsOnlyWhatItNames(t *testing.T) {
	t.Parallel()
	known := regexp.MustCompile(`^(HEAD|config|index|refs/heads/main|refs/tags/v[12]|objects/\w{2}/\w{38}|` +
		`objects/pack/pack-\w{40}\.(pack|idx|rev))$`)
	for _, plant := range plants {
		t.Run(plant.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "repo")
			shell(t, filepath.Dir(dir), "mkdir repo; touch fix")
			shell(t, dir, past+plant.script)
			shell(t, dir, Hygiene(""))

			// Objects are compressed, so their files are not searched; git prints all of them.
			for file := range strings.Lines(shell(t, dir, "cd .git && find . -type f | sed 's/..//'")) {
				if file = strings.TrimSpace(file); !known.MatchString(file) {
					t.Errorf(".git/%s is left", file)
				}
			}
			for what, script := range map[string]string{
				"the log":      "git log --all --reflog -p | grep -a THEFIX || true",
				"the objects":  "git cat-file --batch-all-objects --batch | grep -a THEFIX || true",
				"the files":    "grep -ra THEFIX .git || true",
				"its name":     "grep -raFf ../fix .git || true; git cat-file --batch-all-objects --batch-check | grep -Ff ../fix || true",
				"git fsck":     "git fsck --full --strict --unreachable --no-reflogs 2>&1 | grep -v '^Checking' || true",
				"programs":     "ls ../ran 2>/dev/null || true",
				"other stores": "ls .git/objects/info 2>/dev/null || true",
			} {
				if got := shell(t, dir, script); strings.TrimSpace(got) != "" {
					t.Errorf("%s has\n%s", what, got)
				}
			}
			if got := shell(t, dir, "git log --format=%s | tail -n 2; git status --porcelain; git describe | cut -c1-2; cat code"); got != "base\nfirst\nv2\nbroken\nmore\n" {
				t.Errorf("the agent sees\n%s", got)
			}
		})
	}
}

// The history of the base commit and the work tree are kept.
func TestHygieneKeepsThePast(t *testing.T) {
	t.Parallel()
	const first = "first: broken. base: broken more. v1 v2.\n"
	const see = `; for c in $(git rev-list --reverse HEAD); do printf '%s: %s. ' "$(git log -1 --format=%s $c)" "$(git show $c:code | xargs)"
done; echo $(git tag).; git status --porcelain`
	for _, tc := range []struct{ name, script, want string }{
		{"as it was", ``, first},
		{"changes", `echo dirt >>code; echo new >new`,
			"first: broken. base: broken more. State of the work tree at the start: broken more dirt. v1 v2.\n?? new\n"},
		{"what git is told to ignore", `echo new >.git/info/exclude; echo new >new`, first},
		{"a shallow history", `git rev-parse HEAD >.git/shallow; git gc -q --prune=now`, "base: broken more. v2.\n"},
		{"without a file of the past", `rm -f .git/objects/$(git rev-parse v1:code | sed 's|..|&/|')
git config core.repositoryformatversion 1; git config extensions.partialClone up
git config remote.up.url 'ext::touch ../ran'; git config protocol.allow always`, "base: broken more. .\n"},
		{"a sparse work tree", `mkdir a b; touch a/x b/x; git add .; git commit -qm more; git sparse-checkout init --cone; git sparse-checkout set a`,
			"first: broken. base: broken more. more: broken more. State of the work tree at the start: broken more. v1 v2.\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "repo")
			shell(t, filepath.Dir(dir), "mkdir repo")
			shell(t, dir, past+tc.script)
			shell(t, dir, Hygiene(strings.TrimSpace(shell(t, dir, "git rev-parse HEAD"))))
			if got := shell(t, dir, "ls ../ran 2>/dev/null"+see); got != tc.want {
				t.Errorf("the agent sees %q, want %q", got, tc.want)
			}
		})
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
