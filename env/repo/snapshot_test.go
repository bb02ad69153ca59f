package repo

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// took takes a snapshot of dir, which is closed at the end of the test.
func took(t *testing.T, dir string) *Snapshot {
	t.Helper()
	s, err := Take(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// identify begins the scripts that make repositories in an empty folder.
const identify = "export GIT_AUTHOR_NAME=u GIT_AUTHOR_EMAIL=u@u GIT_COMMITTER_NAME=u GIT_COMMITTER_EMAIL=u@u GIT_CONFIG_GLOBAL=/dev/null; set -e\n"

// kinds are repositories, and what a snapshot of each contains.
var kinds = map[string]struct {
	script, dir string
	files       []string // without .git
	commits     string   // their subjects, the last one first
}{
	"a submodule": {
		script: `git init -q lib; cd lib; echo l > l; echo junk > .gitignore; git add -A; git commit -qm lib; cd ..
git init -q main; cd main; echo a > a; git add -A; git commit -qm main
git -c protocol.file.allow=always submodule --quiet add ../lib vendor/lib; git commit -qm submodule
echo more > vendor/lib/new; echo x > vendor/lib/junk`,
		dir: "main", files: []string{".gitmodules", "a", "vendor/lib/.gitignore", "vendor/lib/l", "vendor/lib/new"},
		commits: "State of the work tree at the start\nsubmodule\nmain\n",
	},
	"a linked work tree": {
		script: `git init -q main; cd main; echo a > a; git add -A; git commit -qm first; git worktree add -q ../linked; cd ../linked; echo b > b; git add -A; git commit -qm second`,
		dir:    "linked", files: []string{"a", "b"}, commits: "second\nfirst\n",
	},
	"a shallow clone": {
		script: `git init -q main; cd main; for i in 1 2 3; do echo $i > a; git add -A; git commit -qm $i; done; cd ..; git clone -q --depth 1 "file://$PWD/main" shallow`,
		dir:    "shallow", files: []string{"a"}, commits: "3\n",
	},
	"no commit yet": {
		script: `git init -q main; cd main; echo a > a; git add a; echo b > b`,
		dir:    "main", files: []string{"a", "b"}, commits: "State of the work tree at the start\n",
	},
	"a detached head": {
		script: `git init -q main; cd main; for i in 1 2; do echo $i > a; git add -A; git commit -qm $i; done; git checkout -q HEAD~1`,
		dir:    "main", files: []string{"a"}, commits: "1\n",
	},
	"a sparse checkout": {
		script: `git init -q main; cd main; mkdir in out; echo i > in/i; echo o > out/o; git add -A; git commit -qm both; git sparse-checkout set in`,
		dir:    "main", files: []string{"in/i"}, commits: "both\n",
	},
	"a repository inside": {
		script: `git init -q main; cd main; echo a > a; git add -A; git commit -qm main; git init -q inner; cd inner; echo i > i; echo '*.log' > .gitignore; echo l > x.log`,
		dir:    "main", files: []string{"a", "inner/.gitignore", "inner/i"},
		commits: "State of the work tree at the start\nmain\n",
	},
	"a folder inside it": {
		script: `git init -q main; cd main; mkdir -p s/t; echo a > a; echo f > s/t/f; git add -A; git commit -qm main`,
		dir:    "main/s/t", files: []string{"a", "s/t/f"}, commits: "main\n",
	},
	"a folder that it ignores": {
		script: `git init -q main; cd main; echo /own > .gitignore; git add -A; git commit -qm main; mkdir own; echo f > own/f`,
		dir:    "main/own", files: []string{"f"}, commits: "State of the work tree at the start\n",
	},
	"a folder that became a link": {
		script: `git init -q main; cd main; mkdir a; echo f > a/f; git add -A; git commit -qm main; mv a b; ln -s b a`,
		dir:    "main", files: []string{"a@", "b/f"}, commits: "State of the work tree at the start\nmain\n",
	},
	"a file that became a folder": {
		script: `git init -q main; cd main; echo a > a; git add -A; git commit -qm main; rm a; mkdir a; echo f > a/f`,
		dir:    "main", files: []string{"a/f"}, commits: "State of the work tree at the start\nmain\n",
	},
	"a merge that is not finished": {
		script: `git init -q -b main main; cd main; echo a > a; git add -A; git commit -qm base; git checkout -qb other; echo o > a; git commit -qam other; git checkout -q main; echo m > a; git commit -qam main; git merge -q other || true`,
		dir:    "main", files: []string{"a"}, commits: "State of the work tree at the start\nmain\nbase\n",
	},
	"names that differ in case": {
		script: `git init -q main; cd main; echo 1 > File; echo 2 > file; git add -A; git commit -qm main`,
		dir:    "main", files: []string{"File", "file"}, commits: "main\n",
	},
	"filters": {
		script: `git init -q main; cd main; echo '*.bin filter=lfs -text' > .gitattributes; printf 'a pointer\n' > x.bin; printf 'a\r\n' > crlf.txt; git add -A; git commit -qm main; printf 'the content\n' > x.bin; git config filter.lfs.clean 'touch pwned; cat'; git config filter.lfs.required true`,
		dir:    "main", files: []string{".gitattributes", "crlf.txt", "x.bin"},
		commits: "State of the work tree at the start\nmain\n",
	},
}

func TestSnapshotOfEveryKindOfRepository(t *testing.T) {
	t.Parallel()
	for name, c := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			shell(t, parent, identify+c.script)
			s := took(t, filepath.Join(parent, c.dir))
			var files []string
			for name := range contents(t, s.Dir) {
				if !strings.HasPrefix(name, ".git/") {
					files = append(files, name)
				}
			}
			slices.Sort(files)
			if diff := cmp.Diff(c.files, files); diff != "" {
				t.Errorf("files (-want +got)\n%s", diff)
			}
			if got := shell(t, s.Dir, "git log --format=%s"); got != c.commits {
				t.Errorf("commits are\n%swant\n%s", got, c.commits)
			}
			if got := shell(t, s.Dir, "git status --porcelain"); got != "" {
				t.Errorf("the copy is not clean:\n%s", got)
			}
			shell(t, s.Dir, "git fsck --no-dangling")
		})
	}
}

