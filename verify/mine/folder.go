package mine

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/disk"
	history "deepswe/env/mine"
	"deepswe/verify/plot"
)

// The files of a folder of tasks. What the miner remembers is in a hidden directory, which readers of datasets skip.
const (
	TasksFile  = "tasks.jsonl"
	ReportFile = "report.html"
	workDir    = ".mine"
	reportJSON = "mined.json"
	issuesFile = "issues.json"
)

// Folder is where mined tasks are kept.
type Folder struct{ Path string }

// Open opens the directory in which the miner remembers what it did, or creates it, and locks it for this process.
func (f Folder) Open(program string) (*run.Dir, error) {
	path := filepath.Join(f.Path, workDir)
	if run.Exists(path) {
		return run.Open(path, run.Mine)
	}
	return run.Create(path, run.Manifest{Kind: run.Mine, Program: program})
}

// Report returns what the last run has found; the zero value before the first one.
func (f Folder) Report() (r Report, err error) {
	err = disk.ReadJSON(filepath.Join(f.Path, workDir, reportJSON), &r)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return r, err
}

// Held returns the folder of the tasks that are held out.
func (f Folder) Held() Folder { return Folder{f.Path + "-held"} }

// Issues reads the texts of issues from a file, and keeps them for later runs; without a name, they are those of the
// last time.
func (f Folder) Issues(file string) (history.Issues, error) {
	kept := filepath.Join(f.Path, workDir, issuesFile)
	data, err := os.ReadFile(cmp.Or(file, kept))
	if file == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var issues history.Issues
	if err == nil {
		issues, err = history.ReadIssues(data)
	}
	if err == nil && file != "" {
		err = disk.WriteFile(kept, data)
	}
	if err != nil {
		return nil, fmt.Errorf("read issues: %w", err)
	}
	return issues, nil
}

