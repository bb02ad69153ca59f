package compare

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/verify"
	"deepswe/verify/swe"
)

// Run is what a comparison needs of a run of eval or grade.
type Run struct {
	Name, Path, Model string
	Kind              run.Kind
	// Size is the number of the model's parameters in billions; 0 if it is unknown.
	Size float64
	// Price returns the cost of a usage; nil if the model has no known price.
	Price func(agent.Usage) float64

	tasks   map[string]*task // those with a verdict
	keys    map[string]string
	graders []string
	limits  map[string]string
	rep     swe.EvaluationReport
}

// task is how the attempts at a task ended.
type task struct {
	swe.Attempts
	first   bool // the first attempt solved it
	stops   []string
	tokens  agent.Usage
	seconds float64
}

// limits are the flags that limit the agent or decide how patches are graded. Runs that differ in one of them measure
// different things.
var limits = []string{
	"max-steps", "context", "timeout", "command-timeout", "network", "grade-timeout", "grade-network", "canary",
	"evidence", "odds", "training",
}

// Read reads a run.
func Read(path string) (*Run, error) {
	reader, err := run.Read(path)
	if err != nil {
		return nil, err
	}
	r := &Run{Path: path, Kind: reader.Manifest.Kind, tasks: map[string]*task{}}
	if r.Kind != run.Eval && r.Kind != run.Grade {
		return nil, fmt.Errorf("%s is a run of %s: only runs of eval and grade have verdicts to compare", path, r.Kind)
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	r.Name = filepath.Base(full)
	if err := r.readFiles(reader); err != nil {
		return nil, err
	}
	for _, o := range reader.Outcomes {
		if r.Kind == run.Eval && o.Group == o.Task && !o.Failed() && o.Reward != nil {
			r.add(o)
			r.addGrader(filepath.Join(reader.AttemptDir(o.Job), "grade"))
		}
	}
	if r.Kind == run.Grade {
		if err := r.addGraded(); err != nil {
			return nil, err
		}
	}
	slices.Sort(r.graders)
	if len(r.tasks) == 0 {
		return nil, fmt.Errorf("%s has no verdict yet: nothing can be compared", path)
	}
	return r, nil
}

// readFiles reads what a run says about itself.
func (r *Run) readFiles(reader *run.Reader) error {
	var s struct {
		Flags map[string]string `json:"flags"`
	}
	if len(reader.Manifest.Settings) > 0 {
		if err := json.Unmarshal(reader.Manifest.Settings, &s); err != nil {
			return fmt.Errorf("%s: the settings in the manifest: %w", r.Path, err)
		}
	}
	r.limits, r.Model = s.Flags, cmp.Or(swe.ModelOf(r.Path), s.Flags["model"])
	r.Size = sizeOf(r.Model)
	var err error
	if r.keys, err = swe.KeptTasks(r.Path); err != nil {
		return err
	}
	err = disk.ReadJSON(filepath.Join(r.Path, swe.ReportFile), &r.rep)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a run that has not ended has no report
	}
	return err
}

// sizePattern finds the number of parameters in the name of a model: Qwen3-32B, qwen2.5-coder:7b.
var sizePattern = regexp.MustCompile(`(?i)(?:^|[^a-z0-9.])(\d+(?:\.\d+)?)b(?:$|[^a-z0-9])`)

// sizeOf returns the size in a model's name; 0 if it has none.
func sizeOf(model string) float64 {
	m := sizePattern.FindStringSubmatch(model)
	if m == nil {
		return 0
	}
	size, _ := strconv.ParseFloat(m[1], 64) // cannot fail: the pattern is a number
	return size
}

// addGrader remembers the version of the rules that graded an attempt.
func (r *Run) addGrader(dir string) {
	var e struct {
		Grader string `json:"grader"`
	}
	if disk.ReadJSON(filepath.Join(dir, verify.EvaluationFile), &e) == nil && !slices.Contains(r.graders, e.Grader) {
		r.graders = append(r.graders, e.Grader)
	}
}

// addGraded adds the verdicts of a run of grade: those on its patches, and that empty patches solve nothing.
func (r *Run) addGraded() error {
	for _, path := range disk.Glob(r.Path, "logs/run_evaluation/*/*/*/"+verify.EvaluationFile) {
		var v verify.Evaluation
		if err := disk.ReadJSON(path, &v); err != nil {
			return err
		}
		r.addGrader(filepath.Dir(path))
		o := run.Outcome{Job: run.Job{Task: v.Task}, Result: run.Result{Reward: &v.Reward}}
		o.Detail, _ = json.Marshal(swe.Detail{Status: v.Status}) // cannot fail: it has only texts
		if !v.Void {
			r.add(o)
		}
	}
	for _, path := range disk.Glob(r.Path, "*.json") {
		var rep struct {
			Empty []string `json:"empty_patch_ids"`
		}
		if disk.ReadJSON(path, &rep) != nil {
			continue // another file
		}
		for _, id := range rep.Empty {
			r.add(run.Outcome{Job: run.Job{Task: id}, Result: run.Result{Reward: new(0.0), StopReason: "no_patch"}})
		}
	}
	return nil
}

// add counts an attempt with a verdict.
func (r *Run) add(o run.Outcome) {
	t := r.tasks[o.Task]
	if t == nil {
		t = &task{}
		r.tasks[o.Task] = t
	}
	d := swe.DetailOf(o)
	t.Made++
	if swe.Solved(o) {
		t.Solved++
		t.first = t.first || o.Index == 0
	}
	t.stops = append(t.stops, cmp.Or(string(o.StopReason), string(d.Status)))
	t.tokens.Add(agent.Usage{Prompt: d.Tokens.Prompt, Completion: d.Tokens.Completion, Cached: d.Tokens.Cached})
	t.seconds += o.Times.Total
}