// A repository that belongs to another user, as under sudo, still has its history.
func TestSnapshotOfAnotherUsersRepository(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a repository away")
	}
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n"})
	commit(t, source)
	shell(t, source, "chown -R 12345 .")
	s := took(t, source)
	if got := shell(t, s.Dir, "git log --format=%s"); got != "start\n" {
		t.Errorf("history = %q", got)
	}
}

func TestSnapshotRefuses(t *testing.T) {
	for name, c := range map[string]struct{ script, dir, says string }{
		"a work tree elsewhere": {`git init -q main; git init -q other; git -C main config core.worktree "$PWD/other"`,
			"main", "core.worktree"},
		"a bare repository": {`git init -q --bare main`, "main", "without a work tree"},
		"a file":            {`echo x > main`, "main", "not a directory"},
		"nothing":           {``, "main", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			parent, scratch := t.TempDir(), t.TempDir()
			shell(t, parent, identify+c.script)
			t.Setenv("TMPDIR", scratch)
			_, err := Take(t.Context(), filepath.Join(parent, c.dir), Options{})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error = %v, want one that says %q", err, c.says)
			}
			if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
				t.Errorf("left %v (%v)", left, err)
			}
		})
	}
}

// Files that cannot be read are left out and reported. The user need not make them readable first.
func TestSnapshotTellsWhatItCannotRead(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n", "secret": "x", "locked/f": "x"})
	shell(t, source, "chmod 0 secret locked")
	t.Cleanup(func() { os.Chmod(filepath.Join(source, "locked"), 0o700) }) // for the removal
	s := took(t, source)
	want := []Omission{{"locked", "not readable"}, {"secret", "not readable"}}
	if diff := cmp.Diff(want, s.Omitted); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestSnapshotHoldsUncommittedWork(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n", "gone": "x\n", ".gitignore": "secret\n"})
	commit(t, source)
	write(t, source, map[string]string{"a": "uncommitted\n", "untracked": "new\n", "secret": "key\n",
		"link@": "/etc/passwd"})
	if err := os.Remove(filepath.Join(source, "gone")); err != nil {
		t.Fatal(err)
	}
	shell(t, source, "git config remote.origin.url https://user:token@example.invalid/x.git")
	before := shell(t, source, "git status --porcelain && cat .git/index | sha256sum")

	s, _, _ := start(t, source)
	want := map[string]string{"a": "uncommitted\n", "untracked": "new\n", ".gitignore": "secret\n", "link@": "/etc/passwd"}
	if diff := cmp.Diff(want, contents(t, s.Dir)); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
	if got := shell(t, s.Dir, "git status --porcelain"); got != "" {
		t.Errorf("the copy is not clean: %s", got)
	}
	if got := shell(t, s.Dir, "git log --format=%s"); got != "State of the work tree at the start\nstart\n" {
		t.Errorf("history = %q", got)
	}
	if config, _ := os.ReadFile(filepath.Join(s.Dir, ".git", "config")); bytes.Contains(config, []byte("token")) {
		t.Error("a credential of the source's configuration is in the copy")
	}
	if after := shell(t, source, "git status --porcelain && cat .git/index | sha256sum"); after != before {
		t.Errorf("the source changed:\n%s%s", before, after)
	}
}

func TestSnapshotOfAPlainDirectory(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n", "sub/b*": "#!/bin/sh\n"})
	s, _, _ := start(t, source)
	if diff := cmp.Diff(map[string]string{"a": "one\n", "sub/b*": "#!/bin/sh\n"}, contents(t, s.Dir)); diff != "" {
		t.Error(diff)
	}
	if got := shell(t, s.Dir, "git log --format=%s"); got != "State of the work tree at the start\n" {
		t.Errorf("history = %q", got)
	}
}