// Write writes the tasks and the report. The newest tasks, as many as the report says are held out, go to the folder
// Held. Its file is removed when nothing is held out any more. Each file is replaced as a whole.
func (f Folder) Write(tasks []env.Task, r Report) error {
	older, newer := tasks[:len(tasks)-r.Held], tasks[len(tasks)-r.Held:]
	held := filepath.Join(f.Held().Path, TasksFile)
	switch before, err := f.Report(); {
	case err != nil:
		return err
	case r.Share > 0:
		if err := os.MkdirAll(f.Held().Path, 0o755); err != nil {
			return err
		}
		if err := writeTasks(held, newer); err != nil {
			return err
		}
	case before.Share > 0:
		if err := os.Remove(held); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := writeTasks(filepath.Join(f.Path, TasksFile), older); err != nil {
		return err
	}
	if err := disk.WriteStream(filepath.Join(f.Path, ReportFile), r.page); err != nil {
		return err
	}
	return disk.WriteJSON(filepath.Join(f.Path, workDir, reportJSON), r)
}

func writeTasks(path string, tasks []env.Task) error {
	return disk.WriteStream(path, func(w io.Writer) error {
		for _, t := range tasks {
			if err := disk.EncodeJSON(w, t); err != nil {
				return err
			}
		}
		return nil
	})
}

// Report is what a run has found, from the history to the tasks.
type Report struct {
	Version    int    `json:"version"`
	Repository string `json:"repository"`
	Licence    string `json:"licence,omitempty"`
	// Asked is how many commits were to be walked; Commits is less if the history is shorter.
	Asked   int  `json:"asked"`
	Commits int  `json:"commits"`
	Shallow bool `json:"shallow,omitempty"`
	// Unfit counts the commits that are no candidates.
	Unfit      map[history.Reason]int `json:"unfit"`
	Candidates int                    `json:"candidates"`
	Eras       int                    `json:"eras"`
	Validated  int                    `json:"validated"`
	Sound      int                    `json:"sound"`
	// Setup is how to set up, as the user has said.
	Setup []string `json:"setup,omitempty"`
	// Share is the part of the tasks that is held out, Held their number.
	Share  float64 `json:"share,omitempty"`
	Held   int     `json:"held,omitempty"`
	Losses []Loss  `json:"losses"`
	Tasks  []Row   `json:"tasks"`
	// Synthetic are the bugs that were made; nil if none were wanted.
	Synthetic *Made `json:"synthetic,omitempty"`
}

// Made is what has become of bugs that were made. Their tasks are among those of the report.
type Made struct {
	Kinds     []string `json:"kinds"`
	Bugs      int      `json:"bugs"`
	Validated int      `json:"validated"`
	Sound     int      `json:"sound"`
	Losses    []Loss   `json:"losses"`
}

// Reasons counts the losses, the most common first.
func (m Made) Reasons() []Count { return reasons(m.Losses) }

// Row is a task in a report.
type Row struct {
	ID      string            `json:"id"`
	Subject string            `json:"subject"`
	Fail    int               `json:"fail_to_pass"`
	Pass    int               `json:"pass_to_pass"`
	Labels  map[string]string `json:"labels"`
	// Hides are the installed packages that the task hides.
	Hides []string `json:"hides,omitempty"`
}

// Kinds are the kinds of bugs that are made.
func (r Report) Kinds() []string {
	if r.Synthetic == nil {
		return nil
	}
	return r.Synthetic.Kinds
}

// Add adds what has become of the candidates, and returns all tasks, of which those to hold out come last. A bug that
// was made of a commit whose own task is held out does not become a task, because it would give that solution away.
func (r *Report) Add(m *Mined) []env.Task {
	r.Validated, r.Sound, r.Losses = m.Validated, len(m.Tasks), m.Losses
	r.Held = int(r.Share*float64(r.Sound) + 0.5)
	tasks := m.Tasks
	if made := m.Synthetic; made != nil {
		held := map[string]bool{}
		for _, t := range m.Tasks[len(m.Tasks)-r.Held:] {
			held[t.Labels["commit"]] = true
		}
		free := slices.DeleteFunc(slices.Clone(made.Tasks), func(t env.Task) bool { return held[t.Labels["commit"]] })
		r.Synthetic = &Made{r.Kinds(), m.Made, made.Validated, len(free), made.Losses}
		tasks = slices.Concat(free, tasks)
	}
	for _, t := range tasks {
		subject, _, _ := strings.Cut(t.Statement, "\n")
		r.Tasks = append(r.Tasks, Row{t.ID, subject, len(t.Tests.FailToPass), len(t.Tests.PassToPass), t.Labels, t.Hides})
	}
	return tasks
}

// Count is a number of commits with something in common.
type Count struct {
	Of string
	N  int
}

// Reasons counts the losses, the most common first.
func (r Report) Reasons() []Count { return reasons(r.Losses) }

func reasons(losses []Loss) []Count {
	n := map[history.Reason]int{}
	for _, l := range losses {
		n[l.Reason]++
	}
	return counted(n)
}

// UnfitReasons counts the commits that are no candidates.
func (r Report) UnfitReasons() []Count { return counted(r.Unfit) }

// Evidence counts the tasks by the evidence for their rewards, the most common first.
func (r Report) Evidence() []Count {
	n := map[string]int{}
	for _, t := range r.Tasks {
		if strength := t.Labels["evidence"]; strength != "" {
			n["with "+strength+" evidence"]++
		}
	}
	return counted(n)
}

// Wanted returns what the tests of further candidates lack to run, the most frequent first.
func (r Report) Wanted() []Count {
	n := map[string]int{}
	for _, l := range r.Losses {
		if l.Reason == NeverRuns && l.Detail != "" {
			n[l.Detail]++
		}
	}
	return counted(n)
}

func counted[K ~string](n map[K]int) []Count {
	var all []Count
	for of, k := range n {
		all = append(all, Count{string(of), k})
	}
	slices.SortFunc(all, func(a, b Count) int { return cmp.Or(b.N-a.N, strings.Compare(a.Of, b.Of)) })
	return all
}

//go:embed page.html
var pageHTML string

// page writes the report as a page that needs no other file.
func (r Report) page(w io.Writer) error {
	t, err := template.New("report").Parse(pageHTML)
	if err != nil {
		return err
	}
	style := template.CSS(plot.Style) //nolint:gosec // it is our own
	return t.Execute(w, struct {
		Report
		Style template.CSS
	}{r, style})
}
