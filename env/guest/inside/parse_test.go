//go:build linux

package inside

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseMark(t *testing.T) {
	for text, want := range map[string]uint64{
		"Max file locks            4611686018427387904  4611686018427387903  locks     \n":           4611686018427387903,
		"Max open files 1 2 files\nMax file locks            7                    5         locks\n": 5,
	} {
		if got, ok := parseMark([]byte(text)); !ok || got != want {
			t.Errorf("%q: %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", "Max file locks            unlimited            unlimited            locks     \n", "Max file locks",
	} {
		if got, ok := parseMark([]byte(text)); ok {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestParseOOMKills(t *testing.T) {
	for text, want := range map[string]int64{
		"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n":                3,
		"low 0\nhigh 0\nmax 12\noom 4\noom_kill 2\noom_group_kill 0\n": 2,
		"oom_kill 0": 0,
	} {
		if got, ok := parseOOMKills([]byte(text)); !ok || got != want {
			t.Errorf("%q: %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "oom_kill_disable 0\nunder_oom 0\n", "oom_kill x\n"} {
		if got, ok := parseOOMKills([]byte(text)); ok {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestLookupUser(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passwd")
	const passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\ndev:x:1000:1000::/home/dev:/bin/sh\n" +
		"dev2:x:1000:1000::/home/2:/bin/sh"
	if err := os.WriteFile(file, []byte(passwd), 0o644); err != nil {
		t.Fatal(err)
	}
	if name, home := lookupUser(file, 1000); name != "dev" || home != "/home/dev" {
		t.Errorf("%s, %s", name, home)
	}
	if name, home := lookupUser(file, 7); name != "" || home != "" {
		t.Errorf("%s, %s", name, home)
	}
}

// fakeEntry is a directory entry with only a name and a kind.
type fakeEntry struct {
	os.DirEntry
	name string
	dir  bool
}

func (f fakeEntry) Name() string { return f.name }
func (f fakeEntry) IsDir() bool  { return f.dir }

// TestByPath: a walk over directories in this order visits all paths in byte order.
func TestByPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seen := map[string]bool{}
		var entries []os.DirEntry
		for _, name := range rapid.SliceOf(rapid.StringMatching(`[a./\-0 ]{1,4}`)).Draw(t, "names") {
			name = strings.ReplaceAll(name, "/", "~")
			if !seen[name] {
				seen[name] = true
				entries = append(entries, fakeEntry{name: name, dir: rapid.Bool().Draw(t, "dir")})
			}
		}
		slices.SortFunc(entries, byPath)
		var paths []string
		for _, e := range entries {
			if e.IsDir() {
				paths = append(paths, e.Name()+"/ ", e.Name()+"/~")
			} else {
				paths = append(paths, e.Name())
			}
		}
		if !slices.IsSorted(paths) {
			t.Fatalf("%q", paths)
		}
	})
}
