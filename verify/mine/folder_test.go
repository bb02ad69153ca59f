package mine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/env"
)

// The newest tasks are held out in a folder beside the others, which is emptied when none are held out any more. A
// folder of that name is left alone if the miner did not write it.
func TestHeldOut(t *testing.T) {
	t.Parallel()
	f := Folder{filepath.Join(t.TempDir(), "tasks")}
	if err := os.MkdirAll(filepath.Join(f.Path, workDir), 0o755); err != nil {
		t.Fatal(err)
	}
	tasks := []env.Task{{ID: "old"}, {ID: "new"}}
	check := func(r Report, older, newer int) {
		t.Helper()
		if err := f.Write(tasks, r); err != nil {
			t.Fatal(err)
		}
		for at, want := range map[Folder]int{f: older, f.Held(): newer} {
			text, _ := os.ReadFile(filepath.Join(at.Path, TasksFile))
			if got := strings.Count(string(text), "\n"); got != want {
				t.Errorf("%s has %d tasks, want %d", at.Path, got, want)
			}
		}
	}
	if err := os.MkdirAll(f.Held().Path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.Held().Path, TasksFile), []byte("1\n2\n3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	check(Report{}, 2, 3)
	check(Report{Share: 0.5, Held: 1}, 1, 1)
	check(Report{}, 2, 0)
}
