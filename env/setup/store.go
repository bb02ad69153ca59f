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
type Store struct {
	Dir string
	// Lasting is set where entries are kept until somebody removes them.
	Lasting bool
}

// Entries that have not been used for longestKept are removed. Of the others, the mostKept that were used last are
// kept, and all that were used within shortestKept.
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
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
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
		err = os.MkdirAll(dir, 0o700)
	}
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
	if !s.Lasting {
		_, err = s.Reap(env.ReapOptions{})
	}
	return kept, false, err
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

// Reap removes the entries that are no longer kept, and those of killed processes; with o.All it removes all. Entries
// that a process is installing are left alone.
func (s Store) Reap(o env.ReapOptions) ([]env.Leftover, error) {
	all, err := s.entries()
	if err != nil {
		return nil, err
	}
	var left []env.Leftover
	var failed error
	complete := 0
	for _, e := range all {
		age := time.Since(e.used)
		if e.complete {
			complete++
			if !o.All && (age < shortestKept || age < longestKept && complete <= mostKept) {
				continue
			}
		}
		dir := s.entry(e.name)
		lock, err := disk.TryLock(dir + ".lock")
		if err != nil {
			continue // it is being installed or looked up
		}
		if now, err := s.look(e.name); err != nil || now != e && !o.All {
			failed = errors.Join(failed, lock.Close()) // it was removed or used in the meantime
			continue
		}
		if !o.DryRun {
			err = disk.RemoveScratch(dir)
		}
		if err == nil {
			left = append(left, env.Leftover{Provider: "cache", Kind: "set-up", ID: dir, Age: age.Round(time.Second)})
		}
		failed = errors.Join(failed, err, lock.Close())
	}
	if failed != nil {
		failed = fmt.Errorf("remove old set-ups: %w", failed)
	}
	return left, failed
}

type entry struct {
	name     string
	used     time.Time
	complete bool // otherwise a process is filling it, or was killed while it did
}

// entries returns all entries, those that were used last first.
func (s Store) entries() ([]entry, error) {
	list, err := os.ReadDir(filepath.Join(s.Dir, "kept"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []entry
	for _, e := range list {
		if !e.IsDir() {
			continue
		}
		if found, err := s.look(e.Name()); err == nil {
			all = append(all, found)
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(b.used.Compare(a.used), cmp.Compare(a.name, b.name)) })
	return all, nil
}

func (s Store) look(name string) (entry, error) {
	info, err := os.Stat(filepath.Join(s.entry(name), recordFile))
	complete := err == nil
	if !complete {
		info, err = os.Stat(s.entry(name))
	}
	if err != nil {
		return entry{}, err
	}
	return entry{name, info.ModTime(), complete}, nil
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
