package disk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// makeEnv, if set, makes the test binary create a scratch directory in the directory that it names, and exit.
const makeEnv = "SCRATCH_TEST_PARENT"

func TestMain(m *testing.M) {
	if parent := os.Getenv(makeEnv); parent != "" {
		dir, err := MakeScratch(parent, "victim")
		if err != nil {
			panic(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, "locked", "deep"), 0o755); err != nil {
			panic(err)
		}
		if err := os.Chmod(filepath.Join(dir, "locked"), 0); err != nil {
			panic(err)
		}
		os.Exit(0) // without removing it, as if it had been killed
	}
	os.Exit(m.Run())
}

func leave(t *testing.T, parent string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), makeEnv+"="+parent)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// What a dead process left is removed. What belongs to living processes, or only looks like ours, is kept.
func TestReapRemovesWhatTheDeadLeft(t *testing.T) {
	me := Self()
	if me.Liveness(me) != Alive {
		t.Skip("this system does not tell when a process was started")
	}
	parent := t.TempDir()
	living, err := MakeScratch(parent, "base")
	if err != nil {
		t.Fatal(err)
	}
	for _, foreign := range []string{"deepswe-base-123", "deepswe-host-1-2-3", "other"} {
		if err := os.Mkdir(filepath.Join(parent, foreign), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := strings.Replace(filepath.Base(living), me.Boot[:8], "ffffffff", 1)
	if err := os.Symlink(living, filepath.Join(parent, link)); err != nil {
		t.Fatal(err)
	}
	before := names(t, parent)
	leave(t, parent)

	would, err := ReapScratch(t.Context(), parent, Reaping{DryRun: true})
	if err != nil || len(would) != 1 || len(names(t, parent)) != len(before)+1 {
		t.Fatalf("a dry run found %v (%v) and left %q", would, err, names(t, parent))
	}
	did, err := ReapScratch(t.Context(), parent, Reaping{})
	if err != nil || len(did) != 1 || did[0].Dir != would[0].Dir || did[0].PID == 0 {
		t.Fatalf("reaped %v (%v), want %v", did, err, would)
	}
	if after := names(t, parent); !slices.Equal(after, before) {
		t.Errorf("left %q, want %q", after, before)
	}
	if _, err := ReapScratch(t.Context(), parent, Reaping{All: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(living); !os.IsNotExist(err) {
		t.Errorf("All left %s (%v)", living, err)
	}
}

func TestNamesSayWhose(t *testing.T) {
	dir, err := MakeScratch(t.TempDir(), "patch")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(dir)
	if got, ok := scratchOwner(name); !ok || got.String() != Self().String() {
		t.Errorf("scratchOwner(%q) = %+v, %v; want %+v", name, got, ok, Self())
	}
	for _, bad := range []string{"x" + name, name + "x", name + "-1", "deepswe-base-1", "deepswe-A-" + Self().String() +
		"-1"} {
		if got, ok := scratchOwner(bad); ok {
			t.Errorf("scratchOwner(%q) = %+v", bad, got)
		}
	}
}

// A tree that is deeper than the limits on open files and on the length of a path is flattened.
func TestFlatten(t *testing.T) {
	t.Parallel()
	dir, err := MakeScratch(t.TempDir(), "deep")
	if err != nil {
		t.Fatal(err)
	}
	at, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 1200 {
		if err := errors.Join(at.Mkdir("deeper", 0o700), at.WriteFile("file", nil, 0o600), at.Symlink("nowhere", "link")); err != nil {
			t.Fatal(err)
		}
		below, err := at.OpenRoot("deeper")
		if err := errors.Join(err, at.Chmod(".", 0), at.Close()); err != nil {
			t.Fatal(err)
		}
		at = below
	}
	at.Close()
	if err := flattenPath(dir); err != nil {
		t.Fatal(err)
	}
	if deep, err := filepath.Glob(filepath.Join(dir, "*", "*", "*")); err != nil || len(deep) > 0 {
		t.Errorf("%d files are still deep, %v", len(deep), err)
	}
	if err := RemoveScratch(dir); err != nil {
		t.Error(err)
	}
}
