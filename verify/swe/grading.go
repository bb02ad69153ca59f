package swe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/verify"
	"deepswe/verify/harness"
	"deepswe/verify/testlog"
)

// Grading grades existing patches, each Repeat times, and stores the results in a run's directory under the
// official harness's names. It is a run.Runner and the journal of its run; Known returns existing results.
type Grading struct {
	// Candidates are the patches, at most one per task. IDs are the tasks of the whole dataset.
	Candidates []Candidate
	IDs        []string
	// Model and RunID are part of the report's name; RunID is also the directory of the results.
	Model  string
	RunID  string
	Repeat int
	Dir    *run.Dir
	// Evaluator grades. It needs a provider only if something is run.
	Evaluator *verify.Evaluator
	Log       *slog.Logger // nil discards everything

	mu      sync.Mutex
	results map[run.Job]verify.Evaluation
	at      map[string]int // index into Candidates by task
}

var (
	_ run.Runner  = (*Grading)(nil)
	_ run.Journal = (*Grading)(nil)
)

// Plan lists the jobs: every patch, Repeat times.
func (g *Grading) Plan() []run.Job {
	var plan []run.Job
	for i := range g.Repeat {
		for _, c := range g.Candidates {
			if c.Runs() {
				plan = append(plan, run.Job{Task: c.Task.ID, Group: c.Task.ID, Index: i})
			}
		}
	}
	return plan
}

func (g *Grading) candidate(task string) Candidate {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at == nil {
		g.at = map[string]int{}
		for i, c := range g.Candidates {
			g.at[c.Task.ID] = i
		}
	}
	return g.Candidates[g.at[task]]
}

// Path returns the directory of a job's results: the harness's for the first run, and a directory below it for each
// repetition.
func (g *Grading) Path(j run.Job) string {
	model := strings.ReplaceAll(g.candidate(j.Task).Model, "/", "__")
	dir := g.Dir.Path("logs", "run_evaluation", run.PathName(g.RunID), run.PathName(model), run.PathName(j.Task))
	if j.Index > 0 {
		dir = filepath.Join(dir, "repeat", strconv.Itoa(j.Index))
	}
	return dir
}

// Known returns the result of a job from this run, or from an earlier one with the same patch, task, grader and
// limits.
func (g *Grading) Known(j run.Job) (verify.Evaluation, bool) {
	if v, ok := g.result(j); ok {
		return v, true
	}
	c := g.candidate(j.Task)
	v, err := verify.Load(g.Path(j), c.Task)
	if err != nil || v.Key != g.Evaluator.Key(c.Task, c.Patch) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			logger(g.Log).Warn("an earlier result cannot be used", "error", err)
		}
		return verify.Evaluation{}, false
	}
	return g.keep(j, v), true
}

