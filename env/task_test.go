package env_test

import (
	"path/filepath"
	"slices"
	"testing"

	"deepswe/env"
	"deepswe/env/testkit"
)

func TestDepends(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"node_modules": true, ".venv": true, "packages/a/node_modules": true, "packages/a/vendor": false, "src": false,
		"../node_modules": false, "/node_modules": false, "a//node_modules": false, "": false,
	} {
		if got := env.Depends(name); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
}

// Vite and AVA may write to their folders in each package's node_modules that has them. Nothing else is writable.
func TestSpecShows(t *testing.T) {
	t.Parallel()
	installed := t.TempDir()
	testkit.WriteFile(t, filepath.Join(installed, "p/a/node_modules/.vite-temp/x"), "")
	testkit.WriteFile(t, filepath.Join(installed, "p/a/node_modules/.cache/x"), "")
	task := env.Task{
		Repository: "/r", BaseCommit: "c", Dir: "/testbed", Installed: installed, Shows: []string{"node_modules", "p/a/node_modules"},
	}
	var got []string
	for _, s := range task.Spec().Shown {
		if s.Writable {
			got = append(got, s.Path)
		} else if s.Host != filepath.Join(installed, s.Path[len("/testbed/"):]) {
			t.Errorf("%s is at %s", s.Path, s.Host)
		}
	}
	want := []string{"/testbed/p/a/node_modules/.vite-temp", "/testbed/p/a/node_modules/.cache"}
	if !slices.Equal(got, want) {
		t.Errorf("writable are %q, want %q", got, want)
	}
}
