package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl"
	"deepswe/rl/rowfile"
	"deepswe/rl/train/part"
)

// rolloutsFile contains the rollouts of a step, or of an evaluation.
const rolloutsFile = "rollouts.jsonl"

// journal keeps the rollouts of one step. Its file is a rollouts.jsonl that deepswe export reads; each line has the
// members of extras in addition to the format, for a resumed run.
//
// Unlike run.Dir it finds failures too: the step that is played again after a kill must have the same groups.
type journal struct {
	log *disk.Log

	// version is the policy version of a rollout without turns.
	version int64

	known map[run.Job]run.Outcome // when the journal was opened
}

var _ run.Journal = (*journal)(nil)

// extras are the members in addition to those of rl.Rollout.
type extras struct {
	Tries int       `json:"tries"`
	Err   string    `json:"error,omitempty"`
	Times run.Times `json:"times"`
	// Ended is when the rollout ended; zero if written by an older version.
	Ended   time.Time          `json:"ended,omitzero"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
	Detail  json.RawMessage    `json:"detail,omitempty"`
}

// decode reads a line of a journal.
func decode(line []byte) (p Played, err error) {
	p.Rollout, err = rowfile.DecodeRollout(line)
	return p, errors.Join(err, json.Unmarshal(line, &p.extras))
}

// OpenJournal opens the journal of a step. Rollouts without turns get the given policy version.
func OpenJournal(path string, version int64) (*journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &journal{version: version, known: map[run.Job]run.Outcome{}}
	var err error
	j.log, err = disk.OpenLog(path, j.remember)
	return j, err
}

func (j *journal) remember(line []byte) error {
	r, err := decode(line)
	if err != nil {
		return err
	}
	a := run.Job{Task: r.Task, Group: r.Group, Index: r.Attempt}
	o := run.Outcome{
		Job: a, Err: r.Err, Tries: r.Tries,
		Result: run.Result{
			Reward: r.Reward, NotGraded: r.NotGraded, StopReason: r.StopReason, Turns: r.Turns,
			Messages: r.Messages, Times: r.Times, Metrics: r.Metrics, Detail: r.Detail,
		},
	}
	if v, ok := r.PolicyVersion.Number(); ok {
		Stamp(o.Turns, v)
	}
	j.known[a] = o
	return nil
}

// Stamp sets the version of turns that have none.
func Stamp(turns []rl.Turn, version int64) {
	for i := range turns {
		if turns[i].PolicyVersion == nil {
			turns[i].PolicyVersion = &version
		}
	}
}

// RolloutOf converts an outcome into a rollout. Its version is that of its oldest turn, or the given one if no turn has
// a version.
func RolloutOf(o run.Outcome, version rl.Version) rl.Rollout {
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

// Find returns the recorded outcome of an attempt.
func (j *journal) Find(a run.Job) (run.Outcome, bool) {
	o, ok := j.known[a]
	return o, ok
}

// Record appends a line. It does not sync the file, because a killed process loses nothing, and checkpoints sync.
func (j *journal) Record(o run.Outcome) error {
	r := RolloutOf(o, rl.VersionNumber(j.version))
	head, err := rowfile.AppendRollout(nil, &r)
	if err != nil {
		return err
	}
	tail, err := json.Marshal(extras{
		Tries: o.Tries, Err: o.Err, Times: o.Times, Ended: time.Now(), Metrics: o.Metrics, Detail: o.Detail,
	})
	if err != nil {
		return err
	}
	// The extras are appended to the rollout's JSON object.
	return j.log.AppendLine(append(append(bytes.TrimSuffix(head, []byte("}")), ','), tail[1:]...))
}

// Close closes the file.
func (j *journal) Close() error { return j.log.Close() }

// Journals holds the journals of the steps with rollouts under way. A rollout belongs to the step that it was admitted
// for.
type Journals struct {
	Dir *run.Dir
	// Version returns the version of the policy that samples.
	Version func() int64

	mu     sync.Mutex
	byStep map[int]*journal
}

var _ run.Journal = (*Journals)(nil)

// Open opens the journal of a step, if it is not open yet.
func (j *Journals) Open(step int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.byStep[step] != nil {
		return nil
	}
	one, err := OpenJournal(JournalPath(j.Dir, step, part.Train), j.Version())
	if err != nil {
		return err
	}
	if j.byStep == nil {
		j.byStep = map[int]*journal{}
	}
	j.byStep[step] = one
	return nil
}

func (j *Journals) of(group string) *journal {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.byStep[StepOf(group)]
}

// Find returns the recorded outcome of an attempt.
func (j *Journals) Find(a run.Job) (run.Outcome, bool) { return j.of(a.Group).Find(a) }

// Record appends a line to the step's file.
func (j *Journals) Record(o run.Outcome) error { return j.of(o.Group).Record(o) }

// CloseBefore closes the journals of all earlier steps.
func (j *Journals) CloseBefore(step int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var errs []error
	for s, one := range j.byStep {
		if s < step {
			errs = append(errs, one.Close())
			delete(j.byStep, s)
		}
	}
	return errors.Join(errs...)
}

// CloseAll closes the journals of all steps.
func (j *Journals) CloseAll() error { return j.CloseBefore(math.MaxInt) }
