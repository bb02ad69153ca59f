// Package disk keeps files: it makes directories for temporary files whose names say whose they are, so that what a killed process
// left can be found and removed by the next one.
//
// It imports env for what a leftover is, and nothing else of ours. Its functions are safe for concurrent use, also by
// several processes.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"deepswe/env"
)

// provider is the name under which a leftover is told: these directories are those of no sandbox.
const provider = "temporary"

// MakeScratch makes a directory below parent, the system's directory for temporary files when empty. What it is for becomes
// part of its name: a lower-case word.
func MakeScratch(parent, what string) (string, error) {
	dir, err := os.MkdirTemp(parent, "deepswe-"+what+"-"+Self().String()+"-*")
	if err != nil {
		return "", fmt.Errorf("make a scratch directory: %w", err)
	}
	return dir, nil
}

// RemoveScratch removes a directory and everything in it, also where something in it has taken away the right to.
func RemoveScratch(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	// What cannot be entered or changed is told by the second try.
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// ReapScratch removes the directories below parent whose owner is dead, and returns them. Where processes cannot be looked at,
// every owner counts as living. Directories of other users are left to them.
func ReapScratch(ctx context.Context, parent string, o env.ReapOptions) ([]env.Leftover, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, fmt.Errorf("reap scratch directories: %w", err)
	}
	var found []env.Leftover
	var failed []error
	me := Self()
	for _, entry := range entries {
		if ctx.Err() != nil {
			return found, context.Cause(ctx)
		}
		owner, ok := scratchOwner(entry.Name())
		if !ok || !o.All && owner.Liveness(me) != Dead {
			continue
		}
		info, err := entry.Info()
		if err != nil || !info.IsDir() || !ours(info) {
			continue // gone meanwhile, or not what we make
		}
		dir := filepath.Join(parent, entry.Name())
		found = append(found, env.Leftover{
			Provider: provider, Kind: "directory", ID: dir, Owner: fmt.Sprintf("process %d", owner.PID), Age: time.Since(info.ModTime()),
		})
		if !o.DryRun {
			failed = append(failed, RemoveScratch(dir))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return found, fmt.Errorf("reap scratch directories: %w", err)
	}
	return found, nil
}

// scratchOwner reads the owner from the name of a directory that MakeScratch made.
func scratchOwner(name string) (Owner, bool) {
	part := strings.Split(name, "-")
	if len(part) != 4 || part[0] != "deepswe" || part[1] == "" || strings.Trim(part[1], "abcdefghijklmnopqrstuvwxyz") != "" ||
		part[3] == "" || strings.Trim(part[3], "0123456789") != "" {
		return Owner{}, false
	}
	return ParseOwner(part[2])
}

// ours reports whether this process's user owns the file.
func ours(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
