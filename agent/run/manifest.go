package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
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

// ErrOther says that a directory holds a run of another kind, or in another format.
var ErrOther = errors.New("another kind of run")

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

// Resumable reports why the run in the directory cannot be resumed as one of the kind, whether or not a process writes
// it: there is none (fs.ErrNotExist), or it is of another kind or in another format (ErrOther).
func Resumable(path string, kind Kind) error {
	_, err := resumable(path, kind)
	return err
}

func resumable(path string, kind Kind) (Manifest, error) {
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
