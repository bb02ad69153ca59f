package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/env"
	"deepswe/env/guest"
)

// machine is a sandbox, and the source of its original files, whose calls can fail.
type machine struct {
	dirTree
	lists, reads, original error
	hangs                  bool // instead of listing
	read                   atomic.Int64
}

func (m *machine) Tree(ctx context.Context, root string, o env.TreeOptions) ([]env.FileInfo, error) {
	if m.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if m.lists != nil {
		return nil, m.lists
	}
	return m.dirTree.Tree(ctx, root, o)
}

func (m *machine) Read(ctx context.Context, path string, o env.ReadOptions) ([]byte, env.FileInfo, error) {
	m.read.Add(1)
	if m.reads != nil {
		return nil, env.FileInfo{}, m.reads
	}
	return m.dirTree.Read(ctx, path, o)
}

func (m *machine) Original(context.Context, string) ([]byte, error) { return nil, m.original }

// A failure of the machinery is an error, and never a smaller patch. What commands have done to a file is an omission.
func TestPatchOnFailingMachinery(t *testing.T) {
	for name, tt := range map[string]struct {
		machine *machine
		omitted string // empty: an infrastructure failure
	}{
		"original not started":    {machine: &machine{original: fmt.Errorf("quota: %w", context.DeadlineExceeded)}},
		"image of original gone":  {machine: &machine{original: env.ErrNoImage}},
		"original out of memory":  {machine: &machine{original: env.ErrExhausted}},
		"original's disk is full": {machine: &machine{original: syscall.ENOSPC}},
		"original is refused":     {machine: &machine{original: fs.ErrPermission}},
		"guest gone":              {machine: &machine{reads: guest.ErrClosed}},
		"failing disk":            {machine: &machine{reads: syscall.EIO}},
		"failing disk, listing":   {machine: &machine{lists: syscall.EIO}},
		"daemon hangs":            {machine: &machine{hangs: true}},
		"credentials lost":        {machine: &machine{lists: fmt.Errorf("%w: %w", env.ErrInfrastructure, fs.ErrPermission)}},
		"unreadable file":         {machine: &machine{reads: fs.ErrPermission}, omitted: "a"},
		"removed":                 {machine: &machine{lists: fs.ErrNotExist}, omitted: "./"},
		"too many files":          {machine: &machine{lists: guest.ErrTooLarge}, omitted: "./"},
	} {
		t.Run(name, func(t *testing.T) {
			_, base, work := edited(t, map[string]string{"a": "one\n"}, map[string]string{"a": "two\n"})
			m := tt.machine
			m.dirTree, base.origin = work, m
			p, err := patchOf(t, base, m)
			switch {
			case tt.omitted == "":
				if !errors.Is(err, env.ErrInfrastructure) || errors.Is(err, env.ErrExhausted) {
					t.Errorf("patch %+v, error %v, want an infrastructure failure", p, err)
				}
			case err != nil || len(p.Omitted) != 1 || p.Omitted[0].Path != tt.omitted:
				t.Errorf("omitted %v, error %v, want %s", p.Omitted, err, tt.omitted)
			}
		})
	}
}

// patchOf computes a patch, without waiting for time limits.
func patchOf(t *testing.T, base *Base, m *machine) (p Patch, err error) {
	if !m.hangs {
		return base.Patch(t.Context(), m) // processes do not work in a bubble
	}
	synctest.Test(t, func(t *testing.T) { p, err = base.Patch(t.Context(), m) })
	if err != nil && !strings.Contains(err.Error(), "within") {
		t.Errorf("the error does not name the limit: %v", err)
	}
	return p, err
}

// Ignore patterns of the agent that take for ever to match are ignored in favour of the base's. If the base's own
// patterns do, that is an error, so that ignored files do not get into the patch.
func TestPatchWithEndlessIgnoreRules(t *testing.T) {
	endless, deep := strings.Repeat("a/**/", 12)+"b\n", strings.Repeat("a/", 40)+"c"
	_, base, work := edited(t, map[string]string{".gitignore": "*.log\n"},
		map[string]string{".gitignore": "*.log\n", deep: "new\n", "a/.gitignore": endless[2:], "x.log": "ignored\n"})
	base.matching = 2 * time.Second
	if p, err := base.Patch(t.Context(), work); err != nil || len(p.Files) != 2 || p.Ignored != 1 {
		t.Errorf("patch of %v, %d ignored, error %v", p.Files, p.Ignored, err)
	}
	_, base, work = edited(t, map[string]string{".gitignore": endless}, map[string]string{".gitignore": endless, deep: ""})
	base.matching = 100 * time.Millisecond
	if p, err := base.Patch(t.Context(), work); !errors.Is(err, env.ErrInfrastructure) {
		t.Errorf("patch of %v, error %v, want an infrastructure failure", p.Files, err)
	}
}

// No more files are read than a patch can contain, because each takes time.
func TestPatchReadsNoMoreThanItHolds(t *testing.T) {
	_, base, work := edited(t, map[string]string{"a": "one\n"}, map[string]string{"a": "two\n"})
	for i := range 20 {
		large := filepath.Join(work.dir, fmt.Sprint(i))
		if err := errors.Join(os.WriteFile(large, nil, 0o644), os.Truncate(large, maxFile)); err != nil {
			t.Fatal(err)
		}
	}
	m := &machine{dirTree: work}
	p, err := base.Patch(t.Context(), m)
	if err != nil || len(p.Files) == 0 || p.Files[len(p.Files)-1] != "a" || len(p.Files)+len(p.Omitted) != 21 {
		t.Errorf("patch of %v without %v, error %v", p.Files, p.Omitted, err)
	}
	if n := m.read.Load(); n > 10 {
		t.Errorf("%d files were read", n)
	}
}
