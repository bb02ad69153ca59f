package verifycmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"deepswe/agent/attempt"
	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/env/disk"
	"deepswe/rl"
	"deepswe/verify"
)

// writePredictions writes preds.json: an object of predictions by task, which the official harness takes as it is. It
// holds the first attempt at each task; the others stand in preds.1.json and so on.
func (e *evaluation) writePredictions(outcomes []run.Outcome) error {
	for n := range e.o.attempts {
		name := "preds.json"
		if n > 0 {
			name = fmt.Sprintf("preds.%d.json", n)
		}
		err := disk.WriteStream(e.dir.Path(name), func(w io.Writer) error { return e.predictions(w, outcomes, n) })
		if err != nil {
			return err
		}
	}
	return nil
}

// predictions writes those of one attempt at each task, one at a time: all of them together may be large. Attempts that
// the machinery failed in are not predictions.
func (e *evaluation) predictions(w io.Writer, outcomes []run.Outcome, attemptNumber int) error {
	separator := "{\n"
	for _, o := range outcomes {
		if o.Index != attemptNumber || o.Tries == 0 || o.Failed() {
			continue
		}
		patch, err := e.patch(o)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		b.WriteString(separator)
		if err := enc.Encode(o.Task); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1) // the line feed that the encoder ends with
		b.WriteString(": ")
		if err := enc.Encode(verify.Prediction{InstanceID: o.Task, Model: e.model.Name, Patch: &patch}); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1)
		if _, err := w.Write(b.Bytes()); err != nil {
			return err
		}
		separator = ",\n"
	}
	if separator == "{\n" {
		_, err := io.WriteString(w, "{}\n")
		return err
	}
	_, err := io.WriteString(w, "\n}\n")
	return err
}

// patch reads the patch that a rollout left; empty where there is none.
func (e *evaluation) patch(o run.Outcome) (string, error) {
	dir, err := e.dir.Attempt(o.Job)
	if err != nil {
		return "", err
	}
	patch, err := os.ReadFile(filepath.Join(dir, attempt.PatchFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if !utf8.Valid(patch) {
		e.d.Log.Warn("a patch is not UTF-8, which JSON cannot hold: its prediction has U+FFFD in places, its patch.diff is exact",
			"task", o.Task, "attempt", o.Index)
	}
	return string(patch), nil
}

// rolloutsFile has the rollouts as training reads them.
const rolloutsFile = "rollouts.jsonl"

// writeRollouts writes rollouts.jsonl, from what the rollouts have recorded. One with a reply whose token ids are not
// known is left out: nothing can be learned from it exactly.
func (e *evaluation) writeRollouts(outcomes []run.Outcome) error {
	left := 0
	err := disk.WriteStream(e.dir.Path(rolloutsFile), func(w io.Writer) error {
		out := rl.NewRolloutWriter(w)
		for _, o := range outcomes {
			if o.Tries == 0 || o.Failed() {
				continue
			}
			dir, err := e.dir.Attempt(o.Job)
			if err != nil {
				return err
			}
			rec, err := trajectory.Open(filepath.Join(dir, attempt.StepsFile))
			if err != nil {
				return err
			}
			r := rl.Rollout{Task: o.Task, Group: o.Group, Attempt: o.Index, Reward: o.Reward, StopReason: o.StopReason}
			var ok bool
			if r.Turns, ok = rec.Samples(); !ok {
				left++
				continue
			}
			if err := out.Write(&r); err != nil {
				return err
			}
		}
		return nil
	})
	if left > 0 {
		e.progress.note("%d rollouts are not in %s, because the endpoint gave no token ids", left, rolloutsFile)
	}
	return err
}
