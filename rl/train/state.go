package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl/rowfile"
	"deepswe/rl/train/config"
	"deepswe/rl/train/record"
)

// state is what a run resumes from. It is written after the trainer's checkpoint that it names, so a run that is killed
// in between resumes from the previous one.
type state struct {
	// Step is the last completed step.
	Step int `json:"step"`
	// Checkpoint is the trainer's name for its weights after that step; Kept lists the checkpoints that are not removed
	// yet, oldest first.
	Checkpoint string   `json:"checkpoint"`
	Kept       []string `json:"kept"`
	place
	// Curriculum holds the estimates of the tasks' solve rates; nil without a curriculum.
	Curriculum *curriculumState `json:"curriculum,omitempty"`
	// Stages holds the first steps of the stages that have begun.
	Stages []int `json:"stages,omitempty"`
	// Pending is the next step, if its update is done and its validation was interrupted.
	Pending *pending `json:"pending,omitempty"`
	// Rows identifies the examples of a run that imitates; empty for any other.
	Rows string `json:"rows,omitempty"`
}

// pending is a step whose update is done but which is not finished.
type pending struct {
	Values map[string]float64 `json:"values"`
	place
}

// place is a position in the sequence of groups.
type place struct {
	// All groups numbered below Cursor have been learned from. Ahead lists the later ones that have been, too, because
	// they were complete before others.
	Cursor int   `json:"cursor"`
	Ahead  []int `json:"ahead,omitempty"`
}

// takeGroup returns the position once the group of that number has been learned from.
func (p place) takeGroup(number int) place {
	p.Ahead = append(slices.Clone(p.Ahead), number)
	slices.Sort(p.Ahead)
	for len(p.Ahead) > 0 && p.Ahead[0] == p.Cursor {
		p.Cursor++
		p.Ahead = p.Ahead[1:]
	}
	return p
}

// progress is how far a run has got.
type progress struct {
	step    int
	pending bool
}

// weights returns the step after which the trainer has these weights.
func (s state) weights() int {
	if s.Pending != nil {
		return s.Step + 1
	}
	return s.Step
}

// readState reads the state of a run. found is false if there is no checkpoint.
func readState(dir *run.Dir) (s state, found bool, err error) {
	err = disk.ReadJSON(dir.Path(record.StateFile), &s)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	return s, err == nil, err
}

func (s state) write(dir *run.Dir) error {
	var v any = s
	if s.Rows != "" {
		v = struct {
			Step       int      `json:"step"`
			Checkpoint string   `json:"checkpoint"`
			Kept       []string `json:"kept"`
			Rows       string   `json:"rows"`
		}{s.Step, s.Checkpoint, s.Kept, s.Rows}
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", record.StateFile, err)
	}
	return disk.WriteFile(dir.Path(record.StateFile), append(data, '\n'))
}

// keeper saves a run, and removes what it needs no longer.
type keeper struct {
	*site
	rollouts config.Rollouts
	stages   *stages
	// keep is the number of checkpoints that are kept.
	keep int
	// course is what the run learns from, once it has begun.
	course course
	// saved is the progress in state.json.
	saved progress
}

// save writes a checkpoint and the state that a resumed run starts from.
func (k *keeper) save(ctx context.Context, s *state) error {
	at := progress{s.Step, s.Pending != nil}
	if k.saved == at {
		return nil
	}
	next := *s
	if k.course.remember != nil {
		k.course.remember(&next)
	}
	next.Checkpoint = checkpointName(s.weights())
	open := k.course.beside.open() // their policies are still to be measured
	var old []string
	if next.Checkpoint != s.Checkpoint {
		if err := k.trainer.Save(ctx, next.Checkpoint); err != nil {
			return err
		}
		next.Kept = append(slices.Clone(s.Kept), next.Checkpoint)
		old = slices.DeleteFunc(slices.Clone(next.Kept[:max(0, len(next.Kept)-k.keep)]), func(name string) bool {
			return slices.ContainsFunc(open, func(step int) bool { return checkpointName(step) == name })
		})
	}
	// The state must not be newer than the metrics on disk.
	if err := k.points.Sync(); err != nil {
		return err
	}
	if err := next.write(k.dir); err != nil {
		return err
	}
	*s, k.saved = next, at
	// Only in memory: if the run is killed before the old ones are removed, they are removed the next time.
	s.Kept = slices.DeleteFunc(slices.Clone(s.Kept), func(name string) bool { return slices.Contains(old, name) })
	if err := k.dir.Note("checkpoint", map[string]int{"step": s.weights()}); err != nil {
		return err
	}
	step := k.stages.complete(s.place, s.Step)
	if len(open) > 0 {
		step = min(step, open[0]-1) // its rollouts are under way
	}
	return k.forget(ctx, step, old)
}

// forget removes what no resumed run needs: old checkpoints, and the rollouts of the steps up to the given one, which
// the newest checkpoint has learned from.
func (k *keeper) forget(ctx context.Context, step int, checkpoints []string) error {
	for _, name := range checkpoints {
		if err := k.trainer.Remove(ctx, name); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(k.dir.Path(record.StepsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("tidy rollouts: %w", err)
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil || n > step {
			continue
		}
		path := k.dir.Path(record.StepsDir, e.Name())
		if k.rollouts.KeepLogs {
			err = compress(path)
		} else {
			groups := []string{e.Name() + "."}
			for _, s := range k.course.splits() {
				groups = append(groups, groupsOf(s)+e.Name()+".")
			}
			err = k.dir.RemoveAttempts(groups...)
			err = errors.Join(err, os.RemoveAll(path))
		}
		if err != nil {
			return fmt.Errorf("tidy rollouts: %w", err)
		}
	}
	return nil
}

// compress compresses the rollouts of a finished step. Prompts repeat each other, so they compress well.
func compress(dir string) error {
	for _, path := range disk.Glob(dir, "*.jsonl") {
		if err := pack(path); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

func pack(name string) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	return rowfile.Create(name+".zst", func(out io.Writer) error {
		_, err := io.Copy(out, in)
		return err
	})
}

func checkpointName(step int) string { return "step-" + record.StepName(step) }

// removeTorn removes temporary files that a killed process left in a directory.
func removeTorn(dir string) error {
	var errs []error
	for _, path := range disk.Glob(dir, ".*.*") {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}
