package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"deepswe/env/disk"
)

// Journal remembers how attempts ended.
type Journal interface {
	// Find returns the recorded outcome of an attempt that needs no further try.
	Find(a Job) (Outcome, bool)
	// Record writes an outcome down for good. It is called once for an attempt and run, from many goroutines.
	Record(o Outcome) error
}

// The names in a run directory.
const (
	manifestFile = "manifest.json"
	eventsFile   = "events.jsonl"
	lockFile     = "LOCK"
	rolloutsDir  = "rollouts"
)

// Dir is a run directory, held by one process:
//
//	manifest.json                   what was asked for, written once
//	events.jsonl                    what happened, appended
//	rollouts/<group>/<attempt>/     what the rollouts left
//	LOCK                            who works here
//
// As a Journal it finds what has ended with a result and lets failures be tried again.
type Dir struct {
	path string
	lock *disk.Lock
	log  *disk.Log

	mu       sync.Mutex
	finished map[Job]Outcome
}

var _ Journal = (*Dir)(nil)

// ErrLocked says that another process works in the run directory.
var ErrLocked = disk.ErrLocked

// ErrExists says that a directory holds a run already, which is resumed or left alone.
var ErrExists = errors.New("the directory already holds a run")

// Create begins a run in the directory, which may exist but not hold a run. The manifest is any value that JSON can
// hold.
func Create(path string, manifest any) (*Dir, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("create run: %w", err)
	}
	l, err := disk.TryLock(filepath.Join(path, lockFile))
	if err != nil {
		return nil, fmt.Errorf("create run %s: %w", path, err)
	}
	d, err := create(path, l, manifest)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create run %s: %w", path, err), l.Close())
	}
	return d, nil
}

func create(path string, l *disk.Lock, manifest any) (*Dir, error) {
	name := filepath.Join(path, manifestFile)
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(ErrExists, err)
	}
	log, err := disk.OpenLog(filepath.Join(path, eventsFile), nil)
	if err != nil {
		return nil, err
	}
	// The manifest comes last: a directory with one is a run that can be resumed.
	if err := disk.WriteJSON(name, manifest); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return &Dir{path: path, lock: l, log: log, finished: map[Job]Outcome{}}, nil
}

// Open resumes the run in the directory and reads its manifest. It fails with fs.ErrNotExist where there is no run, and
// with [ErrLocked] where a living process works in it.
func Open(path string, manifest any) (*Dir, error) {
	name := filepath.Join(path, manifestFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("open run: %w", err)
	}
	if manifest != nil {
		if err := json.Unmarshal(data, manifest); err != nil {
			return nil, fmt.Errorf("open run: %s: %w", name, err)
		}
	}
	l, err := disk.TryLock(filepath.Join(path, lockFile))
	if err != nil {
		return nil, fmt.Errorf("open run %s: %w", path, err)
	}
	d := &Dir{path: path, lock: l, finished: map[Job]Outcome{}}
	d.log, err = disk.OpenLog(filepath.Join(path, eventsFile), d.remember)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open run: %w", err), l.Close())
	}
	return d, nil
}

// Exists tells whether a directory holds a run.
func Exists(path string) bool {
	_, err := os.Lstat(filepath.Join(path, manifestFile))
	return err == nil
}

// record is a line of events.jsonl.
type record struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	// Outcome of finished and failed.
	*Outcome
	// Data of any other event.
	Data any `json:"data,omitempty"`
}

func (d *Dir) remember(line []byte) error {
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return err
	}
	if r.Event == string(Finished) && r.Outcome != nil {
		d.finished[key(r.Job)] = *r.Outcome
	}
	return nil
}

func key(a Job) Job { return Job{Group: a.Group, Index: a.Index} }

// Find returns the outcome of an attempt that ended with a result.
func (d *Dir) Find(a Job) (Outcome, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o, ok := d.finished[key(a)]
	return o, ok
}

// Record appends the outcome to events.jsonl and waits for the disk.
func (d *Dir) Record(o Outcome) error {
	kind := Finished
	if o.Failed() {
		kind = Failed
	}
	if err := d.log.Append(record{Time: time.Now().UTC(), Event: string(kind), Outcome: &o}); err != nil {
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

// Note appends an event of the caller's own to events.jsonl. The names of the engine's events are taken.
func (d *Dir) Note(event string, data any) error {
	return d.log.Append(record{Time: time.Now().UTC(), Event: event, Data: data})
}

// Path is the path of a file in the run directory.
func (d *Dir) Path(name ...string) string {
	return filepath.Join(append([]string{d.path}, name...)...)
}

// Attempt makes the directory for what an attempt leaves, and returns its path. Names of groups that are no file names
// are percent-encoded.
func (d *Dir) Attempt(a Job) (string, error) {
	path := d.Path(rolloutsDir, fileName(a.Group), strconv.Itoa(a.Index))
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", fmt.Errorf("attempt directory: %w", err)
	}
	return path, nil
}

// fileName keeps a name from leaving its directory and from hiding in it.
func fileName(s string) string {
	switch s = url.PathEscape(s); {
	case s == "":
		return "%"
	case s[0] == '.':
		return "%2E" + s[1:]
	}
	return s
}

// Close gives the directory back.
func (d *Dir) Close() error {
	return errors.Join(d.log.Close(), d.lock.Close())
}
