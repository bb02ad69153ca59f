package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"deepswe/env"
	"deepswe/env/guest"
)

// machine is a sandbox, and the origin of its files, whose parts can fail.
type machine struct {
	dirTree
	lists, reads, original error
	hangs                  bool // in place of listing
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
	if m.reads != nil {
		return nil, env.FileInfo{}, m.reads
	}
	return m.dirTree.Read(ctx, path, o)
}

func (m *machine) Original(context.Context, string) ([]byte, error) { return nil, m.original }

// What the machinery cannot do is an error, and never a smaller patch; what commands did to a file is the patch's.
func TestPatchOnFailingMachinery(t *testing.T) {
	for name, tt := range map[string]struct {
		machine machine
		omitted string // empty: an infrastructure failure
	}{
		"original not started":    {machine: machine{original: fmt.Errorf("quota: %w", context.DeadlineExceeded)}},
		"image of original gone":  {machine: machine{original: env.ErrNoImage}},
		"original out of memory":  {machine: machine{original: env.ErrExhausted}},
		"original's disk is full": {machine: machine{original: syscall.ENOSPC}},
		"original is refused":     {machine: machine{original: fs.ErrPermission}},
		"guest gone":              {machine: machine{reads: guest.ErrClosed}},
		"failing disk":            {machine: machine{reads: syscall.EIO}},
		"failing disk, listing":   {machine: machine{lists: syscall.EIO}},
		"daemon hangs":            {machine: machine{hangs: true}},
		"credentials lost":        {machine: machine{lists: fmt.Errorf("%w: %w", env.ErrInfrastructure, fs.ErrPermission)}},
		"unreadable file":         {machine: machine{reads: fs.ErrPermission}, omitted: "a"},
		"removed":                 {machine: machine{lists: fs.ErrNotExist}, omitted: "./"},
		"too many files":          {machine: machine{lists: guest.ErrTooLarge}, omitted: "./"},
	} {
		t.Run(name, func(t *testing.T) {
			_, base, work := edited(t, map[string]string{"a": "one\n"}, map[string]string{"a": "two\n"})
			m := tt.machine
			m.dirTree, base.origin = work, &m
			p, err := patchOf(t, base, &m)
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
		return base.Patch(t.Context(), m) // processes do not run in a bubble
	}
	synctest.Test(t, func(t *testing.T) { p, err = base.Patch(t.Context(), m) })
	if err != nil && !strings.Contains(err.Error(), "within") {
		t.Errorf("the error does not name the limit: %v", err)
	}
	return p, err
}
