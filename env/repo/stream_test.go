package repo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Sandboxes get the last commits with all their objects, whatever the history looks like.
func TestStreamLastCommits(t *testing.T) {
	t.Parallel()
	var line strings.Builder // 60 commits, for git fast-import
	for i := range 60 {
		fmt.Fprintf(&line, "commit refs/heads/main\ncommitter a <a@b> %d +0000\ndata 0\n", 1_000_000_000+i)
		if i == 0 {
			line.WriteString("M 644 inline a\ndata 4\none\n\n")
		}
	}
	const old = "commit refs/heads/old\ncommitter a <a@b> 1 +0000\ndata 0\n\n"
	const merge = "commit refs/heads/main\ncommitter a <a@b> 1100000000 +0000\ndata 0\nmerge refs/heads/old\n\n"
	for name, c := range map[string]struct {
		history, script string
		want            int
	}{
		"one line": {line.String(), "", historyCommits},
		// The merged branch is older than everything else.
		"old branch": {line.String() + old + merge, "", historyCommits},
		"shallow":    {line.String(), "cd ..; git clone -q --depth 4 file://$PWD/source cut; rm -rf source; mv cut source", 4},
		// This is like a partial clone.
		"old files missing": {line.String() + "commit refs/heads/main\ncommitter a <a@b> 1100000000 +0000\ndata 0\n" +
			"M 644 inline a\ndata 4\ntwo\n\n", "rm .git/objects/56/26abf0f72e58d7a153368ba57db4c673c0e171; " +
			"mkdir -p .git/objects/pack; touch .git/objects/pack/pack-1.promisor", 1},
		"many objects": {line.String(), "for i in $(seq 300); do echo $i >f$i; done; git add .; git commit -qm many",
			historyCommits},
		"one pack":          {line.String(), "git repack -adq", historyCommits},
		"another's objects": {line.String(), "cd ..; mv source other; git clone -q --shared other source", historyCommits},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := filepath.Join(t.TempDir(), "source")
			write(t, source, map[string]string{"history": c.history})
			shell(t, source, identify+"git init -q -b main; git -c fastimport.unpackLimit=1000 fast-import --quiet <history; "+
				"rm history; git reset -q --hard; "+c.script)
			dir := streamed(t, shared(t, source, Options{Stream: true}))
			shell(t, dir, "git fsck --no-dangling && git diff --quiet HEAD && git show --stat HEAD")
			if got := len(strings.Fields(shell(t, dir, "git rev-list HEAD"))); got != c.want {
				t.Errorf("%d commits, want %d", got, c.want)
			}
		})
	}
}

// Files beyond the budget, or that cannot be read, are left out and reported. Read-only files are writable in the copy.
func TestStreamLeavesOut(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{
		"a": "one\n", ".gitignore": "/data\n/node_modules\n.env\n", "node_modules/x": "x", "data/small": "x", ".env": "KEY=1",
	})
	commit(t, source)
	if err := os.Truncate(filepath.Join(source, "data", "small"), 50<<30); err != nil { // a hole
		t.Skip("the file system has no such files:", err)
	}
	if err := os.Chmod(filepath.Join(source, "a"), 0o444); err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{".env": true, "data": true}
	if os.Geteuid() != 0 {
		write(t, source, map[string]string{"closed": "x"})
		if err := os.Chmod(filepath.Join(source, "closed"), 0); err != nil {
			t.Fatal(err)
		}
		told["closed"] = true
	}
	s := shared(t, source, Options{Stream: true})
	dir := streamed(t, s)
	for _, o := range s.Omitted {
		if !told[o.Path] {
			t.Errorf("%s is said to be missing: %s", o.Path, o.Reason)
		}
		delete(told, o.Path)
		if _, err := os.Lstat(filepath.Join(dir, o.Path)); err == nil {
			t.Errorf("%s is there", o.Path)
		}
	}
	if len(told) > 0 {
		t.Errorf("not told: %v", told)
	}
	if _, err := os.Lstat(filepath.Join(dir, "node_modules", "x")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "a")); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("a is %v, %v", info.Mode(), err)
	}
}

// A repository with missing objects gets one commit, with its files.
func TestStreamFallsBack(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "one\n", ".gitignore": "b\n", "b": "two\n"})
	commit(t, source)
	shell(t, source, "find .git/objects -type f -delete") // as if the disk were damaged
	const want = "one\ntwo\nState of the work tree at the start\n"
	for name, o := range map[string]Options{"streamed": {Stream: true}, "copied": {Ignored: true}} {
		t.Run(name, func(t *testing.T) {
			s := shared(t, source, o)
			dir := s.Dir
			if o.Stream {
				dir = streamed(t, s)
			}
			if got := shell(t, dir, "cat a b; git log --format=%s; git fsck --no-dangling"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
