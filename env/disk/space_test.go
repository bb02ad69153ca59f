package disk

import (
	"errors"
	"strings"
	"testing"
)

func TestSpaceCheck(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for _, c := range []struct {
		name  string
		space Space
		fails string
	}{
		{"plenty", Space{Free: 50 * gib, Total: 100 * gib, FreeFiles: 1 << 20, Files: 1 << 24}, ""},
		{"little on a large disk", Space{Free: gib, Total: 100 * gib}, "1.0 GiB left, and sandboxes need 2.0 GiB"},
		{"the same on a small one", Space{Free: gib, Total: 10 * gib}, ""},
		{"nothing on a small one", Space{Free: 1 << 20, Total: gib}, "1 MiB left, and sandboxes need 51 MiB"},
		{"no inodes", Space{Free: 50 * gib, Total: 100 * gib, FreeFiles: 100, Files: 1 << 24}, "room for 100 more files"},
		{"inodes that are not counted", Space{Free: 50 * gib, Total: 100 * gib}, ""},
		{"unknown", Space{}, ""},
	} {
		err := c.space.Check("/scratch")
		switch {
		case c.fails == "" && err == nil:
		case c.fails == "" || err == nil || !errors.Is(err, ErrNearlyFull) || !strings.Contains(err.Error(), c.fails) ||
			!strings.Contains(err.Error(), "/scratch"):
			t.Errorf("%s: %v, want %q", c.name, err, c.fails)
		}
	}
}

func TestSpaceOf(t *testing.T) {
	t.Parallel()
	if s, err := SpaceOf(t.TempDir()); err != nil || s.Free > s.Total || s.FreeFiles > s.Files {
		t.Errorf("%+v, %v", s, err)
	}
}
