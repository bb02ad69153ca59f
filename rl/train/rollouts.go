package train

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"

	"deepswe/agent/run"
	"deepswe/rl"
)

// OpenRollouts finds the rollouts in a run's directory, for deepswe export. A training run has them step by step, all of
// them where rollouts.keep_logs is set, else those behind the last checkpoint; an evaluation with --tokens has one file.
func OpenRollouts(dir string) (rl.Source, error) {
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
	var all kept
	for _, name := range files {
		f, err := rl.OpenRollouts(name, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// WriteRollouts writes the outcomes of an evaluation as rollouts.jsonl, which OpenRollouts finds. Which version of the
// policy played them is not known.
func WriteRollouts(w io.Writer, outcomes iter.Seq2[run.Outcome, error]) error {
	out := rl.NewRolloutWriter(w)
	for o, err := range outcomes {
		if err != nil {
			return err
		}
		err := out.Write(&rl.Rollout{
			Task: o.Task, Group: o.Group, Attempt: o.Index, Reward: o.Reward, StopReason: o.StopReason, Turns: o.Turns,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// kept is the files of several steps as one source.
type kept []*rl.RolloutFile

func (k kept) Rollouts(check func(*rl.Rollout) error) iter.Seq2[rl.Rollout, error] {
	return func(yield func(rl.Rollout, error) bool) {
		for _, f := range k {
			for r, err := range f.Rollouts(check) {
				if !yield(r, err) || err != nil {
					return
				}
			}
		}
	}
}

// Close closes the files.
func (k kept) Close() error {
	var errs []error
	for _, f := range k {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
