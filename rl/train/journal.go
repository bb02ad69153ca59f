package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"deepswe/agent/run"
	"deepswe/rl"
)

// journal keeps the rollouts of one step. Its file is a rollouts.jsonl that deepswe export reads; each line has three
// members more than the format, for a resumed run: tries, error, and what the engine measured.
//
// Unlike run.Dir it finds failures too: the step that is played again after a kill must have the same groups.
type journal struct {
	log *run.Log

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

func openJournal(path string) (*journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &journal{known: map[run.Job]run.Outcome{}}
	var err error
	j.log, err = run.OpenLog(path, j.remember)
	return j, err
}

func (j *journal) remember(line []byte) error {
	var r rl.Rollout
	var x extras
	if err := errors.Join(json.Unmarshal(line, &r), json.Unmarshal(line, &x)); err != nil {
		return err
	}
	a := run.Job{Task: r.Task, Group: r.Group, Index: r.Attempt}
	o := run.Outcome{
		Job: a, Err: x.Error, Tries: x.Tries,
		Result: run.Result{
			Reward: r.Reward, StopReason: r.StopReason, Turns: r.Turns, Messages: r.Messages, Times: x.Times, Metrics: x.Metrics, Detail: x.Detail,
		},
	}
	if v, ok := r.PolicyVersion.Number(); ok {
		o.PolicyVersion = &v
	}
	j.known[a] = o
	return nil
}

// rolloutOf is an outcome as the algorithm and the files of rollouts take it.
func rolloutOf(o run.Outcome) rl.Rollout {
	r := rl.Rollout{
		Task: o.Task, Group: o.Group, Attempt: o.Index, Reward: o.Reward, StopReason: o.StopReason, Turns: o.Turns, Messages: o.Messages,
	}
	if o.PolicyVersion != nil {
		r.PolicyVersion = rl.VersionNumber(*o.PolicyVersion)
	}
	return r
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
	r := rolloutOf(o)
	head, err := r.MarshalJSON()
	if err != nil {
		return err
	}
	tail, err := json.Marshal(extras{Tries: o.Tries, Error: o.Err, Times: o.Times, Metrics: o.Metrics, Detail: o.Detail})
	if err != nil {
		return err
	}
	// The extras stand behind the members of the rollout, in the same object.
	return j.log.AppendJSON(append(append(bytes.TrimSuffix(head, []byte("}")), ','), tail[1:]...))
}

func (j *journal) close() error { return j.log.Close() }
