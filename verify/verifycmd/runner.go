package verifycmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/verify"
)

// runner plays the rollouts of an evaluation: the agent's attempt, then its grading, in a sandbox each. What is on disk
// already is not done again, so that a rollout goes on where it was cut off.
type runner struct {
	tasks     map[string]env.Task
	dir       *run.Dir
	attempt   attempt.Attempt
	evaluator *verify.Evaluator // nil to grade nothing
	gates     run.Gates
	progress  *progress
	// seed is the run's, nil to leave sampling to the endpoint.
	seed *uint64
}

func newRunner(e *evaluation) (*runner, error) {
	r := &runner{
		tasks: e.tasks, dir: e.dir, gates: e.gates, progress: e.progress,
	}
	run := filepath.Base(e.dir.Path())
	r.evaluator = &verify.Evaluator{Provider: e.provider, Timeout: e.o.gradeTimeout, Network: e.o.gradeNetwork, Run: run}
	if e.o.seeded {
		r.seed = &e.o.seed
	}
	if e.o.attempts == 0 {
		return r, nil
	}
	var err error
	if r.attempt, err = e.o.model.attempt(e.model, e.o.network); err != nil {
		return nil, err
	}
	r.attempt.Provider, r.attempt.Run, r.attempt.Version = e.provider, run, e.d.Version
	r.attempt.Model = e.gates.Model.Guard(e.model.Model)
	if m, ok := e.model.Model.(attempt.Relocatable); ok {
		r.attempt.Model = m.(agent.Model)
	}
	r.attempt.Abandon, r.attempt.Log = e.d.Abandon, e.d.Log
	if e.o.noGrade {
		r.evaluator = nil
	}
	return r, nil
}

// detail is what the journal keeps of a rollout beside its reward.
type detail struct {
	// Status is the harness's verdict; empty where nothing was graded.
	Status       verify.Status          `json:"status,omitempty"`
	Suspicious   []verify.SuspicionKind `json:"suspicious,omitempty"`
	InfraReason  string                 `json:"infra_failure_reason,omitempty"`
	Patch        string                 `json:"patch,omitempty"` // hex SHA-256
	Files        int                    `json:"files"`
	Omitted      int                    `json:"omitted,omitempty"`
	Steps        int                    `json:"steps"`
	FormatErrors int                    `json:"format_errors"`
	Format       string                 `json:"format,omitempty"`
	Tokens       attempt.Tokens         `json:"tokens"`
}

func detailOf(o run.Outcome) detail {
	var d detail
	_ = json.Unmarshal(o.Detail, &d) // a rollout that failed has none
	return d
}

// gradeDir is the directory of a rollout's grading, inside of the rollout's.
const gradeDir = "grade"

// Run plays one rollout.
func (r *runner) Run(ctx context.Context, a run.Job) (run.Result, error) {
	dir, err := r.dir.Attempt(a)
	if err != nil {
		return run.Result{}, run.Abort(err)
	}
	task := r.tasks[a.Task]
	report, err := r.play(ctx, a, task, dir)
	if err != nil {
		return run.Result{}, err
	}
	result := run.Result{StopReason: report.StopReason}
	result.Times.Model = report.Seconds.Model
	result.Times.Environment = report.Seconds.Start + report.Seconds.Tools + report.Seconds.Patch
	d := detail{
		Patch: report.Patch, Files: len(report.Files), Omitted: len(report.Omitted), Steps: report.Steps,
		FormatErrors: report.FormatErrors, Format: report.Format, Tokens: report.Tokens,
	}
	if report.StopReason != agent.Interrupted && r.evaluator != nil {
		v, err := r.grade(ctx, task, dir)
		if err != nil {
			return run.Result{}, err
		}
		if !v.Void {
			result.Reward = &v.Reward
		}
		d.Status, d.InfraReason, result.Times.Reward = v.Status, v.InfraReason, v.Seconds
		for _, s := range v.Suspicious {
			d.Suspicious = append(d.Suspicious, s.Kind)
		}
	}
	result.Detail, err = json.Marshal(d)
	return result, err
}

// play lets the agent work, unless it has ended already, and returns what it left.
func (r *runner) play(ctx context.Context, a run.Job, task env.Task, dir string) (attempt.Report, error) {
	report, err := attempt.ReadReport(dir)
	if err == nil && ended(report) {
		return report, nil
	}
	try := r.attempt
	if r.seed != nil {
		seed := a.Seed(*r.seed, 0)
		try.Sampling.Seed = &seed
	}
	try.OnEvent = func(e agent.Event) {
		if e.Kind == agent.EventReply && e.Usage != nil {
			r.progress.add(e.Usage.Prompt + e.Usage.Completion)
		}
	}
	leave, err := r.gates.Sandbox.Enter(ctx)
	if err != nil {
		return report, err
	}
	made, err := try.Make(ctx, task, attempt.Source{}, dir)
	leave()
	switch {
	case err != nil:
		return report, run.Abort(err) // the disk, not the rollout
	case errors.Is(context.Cause(ctx), run.ErrDeadline):
		return report, context.Cause(ctx) // it hangs in spite of its own limits
	case made.Outcome.StopReason == agent.Interrupted:
		return attempt.Report{StopReason: agent.Interrupted}, nil
	case made.Err != nil:
		return report, made.Err
	case hopeless(made.Outcome.Err):
		return report, run.Abort(made.Outcome.Err)
	case made.Outcome.Err != nil:
		return report, made.Outcome.Err
	case made.PatchErr != nil:
		return report, fmt.Errorf("compute the patch: %w", made.PatchErr)
	}
	return attempt.ReadReport(dir)
}

// ended tells whether an attempt has come to an end that says something about the model.
func ended(r attempt.Report) bool {
	switch r.StopReason {
	case "", agent.Interrupted, agent.ModelError, agent.SandboxError:
		return false
	}
	return r.Error == "" && r.PatchError == ""
}

// grade grades the patch that the attempt left, unless that was done already.
func (r *runner) grade(ctx context.Context, task env.Task, dir string) (verify.Evaluation, error) {
	patch, err := os.ReadFile(filepath.Join(dir, attempt.PatchFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return verify.Evaluation{}, err
	}
	to := filepath.Join(dir, gradeDir)
	key := r.evaluator.Key(r.tasks[task.ID], patch)
	if v, err := verify.Load(to, task); err == nil && v.Key == key {
		return v, nil
	}
	leave, err := r.gates.Grading.Enter(ctx)
	if err != nil {
		return verify.Evaluation{}, err
	}
	defer leave()
	v, err := r.evaluator.Evaluate(ctx, task, patch)
	if err != nil {
		return verify.Evaluation{}, err
	}
	v.Key = key
	if err := v.Save(to, task, patch); err != nil {
		return verify.Evaluation{}, run.Abort(err)
	}
	return v, nil
}

// solved is the stricter verdict on a rollout.
func solved(o run.Outcome) bool { return o.Reward != nil && *o.Reward >= 1 }

// verdict says in a line what a rollout came to.
func verdict(o run.Outcome) string {
	d := detailOf(o)
	word := "not graded"
	switch {
	case solved(o):
		word = "solved"
	case d.Status != "":
		word = strings.ReplaceAll(string(d.Status), "_", " ")
	}
	for _, s := range d.Suspicious {
		word += fmt.Sprintf(", suspicious (%s)", s)
	}
	return fmt.Sprintf("%s (%s after %d steps, %s)", word, strings.ReplaceAll(string(o.StopReason), "_", " "), d.Steps,
		clock(secondsOf(o.Times.Total)))
}
