package train

import (
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"

	"deepswe/agent/run"
	"deepswe/rl/rowfile"
)

// OpenRollouts finds the rollouts in a run's directory, for deepswe export. A training run has them step by step, all of
// them where rollouts.keep_logs is set, else those behind the last checkpoint; an evaluation with --tokens has one file.
func OpenRollouts(dir string) (*rowfile.Source, error) {
	files, err := filepath.Glob(filepath.Join(dir, stepsDir, "*", "rollouts.jsonl*"))
	if err != nil {
		return nil, fmt.Errorf("open rollouts: %w", err)
	}
	if len(files) == 0 {
		if files, err = filepath.Glob(filepath.Join(dir, "rollouts.jsonl*")); err != nil {
			return nil, fmt.Errorf("open rollouts: %w", err)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("open rollouts: %s has none; train keeps them with rollouts.keep_logs, and eval with --tokens", dir)
	}
	slices.Sort(files)
	return rowfile.Open(nil, files...)
}

// WriteRollouts writes the outcomes of an evaluation as rollouts.jsonl, which OpenRollouts finds.
func WriteRollouts(w io.Writer, outcomes iter.Seq2[run.Outcome, error]) error {
	for o, err := range outcomes {
		if err != nil {
			return err
		}
		r := rolloutOf(o, "")
		if err := rowfile.WriteRollout(w, &r); err != nil {
			return err
		}
	}
	return nil
}
