package run

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"deepswe/env/disk"
)

// Reader is the content of a run directory when it was read. Reading takes no lock and changes nothing, so the run
// may be in progress and the directory read-only.
type Reader struct {
	// Manifest describes the run.
	Manifest Manifest
	// Outcomes are those of the attempts that have ended, in the order of their first try. An attempt that failed
	// and was played again has its last outcome.
	Outcomes []Outcome
	// Notes are the events added with [Dir.Note], in order.
	Notes []Note
	// Last is the time of the last event; zero if there is none.
	Last time.Time

	path string
}

// Note is an event added with [Dir.Note].
type Note struct {
	Event string
	Data  json.RawMessage
}

// List reads the manifests of the runs in the directories below parent, newest first. It skips directories without
// a run, and runs of newer programs.
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
		if m, err := ReadManifest(path); err == nil {
			all = append(all, Listed{Path: path, Manifest: m})
		}
	}
	slices.SortStableFunc(all, func(a, b Listed) int { return b.Manifest.Created.Compare(a.Manifest.Created) })
	return all, nil
}

// Listed is a run found by [List].
type Listed struct {
	Path     string
	Manifest Manifest
}

// Read reads the run in the directory, of any kind and also in an older format. It returns fs.ErrNotExist if there
// is no run, and [ErrOther] if a newer program created it.
func Read(path string) (*Reader, error) {
	r := &Reader{path: path}
	var err error
	if r.Manifest, err = ReadManifest(path); err != nil {
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
			r.Notes = append(r.Notes, Note{Event: e.Event, Data: e.Data})
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

// parseRecord reads a line of events.jsonl. The error wraps [disk.ErrDamaged] if it is not what was written.
func parseRecord(line []byte) (record, error) {
	var e record
	if i := bytes.LastIndex(line, []byte(sumField)); i >= 0 && !bytes.Equal(line, sealed(line[:i])) {
		return e, fmt.Errorf("its checksum is wrong: %w", disk.ErrDamaged)
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("%w: %w", disk.ErrDamaged, err)
	}
	return e, nil
}

// sumField begins the last field of a line of events.jsonl: the CRC-32C of everything before it. Older runs have none.
const sumField = `,"crc32c":"`

// sealed ends a line, given without its closing brace, with its checksum.
func sealed(line []byte) []byte {
	sum := crc32.Checksum(line, crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(line[:len(line):len(line)], `%s%08x"}`, sumField, sum)
}

// Writer returns the process that writes to the directory, and whether it is alive, as far as this process can see;
// Dead if there is none.
func (r *Reader) Writer() (disk.Holder, disk.Liveness) {
	h, alive, err := disk.ReadHolder(filepath.Join(r.path, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return h, disk.Dead
	}
	return h, alive
}

// AttemptDir returns the directory of an attempt, which need not exist.
func (r *Reader) AttemptDir(job Job) string { return attemptPath(r.path, job) }

// AttemptDirs returns the existing directories of attempts, in order.
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
		slices.SortStableFunc(attempts, func(a, b fs.DirEntry) int { // by number; they are already sorted by name
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

// At returns a Reader of the directory that has read nothing, for the process that writes to it and for paths.
func At(path string) *Reader { return &Reader{path: path} }
