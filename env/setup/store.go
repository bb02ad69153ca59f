package setup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
)

// Store keeps what set-ups have installed, and which set-up a repository's user has agreed to, in a directory. Several
// processes may use it at once.
type Store struct{ Dir string }

// Entries that have not been used for longestKept are removed; of the others, the mostKept that were used last are
// kept.
const (
	longestKept  = 30 * 24 * time.Hour
	mostKept     = 16
	shortestKept = 24 * time.Hour // longer than any run
)

// The files of an entry.
const (
	recordFile = "installed.json"
	filesDir   = "files"
)

func (s Store) entry(key string) string { return filepath.Join(s.Dir, "kept", key) }

// Get returns the directory that is kept under the key. If there is none, it calls install to fill one. It reports
// whether the directory existed already.
func (s Store) Get(
	ctx context.Context, key string, install func(dir string) (env.Installed, error),
) (_ env.Installed, reused bool, err error) {
	dir := s.entry(key)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return env.Installed{}, false, fmt.Errorf("keep a set-up: %w", err)
	}
	lock, err := waitLock(ctx, dir+".lock")
	if err != nil {
		return env.Installed{}, false, fmt.Errorf("keep a set-up: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	record, files := filepath.Join(dir, recordFile), filepath.Join(dir, filesDir)
	var kept env.Installed
	if disk.ReadJSON(record, &kept) == nil {
		now := time.Now()
		return kept, true, os.Chtimes(record, now, now)
	}
	err = disk.RemoveScratch(files) // left behind by a killed process
	if err == nil {
		err = os.Mkdir(files, 0o711)
	}
	if err == nil {
		kept, err = install(files)
	}
	if err == nil {
		err = disk.WriteJSON(record, kept)
	}
	if err != nil {
		return env.Installed{}, false, errors.Join(err, disk.RemoveScratch(dir))
	}
	return kept, false, s.prune(key)
}

// waitLock waits until no other process installs the same.
func waitLock(ctx context.Context, path string) (*disk.Lock, error) {
	for {
		l, err := disk.TryLock(path)
		if err == nil || !errors.Is(err, disk.ErrLocked) {
			return l, err
		}
		if err := env.Sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// prune removes old entries, except for the one with the key.
func (s Store) prune(key string) error {
	type entry struct {
		name string
		used time.Time
	}
	var all []entry
	entries, err := os.ReadDir(filepath.Join(s.Dir, "kept"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == key {
			continue
		}
		info, err := os.Stat(filepath.Join(s.entry(e.Name()), recordFile))
		if err == nil {
			all = append(all, entry{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(b.used.Compare(a.used), cmp.Compare(a.name, b.name)) })
	var failed error
	for i, e := range all {
		age := time.Since(e.used)
		if age < shortestKept || age < longestKept && i < mostKept {
			continue
		}
		lock, err := disk.TryLock(s.entry(e.name) + ".lock")
		if err != nil {
			continue // it is in use
		}
		failed = errors.Join(failed, disk.RemoveScratch(s.entry(e.name)), lock.Close())
	}
	return failed
}

// Agreed is the record of the set-up that a repository's user has agreed to.
type Agreed struct {
	Root     string    `json:"root"`
	Commands []string  `json:"commands"`
	Since    time.Time `json:"since"`
}

func (s Store) agreement(root string) string {
	sum := sha256.Sum256([]byte(root))
	return filepath.Join(s.Dir, "agreed", hex.EncodeToString(sum[:16])+".json")
}

// Agreement returns the commands that the user has agreed to for a repository, if any.
func (s Store) Agreement(root string) []string {
	var a Agreed
	if disk.ReadJSON(s.agreement(root), &a) != nil || a.Root != root {
		return nil
	}
	return a.Commands
}

// Agree records the commands for a repository, or removes the record if there are none.
func (s Store) Agree(root string, commands []string) error {
	path := s.agreement(root)
	if len(commands) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if slices.Equal(s.Agreement(root), commands) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return disk.WriteJSON(path, Agreed{Root: root, Commands: commands, Since: time.Now().UTC()})
}
