package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"deepswe/env"
	"deepswe/env/disk"
)

// The files of an evaluation. All but the last two are the official harness's, under its names.
const (
	PatchFile      = "patch.diff"
	ScriptFile     = "eval.sh"
	LogFile        = "test_output.txt"
	InstanceFile   = "run_instance.log"
	ReportFile     = "report.json"     // only where the harness would write one
	EvaluationFile = "evaluation.json" // what the report lacks
	// StrictLogFile is what the tests printed when the reward was confirmed, with twins among them.
	StrictLogFile = "strict_output.txt"
)

// record is evaluation.json.
type record struct {
	Version int `json:"version"`
	Evaluation
}

// Save leaves the evaluation in the directory, which it makes. Each file appears whole or not at all, evaluation.json
// last: a directory with one is complete.
func (v Evaluation) Save(dir string, t env.Task, patch []byte) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("save the evaluation of %s: %w", t.ID, err)
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, stale := range []string{EvaluationFile, ReportFile, LogFile, StrictLogFile} {
		if err := os.Remove(filepath.Join(dir, stale)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	var report []byte
	if v.Report != nil {
		report = v.Report.JSON()
	}
	for _, f := range []struct {
		name string
		data []byte
	}{
		{PatchFile, patch}, {ScriptFile, []byte(t.Tests.Script)}, {InstanceFile, v.instanceLog()}, {LogFile, v.Log},
		{StrictLogFile, v.StrictLog},
		{ReportFile, report},
	} {
		if f.data == nil {
			continue
		}
		if err := disk.WriteFile(filepath.Join(dir, f.name), f.data); err != nil {
			return err
		}
	}
	return disk.WriteJSON(filepath.Join(dir, EvaluationFile), record{1, v})
}

// instanceLog describes how the evaluation went, in the harness's words where it looks for them.
func (v Evaluation) instanceLog() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "task %s, graded by %s\n", v.Task, v.Grader)
	switch {
	case v.Status == PatchFailed:
		fmt.Fprintf(&b, "%s:\n%s\n", patchFailed, v.Detail)
	case v.Applied != "":
		fmt.Fprintf(&b, "%s: %s\n", patchApplied, v.Applied)
	}
	if v.Status != PatchFailed && v.Detail != "" {
		fmt.Fprintln(&b, v.Detail)
	}
	fmt.Fprintf(&b, "result: %s\n", v.Status)
	return b.Bytes()
}

const patchApplied = ">>>>> Applied Patch"

// Load reads the evaluation that Save left in the directory, and reads its log anew. It fails with fs.ErrNotExist where
// there is none.
func Load(dir string, t env.Task) (_ Evaluation, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("load the evaluation of %s: %w", t.ID, err)
		}
	}()
	data, err := os.ReadFile(filepath.Join(dir, EvaluationFile))
	if err != nil {
		return Evaluation{}, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return Evaluation{}, fmt.Errorf("%s: %w", EvaluationFile, err)
	}
	v := r.Evaluation
	if v.Log, err = os.ReadFile(filepath.Join(dir, LogFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Evaluation{}, err
	}
	v.StrictLog, err = os.ReadFile(filepath.Join(dir, StrictLogFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Evaluation{}, err
	}
	if _, err := os.Lstat(filepath.Join(dir, ReportFile)); errors.Is(err, fs.ErrNotExist) {
		return v, nil
	}
	if t.Tests.RewardFile != "" {
		v.Report = rewardReport(t, v.Status)
		return v, nil
	}
	g, err := GradeLog(t, Evidence{Log: v.Log, NoPatch: v.Status == NoPatch})
	if err != nil {
		return Evaluation{}, err
	}
	v.Report, v.Tests = &g.Report, g.Results
	return v, nil
}