func (g *Grading) keep(j run.Job, v verify.Evaluation) verify.Evaluation {
	v.Log = nil
	if g.Repeat == 1 {
		v.Tests = nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.results == nil {
		g.results = map[run.Job]verify.Evaluation{}
	}
	g.results[j] = v
	return v
}

// Run grades one patch once.
func (g *Grading) Run(ctx context.Context, j run.Job) (run.Result, error) {
	c := g.candidate(j.Task)
	v, err := g.Evaluator.Evaluate(ctx, c.Task, c.Patch)
	if err != nil {
		return run.Result{}, err
	}
	if err := v.Save(g.Path(j), c.Task, c.Patch); err != nil {
		return run.Result{}, run.Abort(err)
	}
	g.keep(j, v)
	return graded(v)
}

func graded(v verify.Evaluation) (run.Result, error) {
	var d Detail
	d.grade(v)
	detail, err := json.Marshal(d)
	return run.Result{Reward: &v.Reward, Times: run.Times{Reward: v.Seconds}, Detail: detail}, err
}

// Find finds nothing. Known looks up earlier results, because they are only valid for the same patch.
func (g *Grading) Find(run.Job) (run.Outcome, bool) { return run.Outcome{}, false }

// Record appends the outcome of a job to the run's events.
func (g *Grading) Record(o run.Outcome) error { return g.Dir.Record(o) }

// GradingSummary is the outcome of a grading run.
type GradingSummary struct {
	// Statuses counts the candidates by verdict; Missing candidates have none, because they could not be graded.
	Statuses map[verify.Status]int
	Missing  int
	Flaky    Flaky
	// Path is the path of the official harness's report on the run.
	Path string
}

// Report writes the official harness's report on the run and, if patches were graded more than once, flaky.json.
func (g *Grading) Report() (GradingSummary, error) {
	s := GradingSummary{Statuses: map[verify.Status]int{}, Flaky: g.flaky()}
	report := harness.RunReport{Tasks: g.IDs}
	for _, c := range g.Candidates {
		r := harness.TaskResult{ID: c.Task.ID, EmptyPatch: !c.Runs()}
		v, ok := g.result(run.Job{Task: c.Task.ID, Group: c.Task.ID})
		switch {
		case ok:
			r.Report, r.Infra = v.Report, v.Infra()
			s.Statuses[v.Status]++
		case c.Runs():
			s.Missing++
		default:
			s.Statuses[verify.NoPatch]++
		}
		report.Results = append(report.Results, r)
	}
	s.Path = g.Dir.Path(run.PathName(report.Name(g.Model, g.RunID)))
	if err := disk.WriteFile(s.Path, report.JSON()); err != nil {
		return s, err
	}
	if g.Repeat > 1 {
		return s, disk.WriteJSON(g.Dir.Path(flakyFile), s.Flaky)
	}
	return s, nil
}

func (g *Grading) result(j run.Job) (verify.Evaluation, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok := g.results[j]
	return v, ok
}

const flakyFile = "flaky.json"

// Flaky is the content of flaky.json: the tasks for which several runs of the same patch disagree.
type Flaky struct {
	Version int         `json:"version"`
	Repeat  int         `json:"repeat"`
	Tasks   []FlakyTask `json:"tasks"`
}

// FlakyTask is a task for which several runs of the same patch disagree.
type FlakyTask struct {
	ID string `json:"id"`
	// Statuses are the verdicts in the order of the runs.
	Statuses []verify.Status `json:"statuses"`
	// Tests are the tests whose status was not the same in all runs, with their statuses in the order of the runs;
	// empty if the log did not name the test.
	Tests map[string][]string `json:"tests"`
}

// flaky compares the runs of each patch with each other.
func (g *Grading) flaky() Flaky {
	f := Flaky{Version: 1, Repeat: g.Repeat, Tasks: []FlakyTask{}}
	if g.Repeat < 2 {
		return f
	}
	for _, c := range g.Candidates {
		var runs []verify.Evaluation
		for i := range g.Repeat {
			if v, ok := g.result(run.Job{Task: c.Task.ID, Group: c.Task.ID, Index: i}); ok {
				runs = append(runs, v)
			}
		}
		if t := compareRuns(c.Task.ID, runs); len(t.Tests) > 0 || differ(t.Statuses) {
			f.Tasks = append(f.Tasks, t)
		}
	}
	return f
}

// compareRuns collects the verdicts of several runs, and the tests on which they disagree.
func compareRuns(id string, runs []verify.Evaluation) FlakyTask {
	t := FlakyTask{ID: id, Tests: map[string][]string{}}
	var logs []*testlog.Results
	names := map[string]bool{}
	for _, v := range runs {
		t.Statuses = append(t.Statuses, v.Status)
		log := cmp.Or(v.Tests, &testlog.Results{})
		logs = append(logs, log)
		for name := range log.All() {
			names[name] = true
		}
	}
	for name := range names {
		var statuses []string
		for _, log := range logs {
			s, _ := log.Status(name)
			statuses = append(statuses, string(s))
		}
		if differ(statuses) {
			t.Tests[name] = statuses
		}
	}
	return t
}

func differ[T comparable](all []T) bool {
	return slices.ContainsFunc(all, func(v T) bool { return v != all[0] })
}
