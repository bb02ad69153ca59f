package run

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"deepswe/env/disk"
)

// Reader is a run directory as it was when it was read. Reading takes no lock and changes nothing, so the run may be
// under way, and the directory read-only.
type Reader struct {
	// Manifest is what the run is.
	Manifest Manifest
	// Outcomes are those of the attempts that have ended, in the order of their first try. A failed attempt that was
	// tried again later has its last outcome.
	Outcomes []Outcome
	// Notes are the events that the program behind the run added ([Dir.Note]), in their order.
	Notes []Note
	// Last is the time of the last event, zero where there is none.
	Last time.Time

	path string
}

// Note is an event of the program behind a run.
type Note struct {
	Time  time.Time
	Event string
	Data  json.RawMessage
}

// List reads the manifests of the runs in the directories below parent, the newest first. What is no run, or one of a
// newer program, is left out.
func List(parent string) ([]Listed, error) {
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	var all []Listed
	for _, e := range entries {
		path := filepath.Join(parent, e.Name())
		if m, err := readManifest(path); err == nil {
			all = append(all, Listed{Path: path, Manifest: m})
		}
	}
	slices.SortStableFunc(all, func(a, b Listed) int { return b.Manifest.Created.Compare(a.Manifest.Created) })
	return all, nil
}

// Listed is a run that [List] found.
type Listed struct {
	Path     string
	Manifest Manifest
}

// Read reads the run in the directory, of any kind, also one in the older format. It fails with fs.ErrNotExist where
// there is no run, and with [ErrOther] where a newer program made it.
func Read(path string) (*Reader, error) {
	r := &Reader{path: path}
	var err error
	if r.Manifest, err = readManifest(path); err != nil {
		return nil, err
	}
	place := map[Job]int{}
	err = disk.ReadLog(filepath.Join(path, eventsFile), func(line []byte) error {
		e, err := parseRecord(line)
		if err != nil {
			return err
		}
		r.Last = e.Time
		if e.Outcome == nil {
			r.Notes = append(r.Notes, Note{Time: e.Time, Event: e.Event, Data: e.Data})
			return nil
		}
		i, again := place[key(e.Job)]
		if !again {
			i = len(r.Outcomes)
			place[key(e.Job)] = i
			r.Outcomes = append(r.Outcomes, Outcome{})
		}
		r.Outcomes[i] = *e.Outcome
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read run: %w", err)
	}
	return r, nil
}

func parseRecord(line []byte) (record, error) {
	var e record
	err := json.Unmarshal(line, &e)
	return e, err
}

// Writer reports who writes the directory, and whether that process is alive as far as this one can see; it is Dead
// where nobody does.
func (r *Reader) Writer() (disk.Holder, disk.Liveness) {
	h, alive, err := disk.ReadHolder(filepath.Join(r.path, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return h, disk.Dead
	}
	return h, alive
}

// AttemptDir is the directory of an attempt, which need not exist.
func (r *Reader) AttemptDir(job Job) string { return attemptPath(r.path, job) }

// AttemptDirs are the directories of attempts that exist, in order.
func (r *Reader) AttemptDirs() ([]string, error) {
	groups, err := os.ReadDir(filepath.Join(r.path, rolloutsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, group := range groups {
		path := filepath.Join(r.path, rolloutsDir, group.Name())
		attempts, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		slices.SortStableFunc(attempts, func(a, b fs.DirEntry) int { // by number, as they are sorted by name already
			m, _ := strconv.Atoi(a.Name())
			n, _ := strconv.Atoi(b.Name())
			return cmp.Compare(m, n)
		})
		for _, a := range attempts {
			dirs = append(dirs, filepath.Join(path, a.Name()))
		}
	}
	return dirs, nil
}
