package run

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"deepswe/env/disk"
)

// The names of files in a run directory.
const (
	manifestFile = "manifest.json"
	eventsFile   = "events.jsonl"
	lockFile     = "LOCK"
	rolloutsDir  = "rollouts"
)

// Version is the format of run directories that this program writes. Directories of version 1 can be read but not
// resumed.
const Version = 2

// Kind is the command that created a run.
type Kind string

// The kinds of runs.
const (
	Solve Kind = "solve"
	Eval  Kind = "eval"
	Grade Kind = "grade"
	Train Kind = "train"
	Mine  Kind = "mine"
)

// Manifest is the content of manifest.json, which describes a run. It does not change during the run.
type Manifest struct {
	Version int       `json:"version"`
	Kind    Kind      `json:"kind"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	// Program is the name and version of the program that created the run.
	Program string `json:"program"`
	// Settings belong to the kind of run.
	Settings json.RawMessage `json:"settings,omitempty"`
}

// Reasons why a run cannot be written to a directory.
var (
	// ErrLocked reports that another process is writing to it.
	ErrLocked = disk.ErrLocked
	// ErrExists reports that it already contains a run, which can be resumed but not created.
	ErrExists = errors.New("the directory already holds a run")
	// ErrOther reports that it contains a run of another kind, or in another format.
	ErrOther = errors.New("another kind of run")
)

type otherError string

func (e otherError) Error() string        { return string(e) }
func (e otherError) Is(target error) bool { return target == ErrOther }

func other(format string, args ...any) error { return otherError(fmt.Sprintf(format, args...)) }

// ReadManifest reads the manifest of the run in the directory. It returns fs.ErrNotExist if there is no run, and
// ErrOther if a newer program created it.
func ReadManifest(path string) (Manifest, error) {
	var m Manifest
	name := filepath.Join(path, manifestFile)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("there is no run in %s: %w", path, err)
	}
	if err != nil {
		return m, fmt.Errorf("read run: %w", err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("read run: %s: %w", name, err)
	}
	switch {
	case m.Version > Version:
		return m, other("%s was made by %s, in format %d, and this program knows formats up to %d: use a newer deepswe",
			path, m.Program, m.Version, Version)
	case m.Version < 1 || m.Kind == "":
		return m, other("%s is not the manifest of a run", name)
	case m.Version == 1: // the settings were members of the manifest itself
		m.ID, m.Settings = idOf(path), data
	}
	return m, nil
}

// Resumable returns the manifest of a run if the run can be resumed as one of the given kind; a process may still
// be writing it. Otherwise it returns fs.ErrNotExist if there is no run, or ErrOther if it is of another kind or in
// another format.
func Resumable(path string, kind Kind) (Manifest, error) {
	m, err := ReadManifest(path)
	switch {
	case err != nil:
		return m, err
	case m.Kind != kind:
		return m, other("%s holds a run of %s, not of %s: choose another --out", path, m.Kind, kind)
	case m.Version < Version:
		return m, other("%s was made by an older program (%s), in format %d: resume it with that one, or begin a new run "+
			"with another --out", path, m.Program, m.Version)
	}
	return m, nil
}

// idOf returns the ID of a run without one in its manifest: the name of its directory.
func idOf(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		path = full
	}
	return filepath.Base(path)
}

// Journal remembers how attempts ended.
type Journal interface {
	// Find returns the recorded outcome of an attempt that need not be played again.
	Find(j Job) (Outcome, bool)
	// Record stores an outcome durably. It is called once per attempt and run, from many goroutines.
	Record(o Outcome) error
}

// Dir is a run directory to which this process writes:
//
//	manifest.json                   describes the run, written once
//	events.jsonl                    what has happened, appended
//	rollouts/<group>/<attempt>/     the files of an attempt
//	LOCK                            the process that writes
//
// As a Journal, it finds the attempts that ended with a result; failed attempts are played again.
type Dir struct {
	// Manifest describes the run.
	Manifest Manifest

	path string
	lock *disk.Lock
	log  *disk.Log

	mu       sync.Mutex
	finished map[Job]Outcome
	folded   map[string]string // group names by their case-folded form
}

var _ Journal = (*Dir)(nil)

// Create creates a run in the directory, which may exist but must not contain a run. It sets the manifest's
// Version, and its ID (to the directory's name) and Created if they are zero.
func Create(path string, m Manifest) (*Dir, error) {
	m.Version = Version
	if m.Created.IsZero() {
		m.Created = time.Now()
	}
	m.Created = m.Created.UTC()
	m.ID = cmp.Or(m.ID, idOf(path))
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("create run: %w", writable(err))
	}
	l, err := disk.TryLock(filepath.Join(path, lockFile))
	if err != nil {
		return nil, fmt.Errorf("create run in %s: %w", path, writable(err))
	}
	d, err := create(path, l, m)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create run in %s: %w", path, writable(err)), l.Close())
	}
	return d, nil
}

func create(path string, l *disk.Lock, m Manifest) (*Dir, error) {
	if _, err := os.Lstat(filepath.Join(path, manifestFile)); err == nil {
		return nil, ErrExists
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	log, err := disk.OpenLog(filepath.Join(path, eventsFile), nil)
	if err != nil {
		return nil, err
	}
	// The manifest is written last, because a directory with a manifest is a run that can be resumed.
	if err := disk.WriteJSON(filepath.Join(path, manifestFile), m); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return newDir(path, m, l, log), nil
}

func newDir(path string, m Manifest, l *disk.Lock, log *disk.Log) *Dir {
	return &Dir{Manifest: m, path: path, lock: l, log: log, finished: map[Job]Outcome{}, folded: map[string]string{}}
}

// Open resumes the run in the directory, which must be of the given kind and in the current format (otherwise
// [ErrOther]). It returns fs.ErrNotExist if there is no run, and [ErrLocked] if a living process is writing to it.
func Open(path string, kind Kind) (*Dir, error) {
	m, err := Resumable(path, kind)
	if err != nil {
		return nil, err
	}
	l, err := disk.TryLock(filepath.Join(path, lockFile))
	if err != nil {
		return nil, fmt.Errorf("open run %s: %w", path, writable(err))
	}
	d := newDir(path, m, l, nil)
	d.log, err = disk.OpenLog(filepath.Join(path, eventsFile), d.remember)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open run: %w", writable(err)), l.Close())
	}
	return d, nil
}

// writable adds advice to an error about a directory that cannot be written.
func writable(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w (a run needs a directory that it can write: choose another with --out)", err)
	}
	return err
}

// Exists reports whether a directory contains a run.
func Exists(path string) bool {
	_, err := os.Lstat(filepath.Join(path, manifestFile))
	return err == nil
}

// record is a line of events.jsonl.
type record struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	// Outcome belongs to the events finished and failed.
	*Outcome
	// Data belongs to any other event.
	Data json.RawMessage `json:"data,omitempty"`
}

func (d *Dir) remember(line []byte) error {
	e, err := parseRecord(line)
	if err == nil && e.Event == string(Finished) && e.Outcome != nil {
		d.finished[key(e.Job)] = *e.Outcome
	}
	return err
}

func key(j Job) Job { return Job{Group: j.Group, Index: j.Index} }

// Find returns the outcome of an attempt that ended with a result.
func (d *Dir) Find(j Job) (Outcome, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o, ok := d.finished[key(j)]
	return o, ok
}

// Record appends the outcome to events.jsonl and syncs the file.
func (d *Dir) Record(o Outcome) error {
	kind := Finished
	if o.Failed() {
		kind = Failed
	}
	if err := d.append(record{Time: time.Now().UTC(), Event: string(kind), Outcome: &o}); err != nil {
		return err
	}
	if err := d.log.Sync(); err != nil {
		return err
	}
	if kind == Finished {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.finished[key(o.Job)] = o
	}
	return nil
}

// Note appends an event of the caller's to events.jsonl. Its name must differ from those of the engine's events.
func (d *Dir) Note(event string, data any) error {
	encoded, err := disk.MarshalJSON(data)
	if err != nil {
		return err
	}
	return d.append(record{Time: time.Now().UTC(), Event: event, Data: encoded})
}

// append appends a line with its checksum.
func (d *Dir) append(r record) error {
	line, err := disk.MarshalJSON(r)
	if err != nil {
		return err
	}
	return d.log.AppendLine(sealed(bytes.TrimSuffix(line, []byte("}"))))
}

// Played reports whether the run has finished attempts.
func (d *Dir) Played() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.finished) > 0
}

// Path returns the path of a file in the run directory.
func (d *Dir) Path(name ...string) string {
	return filepath.Join(append([]string{d.path}, name...)...)
}

// Attempt creates the directory of an attempt and returns its path. It returns an error for a group whose name
// differs from another one's only in case.
func (d *Dir) Attempt(job Job) (string, error) {
	d.mu.Lock()
	err := foldName(d.folded, job.Group)
	d.mu.Unlock()
	if err != nil {
		return "", err
	}
	path := attemptPath(d.path, job)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", fmt.Errorf("attempt directory: %w", err)
	}
	return path, nil
}

// RemoveAttempts deletes the files of all attempts whose group's name starts with one of the prefixes, which must
// consist of bytes that [PathName] keeps.
func (d *Dir) RemoveAttempts(prefixes ...string) error {
	groups, err := os.ReadDir(d.Path(rolloutsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove attempts: %w", err)
	}
	var errs []error
	for _, g := range groups {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(g.Name(), p) }) {
			errs = append(errs, os.RemoveAll(d.Path(rolloutsDir, g.Name())))
		}
	}
	return errors.Join(errs...)
}

func attemptPath(run string, job Job) string {
	return filepath.Join(run, rolloutsDir, PathName(job.Group), strconv.Itoa(job.Index))
}

// Close syncs the events and releases the directory.
func (d *Dir) Close() error {
	return errors.Join(d.log.Close(), d.lock.Close())
}
