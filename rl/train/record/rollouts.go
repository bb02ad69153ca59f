package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"deepswe/agent/run"
	"deepswe/rl/rowfile"
)

// OpenRollouts opens the rollouts in a run's directory, for deepswe export. A training run has one file a step: of all
// steps if rollouts.keep_logs is set, otherwise of those after the last checkpoint. An evaluation with --tokens has one
// file.
func OpenRollouts(dir string) (*rowfile.Source, error) {
	// A folder of rollouts from elsewhere has no manifest.
	if r, err := run.Read(dir); err == nil && r.Manifest.Kind != run.Train && r.Manifest.Kind != run.Eval {
		return nil, fmt.Errorf("open rollouts: %s holds a run of %s, which has none", dir, r.Manifest.Kind)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open rollouts: %w", err)
	}
	steps, err := os.ReadDir(filepath.Join(dir, StepsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open rollouts: %w", err)
	}
	dirs := []string{dir}
	for _, s := range steps {
		dirs = append(dirs, filepath.Join(dir, StepsDir, s.Name()))
	}
	var files []string
	for _, d := range dirs {
		for _, name := range []string{rolloutsFile, rolloutsFile + ".zst"} {
			path := filepath.Join(d, name)
			if _, err := os.Lstat(path); err == nil {
				files = append(files, path)
				break // a killed run may have left the same rollouts compressed as well
			}
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("open rollouts: %s has none; train keeps them with rollouts.keep_logs, and eval with --tokens",
			dir)
	}
	return rowfile.Open(nil, files...)
}

// WriteRollouts writes the outcomes of an evaluation as rollouts.jsonl, which OpenRollouts finds.
func WriteRollouts(w io.Writer, outcomes iter.Seq2[run.Outcome, error]) error {
	for o, err := range outcomes {
		if err != nil {
			return err
		}
		r := RolloutOf(o, "")
		if err := rowfile.WriteRollout(w, &r); err != nil {
			return err
		}
	}
	return nil
}
