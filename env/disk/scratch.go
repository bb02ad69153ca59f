package disk

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// MakeScratch creates a directory below parent, or below the system's temporary directory if parent is empty. what
// becomes part of its name and must be a lower-case word.
func MakeScratch(parent, what string) (string, error) {
	dir, err := os.MkdirTemp(parent, "deepswe-"+what+"-"+Self().String()+"-*")
	if err != nil {
		return "", fmt.Errorf("make a scratch directory: %w", err)
	}
	return dir, nil
}

// RemoveScratch removes a directory and everything in it, even if hostile code has made it hard to delete.
func RemoveScratch(dir string) error {
	var err error
	for try := range 5 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			_ = flattenPath(dir) // os.RemoveAll keeps a file open per level
			continue
		}
		if try > 0 {
			time.Sleep(10 * time.Millisecond << try) // a process being killed may still write
		}
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(path, 0o700) // a directory without permissions cannot be emptied
			}
			return nil
		})
	}
	return fmt.Errorf("remove %s: %w", dir, err)
}

func flattenPath(dir string) error {
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(Flatten(root), root.Close())
}

// Flatten moves every directory below root up into root itself, however deep it is. It keeps at most two files open.
func Flatten(root *os.Root) error {
	for todo := []string{"."}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if err := root.Chmod(at, 0o700); err != nil {
			return err
		}
		d, err := root.Open(at)
		if err != nil {
			return err
		}
		entries, err := d.ReadDir(-1)
		if err := errors.Join(err, d.Close()); err != nil {
			return err
		}
		for _, e := range entries {
			name := e.Name()
			if !e.IsDir() {
				continue
			}
			if at != "." {
				name = rand.Text()
				from := filepath.Join(at, e.Name())
				// A directory must itself be writable to be moved, because its ".." entry changes.
				if err := errors.Join(root.Chmod(from, 0o700), root.Rename(from, name)); err != nil {
					return err
				}
			}
			todo = append(todo, name)
		}
	}
	return nil
}

// Abandoned is a scratch directory of a dead process.
type Abandoned struct {
	Dir string
	PID int
	Age time.Duration
}

// Reaping selects what ReapScratch removes: with All, also the directories of living processes; with DryRun,
// nothing.
type Reaping struct{ All, DryRun bool }

// ReapScratch removes the directories below parent whose process is dead, and returns them. If processes cannot be
// inspected, all count as alive. It ignores other users' directories.
func ReapScratch(ctx context.Context, parent string, o Reaping) ([]Abandoned, error) {
	parent = cmp.Or(parent, os.TempDir())
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, fmt.Errorf("reap scratch directories: %w", err)
	}
	var found []Abandoned
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
			continue // removed meanwhile, or not made by MakeScratch
		}
		dir := filepath.Join(parent, entry.Name())
		found = append(found, Abandoned{Dir: dir, PID: owner.PID, Age: time.Since(info.ModTime())})
		if !o.DryRun {
			failed = append(failed, RemoveScratch(dir))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return found, fmt.Errorf("reap scratch directories: %w", err)
	}
	return found, nil
}

// scratchOwner parses the owner from the name of a directory that MakeScratch made.
func scratchOwner(name string) (Owner, bool) {
	part := strings.Split(name, "-")
	if len(part) != 4 || part[0] != "deepswe" || !madeOf(part[1], "abcdefghijklmnopqrstuvwxyz") ||
		!madeOf(part[3], "0123456789") {
		return Owner{}, false
	}
	return parseOwner(part[2])
}

// ours reports whether the current user owns the file.
func ours(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
