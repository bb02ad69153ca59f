package swe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/verify"
)

// Evaluation measures an agent by K rollouts for each task of a dataset, in a run directory, and by K more at each of
// several smaller context lengths.
type Evaluation struct {
	// IDs are the tasks in order; Runner contains the tasks themselves.
	IDs []string
	K   int
	// Contexts are further, smaller context lengths in tokens, in addition to that of Runner's attempts.
	Contexts []int
	// Runner plays the rollouts. Evaluator checks the soundness of the tasks, even if Runner grades nothing.
	Runner    *Runner
	Evaluator *verify.Evaluator
	// Mutants is the number of mutants of each task's solution that the soundness check tries; 0 tries none.
	Mutants int
	// Dir is the run's directory.
	Dir *run.Dir
	// Workers is how many rollouts are played at once.
	Workers int
	// Warm is how many sandboxes are started ahead of time.
	Warm int
	// Observe, if not nil, is called for every event of the engine, one at a time.
	Observe func(run.Event)
	Log     *slog.Logger // nil discards everything
}

// maxRetries is how often a rollout is resumed after an infrastructure failure. A retry is cheap, because it
// continues where the rollout stopped.
const maxRetries = 4

// Run plays the rollouts that were not played yet, and returns the outcomes of all in the order of the plan.
func (e *Evaluation) Run(ctx context.Context, plan []run.Job) ([]run.Outcome, error) {
	todo := slices.DeleteFunc(slices.Clone(plan), func(j run.Job) bool {
		_, done := e.Dir.Find(j)
		return done
	})
	a := newAhead(ctx, e.Runner.Attempt.Provider, todo, e.Workers, e.Warm, e.spec, logger(e.Log))
	defer a.close()
	observe := a.observing(e.Observe)
	return e.engine(e.Runner, maxRetries, observe).Run(ctx, plan)
}

func (e *Evaluation) engine(r run.Runner, retries int, observe func(run.Event)) *run.Engine {
	return &run.Engine{Runner: r, Journal: e.Dir, Options: run.Options{
		Workers: e.Workers, Retries: retries, MaxFailures: max(12, 3*e.Workers), Observe: observe, Deadline: e.deadline(),
	}}
}

// spec returns the sandbox that an attempt at a task will request.
func (e *Evaluation) spec(id string) env.Spec {
	return e.Runner.Attempt.Spec(e.Runner.Tasks[id], nil)
}

// deadline returns a time limit for rollouts that hang in spite of their own limits.
func (e *Evaluation) deadline() time.Duration {
	grading := e.Evaluator.Timeout
	for _, t := range e.Runner.Tasks {
		grading = max(grading, t.Tests.Timeout)
	}
	// There is one run like the harness's, and seldom more than seven others, which may take twice as long.
	return 2*e.Runner.Attempt.Limits.Wall + 16*max(grading, verify.EvaluationTimeout) + time.Hour
}

func logger(l *slog.Logger) *slog.Logger {
	return cmp.Or(l, slog.New(slog.DiscardHandler))
}

// ErrChanged reports that a run cannot be resumed, because its tasks or its model have changed.
var ErrChanged = errors.New("not what the run began with")

// Files that record what a run started with.
const (
	tasksFile = "tasks.json"
	modelFile = "model.json"
)

// keptTasks is the content of tasks.json: the tasks in order, each with a hash of what its grading depends on.
type keptTasks struct {
	Version int        `json:"version"`
	Tasks   []keptTask `json:"tasks"`
}

type keptTask struct {
	ID  string `json:"id"`
	Key string `json:"key"`
}

// KeepTasks records the tasks of a new run. For a resumed run, it checks that they are the same; otherwise the
// error wraps ErrChanged.
func (e *Evaluation) KeepTasks() error {
	now := keptTasks{Version: 1}
	for _, id := range e.IDs {
		now.Tasks = append(now.Tasks, keptTask{id, (&verify.Evaluator{}).Key(e.Runner.Tasks[id], nil)})
	}
	before, resumed, err := keep(e.Dir, tasksFile, now)
	if err == nil && resumed && !slices.Equal(now.Tasks, before.Tasks) {
		err = fmt.Errorf("the tasks are %w in %s", ErrChanged, e.Dir.Path())
	}
	return err
}

// SameTasks checks that tasks are the same as when the run in a directory was played, as far as the run has them.
// Otherwise the error wraps ErrChanged. A directory that does not record its tasks passes.
func SameTasks(run string, tasks map[string]env.Task) error {
	kept, err := KeptTasks(run)
	for _, id := range slices.Sorted(maps.Keys(kept)) {
		if t, ok := tasks[id]; ok && (&verify.Evaluator{}).Key(t, nil) != kept[id] {
			return fmt.Errorf("task %s is %w in %s", id, ErrChanged, run)
		}
	}
	return err
}

// KeptTasks returns the tasks that the run in a directory was played with, by id, each with a hash of what its grading
// depends on; nil if the directory does not record them.
func KeptTasks(run string) (map[string]string, error) {
	var kept keptTasks
	if err := disk.ReadJSON(filepath.Join(run, tasksFile), &kept); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, k := range kept.Tasks {
		all[k.ID] = k.Key
	}
	return all, nil
}

// keptModel is the content of model.json: the model as the endpoint served it.
type keptModel struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Context int    `json:"context,omitempty"`
}

// KeepModel records, or checks, the model and its context length, which is 0 if the endpoint does not report it.
func (e *Evaluation) KeepModel(context int) error {
	now := keptModel{Version: 1, Name: e.Runner.Attempt.ModelName, Context: context}
	before, resumed, err := keep(e.Dir, modelFile, now)
	if err == nil && resumed && now != before {
		err = fmt.Errorf("the model is %w: the run in %s is of %s with a context of %d tokens, "+
			"and the endpoint now serves %s with %d",
			ErrChanged, e.Dir.Path(), before.Name, before.Context, now.Name, now.Context)
	}
	return err
}

// ModelOf returns the name of the model of the run in the directory, or "" if it is unknown.
func ModelOf(run string) string {
	var m keptModel
	_ = disk.ReadJSON(filepath.Join(run, modelFile), &m)
	return m.Name
}

// keep writes a file of the run, or returns its content if it exists. It must exist once attempts were played.
func keep[T any](dir *run.Dir, name string, now T) (before T, resumed bool, err error) {
	path := dir.Path(name)
	err = disk.ReadJSON(path, &before)
	if !errors.Is(err, fs.ErrNotExist) {
		return before, true, err
	}
	if dir.Played() {
		return before, false, fmt.Errorf("read %s: it is missing: %w", path, disk.ErrDamaged)
	}
	return now, false, disk.WriteJSON(path, now)
}
