package coding

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"deepswe/agent/attempt"
	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/env/disk"
	"deepswe/rl/train/part"
)

// beginning copies the log of a rollout, and returns the number of its replies.
func (e *sweEnvironment) beginning(j run.Job, to string) (replies int, err error) {
	dir, err := e.dir.Attempt(j)
	if err != nil {
		return 0, err
	}
	data, err := os.ReadFile(filepath.Join(dir, attempt.StepsFile))
	if err != nil {
		return 0, err
	}
	rec, err := trajectory.Parse(data)
	if err != nil {
		return 0, err
	}
	return len(rec.Turns), disk.WriteFile(to, data)
}

// beginFromPrefix writes the beginning of a training rollout as the log of an attempt that was interrupted, from which
// the agent goes on in a fresh sandbox. A rollout that has begun keeps its own.
func (e *sweEnvironment) beginFromPrefix(s part.Split, j run.Job) error {
	if s != part.Train || e.options.Prefix == nil {
		return nil
	}
	p := e.options.Prefix(j)
	if p.Replies == 0 {
		return nil
	}
	dir, err := e.dir.Attempt(j)
	if err != nil {
		return err
	}
	log := filepath.Join(dir, attempt.StepsFile)
	if _, err := os.Stat(log); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	data, err := os.ReadFile(p.File)
	if err != nil {
		return err
	}
	events, err := trajectory.ReadEvents(bytes.NewReader(data))
	if err != nil {
		return err
	}
	torn := log + ".begin" // of a process that was killed while it wrote
	if err := os.Remove(torn); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w, err := trajectory.Create(torn)
	if err != nil {
		return err
	}
	for _, event := range trajectory.Beginning(events, p.Replies) {
		if err = w.Append(event); err != nil {
			break
		}
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return os.Rename(torn, log)
}
