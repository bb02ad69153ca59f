package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"deepswe/env"
	"deepswe/env/disk"
)

// The files of an evaluation. Except for the last two, they have the names and contents of the official harness's.
const (
	PatchFile      = "patch.diff"
	ScriptFile     = "eval.sh"
	LogFile        = "test_output.txt"
	InstanceFile   = "run_instance.log"
	ReportFile     = "report.json"     // only if the harness would write one
	EvaluationFile = "evaluation.json" // what the report does not contain
	// StrictLogFile is the output of the tests in the strict trials that confirm the reward.
	StrictLogFile = "strict_output.txt"
)

// record is the content of evaluation.json.
type record struct {
	Version int `json:"version"`
	Evaluation
}

// Save writes the evaluation to a directory, which it creates. Each file is written atomically, evaluation.json last,
// so that a directory with that file is complete.
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

// Load reads an evaluation that Save has written, and parses its log again. If there is none, the error is
// fs.ErrNotExist.
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
	for name, log := range map[string]*[]byte{LogFile: &v.Log, StrictLogFile: &v.StrictLog} {
		if *log, err = os.ReadFile(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Evaluation{}, err
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, ReportFile)); errors.Is(err, fs.ErrNotExist) {
		return v, nil
	}
	if t.Tests.RewardFile != "" || v.Mixed {
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
