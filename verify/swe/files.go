package swe

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"unicode/utf8"

	"deepswe/agent/attempt"
	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/env/disk"
	"deepswe/verify/harness"
)

// writePredictions writes preds.json, an object of predictions by task that the official harness accepts. It
// contains the first attempt at each task; the other attempts are in preds.1.json and so on.
func (e *Evaluation) writePredictions(outcomes []run.Outcome) error {
	for n := range e.K {
		name := "preds.json"
		if n > 0 {
			name = fmt.Sprintf("preds.%d.json", n)
		}
		err := disk.WriteStream(e.Dir.Path(name), func(w io.Writer) error { return e.predictions(w, outcomes, n) })
		if err != nil {
			return err
		}
	}
	return nil
}

// predictions writes the predictions of one attempt at each task, one after the other, because all together may be
// large. It omits attempts that ended with an infrastructure failure.
func (e *Evaluation) predictions(w io.Writer, outcomes []run.Outcome, index int) error {
	separator := "{\n"
	for _, o := range outcomes {
		if o.Index != index || o.Tries == 0 || o.Failed() {
			continue
		}
		patch, err := e.patch(o)
		if err != nil {
			return err
		}
		id, err := disk.MarshalJSON(o.Task)
		if err != nil {
			return err
		}
		p, err := disk.MarshalJSON(harness.Prediction{InstanceID: o.Task, Model: e.Runner.Attempt.ModelName, Patch: &patch})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s%s: %s", separator, id, p); err != nil {
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

// patch reads the patch of a rollout, or "" if there is none.
func (e *Evaluation) patch(o run.Outcome) (string, error) {
	dir, err := e.Dir.Attempt(o.Job)
	if err != nil {
		return "", err
	}
	patch, err := readPatch(dir)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(patch) {
		logger(e.Log).Warn("a patch is not UTF-8: its prediction has U+FFFD in places, its patch.diff is exact",
			"task", o.Task, "attempt", o.Index)
	}
	return string(patch), nil
}

// RolloutsFile contains the rollouts in the format that training reads.
const RolloutsFile = "rollouts.jsonl"

// WriteRollouts writes rollouts.jsonl from the recorded rollouts, with a writer that is called once. It omits
// rollouts with a reply whose token IDs are unknown, and returns their number.
func (e *Evaluation) WriteRollouts(
	outcomes []run.Outcome, write func(io.Writer, iter.Seq2[run.Outcome, error]) error,
) (left int, err error) {
	sampled := func(yield func(run.Outcome, error) bool) {
		for _, o := range outcomes {
			if o.Tries == 0 || o.Failed() {
				continue
			}
			rec, err := e.recording(o.Job)
			if err != nil {
				yield(o, err)
				return
			}
			o.Messages = Chat(rec)
			var ok bool
			if o.Turns, ok = rec.Samples(); !ok {
				left++
			} else if !yield(o, nil) {
				return
			}
		}
	}
	err = disk.WriteStream(e.Dir.Path(RolloutsFile), func(w io.Writer) error { return write(w, sampled) })
	return left, err
}

// Chat returns a recorded conversation as chat messages. It is nil for native calls, and where parts of the
// conversation were left out of later requests: then no single list of messages is what the model has read.
func Chat(rec *trajectory.Recording) []json.RawMessage {
	if len(rec.Compactions) > 0 {
		return nil
	}
	replies := 0
	var out []json.RawMessage
	for _, m := range rec.Messages {
		if len(m.ToolCalls) > 0 || m.Role == trajectory.RoleTool {
			return nil
		}
		wrong := false
		if m.Role == trajectory.RoleAssistant {
			t := rec.Turns[replies]
			wrong = len(t.Reply.Calls) == 0 && t.Reply.Problem != ""
			replies++
		}
		// Strings and a boolean always encode.
		line, _ := disk.MarshalJSON(struct {
			Role        string `json:"role"`
			Content     string `json:"content"`
			FormatError bool   `json:"format_error,omitempty"`
		}{m.Role, m.Content, wrong})
		out = append(out, line)
	}
	return out
}

// recording reads the record of a rollout.
func (e *Evaluation) recording(j run.Job) (*trajectory.Recording, error) {
	dir, err := e.Dir.Attempt(j)
	if err != nil {
		return nil, err
	}
	return trajectory.Open(filepath.Join(dir, attempt.StepsFile))
}
