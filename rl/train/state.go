package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl/rowfile"
)

// The names in a run's directory, beside those of run.Dir.
const (
	ConfigFile     = "config.yaml"
	MetricsFile    = "metrics.jsonl"
	ReportFile     = "report.html"
	TensorBoardDir = "tensorboard"
	stateFile      = "state.json"
	checkpointsDir = "checkpoints"
	stepsDir       = "steps"
)

// state is what a run resumes from. It is written after the trainer's checkpoint that it names, so that a run killed in
// between resumes from the one before.
type state struct {
	// Step was the last one done.
	Step int `json:"step"`
	// Checkpoint is the trainer's name for its weights after that step; Kept are those not yet removed, oldest first.
	Checkpoint string   `json:"checkpoint"`
	Kept       []string `json:"kept"`
	place
	// Curriculum is what is known of the tasks; nil without a curriculum.
	Curriculum *curriculumState `json:"curriculum,omitempty"`
	// Stages are the first steps of the stages that have begun.
	Stages []int `json:"stages,omitempty"`
	// Pending is the next step where its update is done and its validation was interrupted.
	Pending *pending `json:"pending,omitempty"`
}

// pending is a step that is updated but not finished.
type pending struct {
	Values map[string]float64 `json:"values"`
	place
}

// place is how far the tasks have been taken.
type place struct {
	// Cursor is the number of groups that come before every other: each of them has been learned from. Ahead are those
	// behind it of which that is true as well, because they were complete before others.
	Cursor int   `json:"cursor"`
	Ahead  []int `json:"ahead,omitempty"`
}

// take returns the place after the group of that number.
func (p place) take(number int) place {
	p.Ahead = append(slices.Clone(p.Ahead), number)
	slices.Sort(p.Ahead)
	for len(p.Ahead) > 0 && p.Ahead[0] == p.Cursor {
		p.Cursor++
		p.Ahead = p.Ahead[1:]
	}
	return p
}

// progress is how far a run has come.
type progress struct {
	step    int
	pending bool
}

// weights is the step that the weights are of.
func (s state) weights() int {
	if s.Pending != nil {
		return s.Step + 1
	}
	return s.Step
}

// readState returns false for a run without a checkpoint.
func readState(dir *run.Dir) (s state, found bool, err error) {
	err = disk.ReadJSON(dir.Path(stateFile), &s)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	return s, err == nil, err
}

func (s state) write(dir *run.Dir) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write %s: %w", stateFile, err)
	}
	return disk.WriteFile(dir.Path(stateFile), append(data, '\n'))
}

// save makes the state the one to resume from.
func (l *loop) save(ctx context.Context, s *state) error {
	at := progress{s.Step, s.Pending != nil}
	if l.saved == at {
		return nil
	}
	next := *s
	next.Curriculum = l.tasks.state()
	next.Checkpoint = checkpointName(s.weights())
	var old []string
	if next.Checkpoint != s.Checkpoint {
		if err := l.trainer.Save(ctx, next.Checkpoint); err != nil {
			return err
		}
		next.Kept = append(slices.Clone(s.Kept), next.Checkpoint)
		old = slices.DeleteFunc(slices.Clone(next.Kept[:max(0, len(next.Kept)-l.config.Checkpoint.Keep)]), l.validator.needs)
	}
	// The state must not be newer than the metrics on the disk.
	if err := l.sink.Sync(); err != nil {
		return err
	}
	if err := next.write(l.dir); err != nil {
		return err
	}
	*s, l.saved = next, at
	// Only in memory: a run that is killed before the old ones are removed removes them the next time.
	s.Kept = slices.DeleteFunc(slices.Clone(s.Kept), func(name string) bool { return slices.Contains(old, name) })
	if err := l.dir.Note("checkpoint", map[string]int{"step": s.weights()}); err != nil {
		return err
	}
	step := s.Step
	if l.config.Rollouts.MaxStaleness > 0 {
		step = min(step, s.Cursor/l.config.Rollouts.Tasks) // groups of later ones may still be awaited
	}
	if first, ok := l.validator.first(); ok {
		step = min(step, first-1) // its rollouts are being played
	}
	return l.forget(ctx, step, old)
}

// forget removes what no resumed run needs: old checkpoints, and the rollouts of the steps up to the given one, which
// the newest one has learned from.
func (l *loop) forget(ctx context.Context, step int, checkpoints []string) error {
	for _, name := range checkpoints {
		if err := l.trainer.Remove(ctx, name); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(l.dir.Path(stepsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("tidy rollouts: %w", err)
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil || n > step {
			continue
		}
		path := l.dir.Path(stepsDir, e.Name())
		if l.config.Rollouts.KeepLogs {
			err = compress(path)
		} else {
			groups := []string{e.Name() + "."}
			for _, s := range l.splits() {
				groups = append(groups, groupsOf(s)+e.Name()+".")
			}
			err = l.dir.RemoveAttempts(groups...)
			err = errors.Join(err, os.RemoveAll(path))
		}
		if err != nil {
			return fmt.Errorf("tidy rollouts: %w", err)
		}
	}
	return nil
}

// compress packs the rollouts of a step that is done. Prompts repeat each other, so little is left of them.
func compress(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := pack(name); err != nil {
			return err
		}
		if err := os.Remove(name); err != nil {
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

func checkpointName(step int) string { return "step-" + stepName(step) }

func stepName(step int) string { return fmt.Sprintf("%06d", step) }

// journalPath is where the rollouts of a step are kept: rollouts.jsonl for training, validation.jsonl, and
// validation-NAME.jsonl for a further split.
func journalPath(dir *run.Dir, step int, s Split) string {
	name := rolloutsFile
	switch s {
	case Train:
	case Validation:
		name = "validation.jsonl"
	default:
		name = "validation-" + string(s) + ".jsonl"
	}
	return dir.Path(stepsDir, stepName(step), name)
}

// removeTorn deletes temporary files that a killed writer left in a directory.
func removeTorn(dir string) error {
	torn, err := filepath.Glob(filepath.Join(dir, ".*.*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range torn {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
			errs = append(errs, os.Remove(name))
		}
	}
	return errors.Join(errs...)
}
