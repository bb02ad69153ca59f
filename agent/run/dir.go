package run

import (
	"crypto/sha256"
	"encoding/hex"
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

// The names in a run directory.
const (
	manifestFile = "manifest.json"
	eventsFile   = "events.jsonl"
	lockFile     = "LOCK"
	rolloutsDir  = "rollouts"
)

// Version is the format of run directories that this program writes. Those of version 1 can be read, but not resumed.
const Version = 2

// Kind is the command that a run belongs to.
type Kind string

// The kinds of runs.
const (
	Solve Kind = "solve"
	Eval  Kind = "eval"
	Grade Kind = "grade"
	Train Kind = "train"
)

// Manifest is manifest.json: what a run is. It does not change while the run goes on.
type Manifest struct {
	Version int       `json:"version"`
	Kind    Kind      `json:"kind"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	// Program made the run.
	Program string `json:"program"`
	// Settings are the kind's own.
	Settings json.RawMessage `json:"settings,omitempty"`
}

// Why a directory cannot be written as a run.
var (
	// ErrLocked: another process writes it.
	ErrLocked = disk.ErrLocked
	// ErrExists: it already holds a run, so it can be resumed but not created.
	ErrExists = errors.New("the directory already holds a run")
	// ErrOther: it holds a run of another kind, or in another format.
	ErrOther = errors.New("another kind of run")
)

// otherError is an ErrOther that says what to do.
type otherError string

func (e otherError) Error() string        { return string(e) }
func (e otherError) Is(target error) bool { return target == ErrOther }

func other(format string, args ...any) error { return otherError(fmt.Sprintf(format, args...)) }

// readManifest reads the manifest of the run in the directory. It fails with fs.ErrNotExist where there is no run, and
// with ErrOther where a newer program made it.
func readManifest(path string) (Manifest, error) {
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
	case m.Version == 1: // the settings were beside the other members
		m.ID, m.Settings = idOf(path), data
	}
	return m, nil
}

// Resumable reads the manifest of a run, which a process may be writing, if the run can be resumed as one of the kind.
// Otherwise there is none (fs.ErrNotExist), or it is of another kind or in another format (ErrOther).
func Resumable(path string, kind Kind) (Manifest, error) {
	m, err := readManifest(path)
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

// idOf is the id of a run that has no other: the name of its directory.
func idOf(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		path = full
	}
	return filepath.Base(path)
}

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

// writable adds advice to an error about a directory that may not be written.
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

// Note appends the caller's own event to events.jsonl. Its name must not be one of the engine's.
func (d *Dir) Note(event string, data any) error {
	encoded, err := disk.MarshalJSON(data)
	if err != nil {
		return err
	}
	return d.log.Append(record{Time: time.Now().UTC(), Event: event, Data: encoded})
}

// Path is the path of a file in the run directory.
func (d *Dir) Path(name ...string) string {
	return filepath.Join(append([]string{d.path}, name...)...)
}

// Attempt makes the directory of an attempt and returns its path. It refuses a group whose name differs from another
// one's in case only.
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

// RemoveAttempts deletes the files of the attempts whose groups have a name that begins with one of the prefixes, which
// are made of the bytes that [PathName] keeps.
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

// Close syncs the events and gives up the directory.
func (d *Dir) Close() error {
	return errors.Join(d.log.Close(), d.lock.Close())
}

// maxName is the longest name that Linux file systems take, in bytes.
const maxName = 255

// PathName is the name of the file or directory of an id: a task, a group, a model. Usual ids are their own names. In
// others, every byte but ASCII letters, digits and - _ + , : = @ ~ and . is percent-encoded, and so is a leading full
// stop; one that would be longer than 255 bytes ends in a hash instead. Different ids have different names, which are
// never empty, never lead elsewhere and hide nothing.
//
// Names that differ in case only are one name on some file systems: see [CheckNames].
func PathName(id string) string {
	var b strings.Builder
	for i := range len(id) {
		if c := id[i]; isNameByte(c) && (c != '.' || i > 0) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	switch name := b.String(); {
	case name == "":
		return "%" // as no other id, since digits follow there
	case len(name) > maxName:
		sum := sha256.Sum256([]byte(id))
		suffix := "%-" + hex.EncodeToString(sum[:16])
		return name[:maxName-len(suffix)] + suffix
	default:
		return name
	}
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_+,:=@~.", c) >= 0
}

// CheckNames refuses ids that differ in case only: where the file system ignores case, their files would be the same.
func CheckNames(ids []string) error {
	folded := make(map[string]string, len(ids))
	for _, id := range ids {
		if err := foldName(folded, id); err != nil {
			return err
		}
	}
	return nil
}

// foldName adds an id to those that are known by their names without case.
func foldName(folded map[string]string, id string) error {
	name := strings.ToLower(PathName(id))
	if other, ok := folded[name]; ok && other != id {
		return fmt.Errorf("the ids %q and %q differ only in upper and lower case: rename one, or leave one out",
			min(other, id), max(other, id))
	}
	folded[name] = id
	return nil
}
