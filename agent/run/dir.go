package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"deepswe/env/disk"
)

// Journal remembers how attempts ended.
type Journal interface {
	// Find returns the recorded outcome of an attempt that needs no further try.
	Find(j Job) (Outcome, bool)
	// Record stores an outcome durably. It is called once for an attempt and run, from many goroutines.
	Record(o Outcome) error
}

// Dir is a run directory that this process writes:
//
//	manifest.json                   what the run is, written once
//	events.jsonl                    what happened, appended
//	rollouts/<group>/<attempt>/     the files of an attempt
//	LOCK                            the process that writes
//
// As a Journal it finds the attempts that ended with a result; failed ones are tried again.
type Dir struct {
	// Manifest is what the run is.
	Manifest Manifest

	path string
	lock *disk.Lock
	log  *disk.Log

	mu       sync.Mutex
	finished map[Job]Outcome
	folded   map[string]string // groups by their names without case
}

var _ Journal = (*Dir)(nil)

// ErrLocked says that another process writes the run directory.
var ErrLocked = disk.ErrLocked

// ErrExists says that a directory holds a run already, which is resumed or left alone.
var ErrExists = errors.New("the directory already holds a run")

// Create begins a run in the directory, which may exist but not hold a run. It fills in the Version of the manifest,
// and where they are missing ID, the directory's name, and Created.
func Create(path string, m Manifest) (*Dir, error) {
	m.Version = Version
	if m.Created.IsZero() {
		m.Created = time.Now()
	}
	m.Created = m.Created.UTC()
	if m.ID == "" {
		m.ID = idOf(path)
	}
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
	// Runs of solve had no manifest once.
	for _, name := range []string{manifestFile, rolloutsDir} {
		if _, err := os.Lstat(filepath.Join(path, name)); err == nil {
			return nil, ErrExists
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	log, err := disk.OpenLog(filepath.Join(path, eventsFile), nil)
	if err != nil {
		return nil, err
	}
	// The manifest comes last: a directory with one is a run that can be resumed.
	if err := disk.WriteJSON(filepath.Join(path, manifestFile), m); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return newDir(path, m, l, log), nil
}

func newDir(path string, m Manifest, l *disk.Lock, log *disk.Log) *Dir {
	return &Dir{Manifest: m, path: path, lock: l, log: log, finished: map[Job]Outcome{}, folded: map[string]string{}}
}

// Open resumes the run in the directory, which must be of the kind and in today's format (else [ErrOther]). It fails
// with fs.ErrNotExist where there is no run, and with [ErrLocked] where a living process works in it.
func Open(path string, kind Kind) (*Dir, error) {
	m, err := resumable(path, kind)
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

// writable adds to an error that comes of a directory that must not be changed what to do.
func writable(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w (a run needs a directory that it can write: choose another with --out)", err)
	}
	return err
}

// Exists reports whether a directory holds a run.
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

// Note appends an event of the caller's own to events.jsonl, under a name that is not one of the engine's.
func (d *Dir) Note(event string, data any) error {
	return d.log.Append(record{Time: time.Now().UTC(), Event: event, Data: data})
}

// Path is the path of a file in the run directory.
func (d *Dir) Path(name ...string) string {
	return filepath.Join(append([]string{d.path}, name...)...)
}

// Attempt makes the directory of an attempt and returns its path. It refuses a group whose name differs from another
// one's in case only.
func (d *Dir) Attempt(job Job) (string, error) {
	if err := d.fold(job.Group); err != nil {
		return "", err
	}
	path := attemptPath(d.path, job)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", fmt.Errorf("attempt directory: %w", err)
	}
	return path, nil
}

func (d *Dir) fold(group string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return foldName(d.folded, group)
}

func attemptPath(run string, job Job) string {
	return filepath.Join(run, rolloutsDir, PathName(job.Group), strconv.Itoa(job.Index))
}

// Close syncs the events and gives up the directory.
func (d *Dir) Close() error {
	return errors.Join(d.log.Close(), d.lock.Close())
}
