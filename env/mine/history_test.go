package mine

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A directory without a history gives an error that says so.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	const commit = "change a 1; commit one; "
	for dir, want := range map[string]string{
		t.TempDir(): "is not a git repository", history(t, ""): "has no commits",
		history(t, commit+"git symbolic-ref HEAD refs/heads/master"): "git symbolic-ref HEAD refs/heads/main",
		history(t, commit+"rm -r .git/objects/??"):                   "git fsck",
	} {
		if _, err := Walk(t.Context(), dir, "", 0); !errors.Is(err, ErrHistory) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	dir := history(t, "change a 1; commit one; change a 2; commit two")
	clone := filepath.Join(t.TempDir(), "clone")
	command := exec.CommandContext(t.Context(), "git", "clone", "-q", "--depth=1", "file://"+dir, clone)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if Shallow(t.Context(), dir) || !Shallow(t.Context(), clone) {
		t.Error("a shallow clone is not told from a whole one")
	}
}

// Names and messages may contain any byte but zero, and the repository's settings have no effect.
func TestWalkOddHistory(t *testing.T) {
	t.Parallel()
	dir := history(t, `change a.py 'a = 1'; commit root
odd=$(printf 'a\001\002\n\037\t"é.py'); message=$(printf 'odd \001 and \002 and \037 here')
git commit -q --allow-empty -m empty; change "$odd" 'b = 1'; commit "$message"
mkdir '[a]' a; change '[a]/b.py' 'b = 1'; commit literal; change a/b.py 'b = 1'; commit glob
printf '#!/bin/sh\ntouch run\n' >.git/gpg; chmod +x .git/gpg; git config gpg.program "$PWD/.git/gpg"
git config log.showSignature true; git config i18n.logOutputEncoding latin1; git config submodule.recurse true
signed=$(git cat-file commit HEAD | sed '/^$/i gpgsig -----BEGIN PGP SIGNATURE-----\n -----END PGP SIGNATURE-----')
git reset -q --hard "$(echo "$signed" | git hash-object -t commit -w --stdin)"
git replace "HEAD~1" "HEAD~2"`)
	commits, err := Walk(t.Context(), dir, "", 0)
	if err != nil || len(commits) != 5 {
		t.Fatalf("%d commits, %v, want 5", len(commits), err)
	}
	want := Change{Path: "a\x01\x02\n\x1f\t\"é.py", Kind: Source, Status: 'A', Mode: "100644", Added: 1}
	if c := commits[2]; c.Message != "odd \x01 and \x02 and \x1f here" || !slices.Equal(c.Changes, []Change{want}) {
		t.Errorf("%+v, want %+v", c, want)
	}
	if c := commits[0]; c.Base != commits[1].Hash || commits[1].Message != "literal" || len(commits[3].Changes) > 0 {
		t.Errorf("%+v", commits)
	}
	if _, err := os.Stat(filepath.Join(dir, "run")); err == nil {
		t.Error("a program of the repository was run")
	}
	for below, want := range map[string]int{"[a]": 1, "a/b.py": 1, "none": 0, "..": 0} {
		found, err := Walk(t.Context(), dir, below, 0)
		if len(found) != want || errors.Is(err, ErrHistory) != (want == 0) {
			t.Errorf("%d commits below %s, %v, want %d", len(found), below, err, want)
		}
	}
}

// A task is written as JSON, which has no texts in other encodings; tests and their data may be in any.
func TestNotUTF8(t *testing.T) {
	t.Parallel()
	for script, fits := range map[string]bool{
		`change a.py "$(printf 'NAME = "caf\351s"')"`:         false,
		`change "$(printf 'caf\351.py')" 'NAME = "cafe"'`:     false,
		`change a.py 1; change "$(printf 'tests/caf\351')" 1`: false,
		`change a.py 1; change tests/cafe "$(printf '\351')"`: true,
	} {
		dir := history(t, "change b.py 1; commit root; "+script+"; change tests/test_a.py 'def test(): pass'; commit more")
		candidates, unfit := candidatesOf(t, dir, 1)
		if len(candidates) == 1 != fits || unfit[NotUTF8] == 1 == fits {
			t.Errorf("%s: %d candidates, %v", script, len(candidates), unfit)
		}
	}
}

// Submodules that were not cloned are named.
func TestUnfetched(t *testing.T) {
	t.Parallel()
	dir := history(t, `git init -q lib; cd lib; touch a; git add a; git commit -qm a; cd ..
git -c advice.addEmbeddedRepo=false add lib; change b.py 1; commit root`)
	if names := Unfetched(t.Context(), dir); len(names) > 0 {
		t.Errorf("%q", names)
	}
	if err := os.RemoveAll(filepath.Join(dir, "lib")); err != nil {
		t.Fatal(err)
	}
	if names := Unfetched(t.Context(), dir); !slices.Equal(names, []string{"lib"}) {
		t.Errorf("%q", names)
	}
}

