//go:build linux

package inside

import (
	"errors"
	"os"
	"testing"
	"time"

	"deepswe/env/disk"
)

// Directories that are nested too deep to be removed are flattened, even without permissions. All others are kept.
func TestTidy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := at.MkdirAll("a/b/c", 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * deepestLeft {
		mode := os.FileMode(0o700)
		if i > deepestLeft {
			mode = 0
		}
		if err := at.Mkdir("deeper", 0o755); err != nil {
			t.Fatal(err)
		}
		below, err := at.OpenRoot("deeper")
		if err := errors.Join(err, at.Chmod(".", mode), at.Close()); err != nil {
			t.Fatal(err)
		}
		at = below
	}
	if err := at.Close(); err != nil {
		t.Fatal(err)
	}
	w := &diskWatch{
		began: time.Now(), thread: newThreads(1, nil), roots: []diskRoot{{path: dir}},
		first: []disk.Space{{FreeFiles: 1 << 60}},
	}
	defer w.thread.close()
	if err := w.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	depth, path := 0, dir
	for {
		path += "/deeper"
		if _, err := os.Stat(path); err != nil {
			break
		}
		depth++
	}
	if _, err := os.Stat(dir + "/a/b/c"); err != nil || depth < deepestLeft-1 || depth > deepestLeft+1 {
		t.Errorf("%d directories are left in each other, %v", depth, err)
	}
}
