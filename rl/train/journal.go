package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl"
	"deepswe/rl/rowfile"
)

// rolloutsFile has the rollouts of a step, or of an evaluation.
const rolloutsFile = "rollouts.jsonl"

// journal keeps the rollouts of one step. Its file is a rollouts.jsonl that deepswe export reads; each line has three
// members more than the format, for a resumed run: tries, error, and what the engine measured.
//
// Unlike run.Dir it finds failures too: the step that is played again after a kill must have the same groups.
type journal struct {
	log *disk.Log

	// version is that of a rollout without turns.
	version int64

	mu    sync.Mutex
	known map[run.Job]run.Outcome
}

var _ run.Journal = (*journal)(nil)

// extras are the members beside those of rl.Rollout.
type extras struct {
	Tries   int                `json:"tries"`
	Error   string             `json:"error,omitempty"`
	Times   run.Times          `json:"times"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
	Detail  json.RawMessage    `json:"detail,omitempty"`
}

// openJournal opens the journal of a step that is played with a version of the policy.
func openJournal(path string, version int64) (*journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &journal{version: version, known: map[run.Job]run.Outcome{}}
	var err error
	j.log, err = disk.OpenLog(path, j.remember)
	return j, err
}

func (j *journal) remember(line []byte) error {
	var x extras
	r, err := rowfile.DecodeRollout(line)
	if err = errors.Join(err, json.Unmarshal(line, &x)); err != nil {
		return err
	}
	a := run.Job{Task: r.Task, Group: r.Group, Index: r.Attempt}
	o := run.Outcome{
		Job: a, Err: x.Error, Tries: x.Tries,
		Result: run.Result{
			Reward: r.Reward, NotGraded: r.NotGraded, StopReason: r.StopReason, Turns: r.Turns,
			Messages: r.Messages, Times: x.Times, Metrics: x.Metrics,
			Detail: x.Detail,
		},
	}
	if v, ok := r.PolicyVersion.Number(); ok {
		stamp(o.Turns, v)
	}
	j.known[a] = o
	return nil
}

// stamp gives a version to the turns that have none.
func stamp(turns []rl.Turn, version int64) {
	for i := range turns {
		if turns[i].PolicyVersion == nil {
			turns[i].PolicyVersion = &version
		}
	}
}

// rolloutOf is an outcome as the algorithm and the files of rollouts take it. Its version is that of its oldest turn,
// or the given one where no turn has any.
func rolloutOf(o run.Outcome, version rl.Version) rl.Rollout {
	var oldest *int64
	for _, t := range o.Turns {
		if v := t.PolicyVersion; v != nil && (oldest == nil || *v < *oldest) {
			oldest = v
		}
	}
	if oldest != nil {
		version = rl.VersionNumber(*oldest)
	}
	return rl.Rollout{
		Task: o.Task, Group: o.Group, Attempt: o.Index, Reward: o.Reward, NotGraded: o.NotGraded,
		StopReason:    o.StopReason,
		PolicyVersion: version, Turns: o.Turns, Messages: o.Messages,
	}
}

// Find returns what the file says of an attempt.
func (j *journal) Find(a run.Job) (run.Outcome, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o, ok := j.known[a]
	return o, ok
}

// Record appends a line. It does not wait for the disk: a killed process loses nothing, and the checkpoint syncs.
func (j *journal) Record(o run.Outcome) error {
	r := rolloutOf(o, rl.VersionNumber(j.version))
	head, err := rowfile.AppendRollout(nil, &r)
	if err != nil {
		return err
	}
	tail, err := json.Marshal(extras{Tries: o.Tries, Error: o.Err, Times: o.Times, Metrics: o.Metrics, Detail: o.Detail})
	if err != nil {
		return err
	}
	// The extras follow the members of the rollout, in the same object.
	return j.log.AppendLine(append(append(bytes.TrimSuffix(head, []byte("}")), ','), tail[1:]...))
}

func (j *journal) close() error { return j.log.Close() }

// OpenRollouts finds the rollouts in a run's directory, for deepswe export. A training run has them step by step, all
// of them where rollouts.keep_logs is set, else those behind the last checkpoint; an evaluation with --tokens has one
// file.
func OpenRollouts(dir string) (*rowfile.Source, error) {
	// A folder with rollouts of other origin has no manifest.
	if r, err := run.Read(dir); err == nil && r.Manifest.Kind != run.Train && r.Manifest.Kind != run.Eval {
		return nil, fmt.Errorf("open rollouts: %s holds a run of %s, which has none", dir, r.Manifest.Kind)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open rollouts: %w", err)
	}
	steps, err := os.ReadDir(filepath.Join(dir, stepsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open rollouts: %w", err)
	}
	dirs := []string{dir}
	for _, s := range steps {
		dirs = append(dirs, filepath.Join(dir, stepsDir, s.Name()))
	}
	var files []string
	for _, d := range dirs {
		for _, name := range []string{rolloutsFile, rolloutsFile + ".zst"} {
			path := filepath.Join(d, name)
			if _, err := os.Lstat(path); err == nil {
				files = append(files, path)
				break // a run that was killed may have left the same rollouts packed as well
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
		r := rolloutOf(o, "")
		if err := rowfile.WriteRollout(w, &r); err != nil {
			return err
		}
	}
	return nil
}