// What a commit moves counts with the lines that it changes.
func TestMoved(t *testing.T) {
	t.Parallel()
	dir := history(t, `change many.py "$(seq 400)"; commit root
mkdir lib; git mv many.py lib/numbers.py; sed -i 's/^7$/8/' lib/numbers.py; change tests/test_numbers.py 'def test(): pass'
commit 'seven is eight'`)
	candidates, unfit := candidatesOf(t, dir, 1)
	if len(candidates) != 1 {
		t.Fatal(unfit)
	}
	c := candidates[0]
	if c.Labels["files"] != "1" || c.Labels["lines"] != "2" || !strings.Contains(c.Sources, "deleted file") {
		t.Errorf("labels %v, change %.80s", c.Labels, c.Sources)
	}
}

// Whatever a log contains, it is read to the end, and every change has a status and no negative counts.
func FuzzParse(f *testing.F) {
	f.Add("abc\x00def\x00a <b>\x0012\x00message\n\x00\n:100644 100644 a b M\x00f.go\x001\t2\tf.go\x00")
	f.Fuzz(func(t *testing.T, log string) {
		for _, c := range parse(log) {
			for _, ch := range c.Changes {
				if ch.Status == 0 || ch.Added < 0 {
					t.Errorf("%+v", c)
				}
			}
		}
	})
}

// A commit that is taken back is no candidate, however the revert names it.
func TestReverts(t *testing.T) {
	t.Parallel()
	const hash = "0123456789abcdef"
	for name, c := range map[string]struct {
		of, by string
		undone bool
	}{
		"git":              {"Add five", "Revert \"Add five\"\n\nThis reverts commit 0123456789abcdef.", true},
		"GitHub, squashed": {"Add five (#20)", "Revert \"Add five (#20)\" (#21)\n\nReverts me/calc#20", true},
		"GitHub, merged": {"Merge pull request #20 from me/five\n\nAdd five",
			"Merge pull request #21 from me/revert-20-five\n\nRevert \"Add five\"", true},
		"GitLab": {"Merge branch 'five' into 'main'\n\nAdd five\n\nSee merge request me/calc!20",
			"Revert \"Merge branch 'five' into 'main'\"\n\nThis reverts merge request !20", true},
		"a title":         {"Add five (#20)", "Revert \"Add five\"", true},
		"another number":  {"Add five (#2)", "Revert six\n\nReverts me/calc#20", false},
		"another title":   {"Add five", "Revert \"Add fifty\"", false},
		"only talks":      {"Add five (#20)", "Go on with #20", false},
		"a later mention": {"Merge pull request #3 from me/six\n\nAdd six", "Merge pull request #4 from me/five\n\nAdd five", false},
	} {
		later := reverts{}
		later.undo(Commit{Hash: "fedcba9876543210", Message: c.by})
		if got := later.undo(Commit{Hash: hash, Message: c.of}); got != c.undone {
			t.Errorf("%s: %t, want %t", name, got, c.undone)
		}
		if got := revert().MatchString(c.by); c.undone && !got {
			t.Errorf("%s: %q is no revert", name, c.by)
		}
	}
	later := reverts{}
	later.undo(Commit{Hash: hash, Message: "Revert \"Add five\""})
	if of := (Commit{Hash: hash, Message: "Add five"}); !later.undo(of) || later.undo(of) {
		t.Error("one revert takes two commits of the same title back")
	}
}

// A merge whose message says nothing is described by what it merges.
func TestMergedMessages(t *testing.T) {
	t.Parallel()
	for message, more := range map[string]bool{"D2M": true, "": true, "Show halves of odd numbers": false} {
		dir := history(t, `change calc.py 'a = 1'; commit root; git checkout -q -b dev
change calc.py 'b = 1'; commit 'fix(calc): the second number is lost' 'Closes #7.'
change readme.md 'b'; commit 'docs: the second number'
change calc.py 'c = 1'; change tests/test_calc.py 'def test_c(): pass'; commit 'Keep the third one, too'
git checkout -q main; git merge -q --no-ff -m "Merge pull request #3 from a/dev" -m '`+message+`' dev`)
		chosen, _ := candidatesOf(t, dir, 0)
		if len(chosen) != 1 {
			t.Fatal(chosen)
		}
		want, issue := "Merge pull request #3 from a/dev", ""
		if message != "" {
			want += "\n\n" + message
		}
		if more {
			want, issue = want+"\n\nthe second number is lost\n\nCloses #7.\n\nKeep the third one, too", "7"
		}
		if c := chosen[0]; c.Message != want || c.Labels["issue"] != issue {
			t.Errorf("%q: %q of issue %q", message, c.Message, c.Labels["issue"])
		}
	}
}
