package attempt

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"deepswe/agent"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/repo"
)

// The files of an attempt.
const (
	StepsFile      = "steps.jsonl"        // the event log, step by step
	TrajectoryFile = "trajectory.json"    // the ATIF document, not written if LogOnly is set
	furtherFile    = "trajectory.%d.json" // of a further conversation
	PatchFile      = "patch.diff"         // only where something changed
	ReportFile     = "report.json"        // a Summary
)

// Summary is the short account of an attempt, report.json.
type Summary struct {
	Version    int              `json:"version"`
	Task       string           `json:"task"`
	Model      string           `json:"model,omitempty"`
	Format     string           `json:"format,omitempty"`
	Sandbox    string           `json:"sandbox,omitempty"`
	StopReason agent.StopReason `json:"stop_reason"`
	Error      string           `json:"error,omitempty"`
	PatchError string           `json:"patch_error,omitempty"`
	Answer     string           `json:"answer,omitempty"`
	Steps      int              `json:"steps"`
	// FormatErrors counts replies from which nothing could be run.
	FormatErrors int             `json:"format_errors"`
	Patch        string          `json:"patch,omitempty"` // hex SHA-256
	Files        []string        `json:"files"`
	Omitted      []repo.Omission `json:"omitted,omitempty"`
	Tokens       Tokens          `json:"tokens"`
	Seconds      Seconds         `json:"seconds"`
}

// Tokens sums the usage over all replies.
type Tokens struct {
	Prompt     int `json:"prompt"`
	Completion int `json:"completion"`
	Cached     int `json:"cached,omitempty"`
}

// TokensOf converts a usage. It leaves out reasoning tokens, which are part of the completion.
func TokensOf(u agent.Usage) Tokens {
	return Tokens{Prompt: u.Prompt, Completion: u.Completion, Cached: u.Cached}
}

// Seconds says where the time went.
type Seconds struct {
	Start float64 `json:"start"`
	Model float64 `json:"model"`
	Tools float64 `json:"tools"`
	Patch float64 `json:"patch"`
}

// openLog makes the directory and its event log. A log that exists already is that of an attempt that was killed: its
// events are returned, and the log continues after them, or begins anew where the attempt is made again from the start.
func openLog(dir string, anew bool) (*trajectory.Writer, []trajectory.Event, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	path := filepath.Join(dir, StepsFile)
	log, err := trajectory.Create(path)
	if !errors.Is(err, fs.ErrExist) {
		return log, nil, err
	}
	log, past, err := trajectory.Resume(path)
	if err != nil || !anew {
		return log, past, err
	}
	if err := errors.Join(log.Close(), os.Remove(path)); err != nil {
		return nil, nil, err
	}
	log, err = trajectory.Create(path)
	return log, past, err
}

// write leaves the result's files. Each appears whole or not at all, the report last.
func (a *Attempt) write(dir string, task env.Task, r *Result) error {
	var err error
	if len(r.Outcome.Events) > 0 && !a.LogOnly {
		err = writeDocuments(dir, r.Outcome.Events)
	}
	if len(r.Patch.Diff) > 0 {
		err = errors.Join(err, disk.WriteFile(filepath.Join(dir, PatchFile), r.Patch.Diff))
	} else if rerr := os.Remove(filepath.Join(dir, PatchFile)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr) // of an earlier try that was killed
	}
	if err != nil {
		return err
	}
	return disk.WriteJSON(filepath.Join(dir, ReportFile), newSummary(task, a, r))
}

// writeDocuments writes an ATIF document for each conversation, the main one first.
func writeDocuments(dir string, events []trajectory.Event) error {
	for i, one := range trajectory.Conversations(events) {
		name := TrajectoryFile
		if i > 0 {
			name = fmt.Sprintf(furtherFile, i)
		}
		doc, err := trajectory.NewDocument(one)
		if err == nil {
			err = doc.WriteFile(filepath.Join(dir, name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func newSummary(task env.Task, a *Attempt, r *Result) Summary {
	report := Summary{
		Version: 1, Task: task.ID, Model: a.ModelName, Format: r.Outcome.Format, Sandbox: a.Provider.Name(),
		StopReason: r.Outcome.StopReason, Answer: r.Outcome.Answer,
		Steps: r.Outcome.Steps, FormatErrors: r.Outcome.FormatErrors,
		Files: r.Patch.Files, Omitted: r.Patch.Omitted,
		Tokens: TokensOf(r.Outcome.Usage),
		Seconds: Seconds{
			Start: r.StartTime.Seconds(), Model: r.Outcome.ModelTime.Seconds(),
			Tools: r.Outcome.ToolTime.Seconds(), Patch: r.PatchTime.Seconds(),
		},
	}
	if report.Files == nil {
		report.Files = []string{}
	}
	if len(r.Patch.Diff) > 0 {
		report.Patch = r.Patch.Hash()
	}
	if err := cmp.Or(r.Err, r.Outcome.Err); err != nil {
		report.Error = err.Error()
	}
	if r.PatchErr != nil {
		report.PatchError = r.PatchErr.Error()
	}
	return report
}

// ReadSummary reads the summary of an attempt's directory.
func ReadSummary(dir string) (Summary, error) {
	var r Summary
	err := disk.ReadJSON(filepath.Join(dir, ReportFile), &r)
	return r, err
}
