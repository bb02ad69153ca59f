//go:build linux

package inside

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deepswe/env/guest"
)

// A tree that remembers an earlier one describes every file like a tree that does not, however it was changed.
func TestRemember(t *testing.T) {
	dir := t.TempDir()
	names := []string{"same", "rewritten", "appended", "replaced", "linked", "mode", "removed", "back in time"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("0123456789"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(150 * time.Millisecond) // a file that has just changed is not remembered
	c := start(t, dir)
	tree := func(o guest.TreeOptions) []guest.FileInfo {
		files, err := c.Tree(t.Context(), "", o)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	first := tree(guest.TreeOptions{Remember: true})
	if diff := cmp.Diff(first, tree(guest.TreeOptions{})); diff != "" {
		t.Errorf("of the same files (-first +second):\n%s", diff)
	}
	out, err := exec.Command("sh", "-c", "cd "+dir+`
		touch -r same stamp
		printf 9876543210 >rewritten; touch -r stamp rewritten
		printf more >>appended
		printf 9876543210 >new; touch -r stamp new; mv new replaced
		printf 9876543210 >new; ln -f new linked
		chmod 755 mode
		rm removed
		printf 9876543210 >"back in time"; touch -d 2001-01-01 "back in time"`).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	changed := tree(guest.TreeOptions{})
	if diff := cmp.Diff(tree(guest.TreeOptions{Remember: true}), changed); diff != "" {
		t.Errorf("of changed files (-read +remembered):\n%s", diff)
	}
}

// A tree takes versions from what the host says about its files, if a file matches that description. It reads all
// others.
func TestTold(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir)
	var told []guest.KnownFile
	put := func(name string, change func(*guest.KnownFile)) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("0123456789"), 0o644); err != nil {
			t.Fatal(err)
		}
		f := guest.KnownFile{Path: name, Size: 10, Modified: 1_000_000_000, Version: strings.Repeat("5a", 32)}
		if err := os.Chtimes(path, time.Time{}, time.Unix(f.Modified, 0)); err != nil {
			t.Fatal(err)
		}
		change(&f)
		told = append(told, f)
	}
	put("as told", func(*guest.KnownFile) {})
	put("new\nline \xe9", func(*guest.KnownFile) {})
	put("other size", func(f *guest.KnownFile) { f.Size++ })
	put("other time", func(f *guest.KnownFile) { f.Modified++ })
	put("no version", func(f *guest.KnownFile) { f.Version = "" })
	put("changed since", func(*guest.KnownFile) {})
	put("not there", func(f *guest.KnownFile) { f.Path = "elsewhere" })
	time.Sleep(150 * time.Millisecond) // a file that has just changed is not remembered
	if err := c.Remember(t.Context(), "", told); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "changed since"), []byte("9876543210"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, o := range []guest.TreeOptions{{Remember: true}, {}} { // the second uses what the first remembered
		files, err := c.Tree(t.Context(), "", o)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			fromHost := f.Version == strings.Repeat("5a", 32)
			if want := f.Path == "as told" || f.Path == "new\nline \xe9"; fromHost != want || len(f.Version) != 64 {
				t.Errorf("%+v: %q has the version %s", o, f.Path, f.Version)
			}
		}
		if len(files) != len(told) {
			t.Errorf("%d files, want %d", len(files), len(told))
		}
	}
	// A tree that is to be remembered does not use what an earlier tree remembered.
	if err := os.WriteFile(filepath.Join(dir, "later"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	files, err := c.Tree(t.Context(), "", guest.TreeOptions{Remember: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Version == strings.Repeat("5a", 32) {
			t.Errorf("%q was not read again", f.Path)
		}
	}
}

// A version is remembered only for the same stamp, and only if the file had not just changed.
func TestMemoryKnows(t *testing.T) {
	sum := "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	old := stamp{device: 1, inode: 2, size: 3, modified: 4, change: 5, seen: int64(time.Second)}
	entry := func(change func(*stamp)) *treeEntry {
		f := &treeEntry{FileInfo: guest.FileInfo{Path: "f", Kind: guest.KindFile, Size: 3, Version: sum}, stamp: old}
		change(&f.stamp)
		return f
	}
	for name, c := range map[string]struct {
		before, after func(*stamp)
		want          bool
	}{
		"unchanged":    {func(*stamp) {}, func(s *stamp) { s.seen++ }, true},
		"inode":        {func(*stamp) {}, func(s *stamp) { s.inode++ }, false},
		"size":         {func(*stamp) {}, func(s *stamp) { s.size++ }, false},
		"change time":  {func(*stamp) {}, func(s *stamp) { s.change++ }, false},
		"just changed": {func(s *stamp) { s.change = s.seen }, func(s *stamp) { s.change = s.seen }, false},
		"no status":    {func(s *stamp) { *s = stamp{} }, func(s *stamp) { *s = stamp{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(t.TempDir())
			if m == nil {
				t.Skip("the change times of this file system may not be exact")
			}
			m.add(entry(c.before))
			f := entry(c.after)
			f.Version = ""
			if got := m.knows(f); got != c.want || got != (f.Version == sum) {
				t.Errorf("knows is %v, the version %q", got, f.Version)
			}
		})
	}
}
