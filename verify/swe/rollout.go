package swe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/llm"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/verify"
)

// Runner plays graded rollouts: the agent's attempt in one sandbox, then the grading of its patch in pristine ones.
// It does not repeat what a rollout's directory already contains, so an interrupted rollout continues where it
// stopped. The fields are set before the first Run and not changed afterwards; Tasks, Dir and Attempt are required.
type Runner struct {
	// Tasks are the tasks by ID.
	Tasks map[string]env.Task
	// Dir creates the directory of a rollout and returns its path.
	Dir func(run.Job) (string, error)
	// Attempt configures the agent. Run adds the gate to its model, and sets its sampling seed.
	Attempt attempt.Attempt
	// Evaluator grades the patches. If it is nil, nothing is graded and rollouts have no reward.
	Evaluator *verify.Evaluator
	// Ungraded, if not nil, reports whether rollouts that end for the given reason are not graded; their results
	// are NotGraded.
	Ungraded func(agent.StopReason) bool
	// Gates limit what happens at once. If the grading gate is limited, a rollout releases its worker before it
	// waits for the gate; see [run.Release].
	Gates run.Gates
	// Seed is the run's seed, from which each rollout's is derived; nil leaves sampling to the endpoint.
	Seed *uint64
	// OnEvent, if not nil, is called with the agents' events, on the goroutines of Run.
	OnEvent func(run.Job, agent.Event)
}

var _ run.Runner = (*Runner)(nil)

// Detail is what the journal stores about a rollout besides its reward.
type Detail struct {
	// Status is the harness's verdict; empty if nothing was graded.
	Status     verify.Status          `json:"status,omitempty"`
	Suspicious []verify.SuspicionKind `json:"suspicious,omitempty"`
	// Confirmed is the strictest check that a reward of 1 has passed ("harness", "strict", "canary"). Canary and
	// CanaryReason are the canary's result, if the first run gave a reward.
	Confirmed    string             `json:"confirmed,omitempty"`
	Canary       verify.CanaryState `json:"canary,omitempty"`
	CanaryReason string             `json:"canary_reason,omitempty"`
	// Evidence is the weakest evidence for a test that the patch has to make pass.
	Evidence verify.Strength `json:"evidence,omitempty"`
	// Variants is the number of tests that also ran with other values, if the patch was one of the sample; if it fails
	// any, Suspicious contains verify.Overfit.
	Variants     int            `json:"variants,omitempty"`
	InfraReason  string         `json:"infra_failure_reason,omitempty"`
	Patch        string         `json:"patch,omitempty"` // hex SHA-256
	Files        int            `json:"files"`
	Omitted      int            `json:"omitted,omitempty"`
	Steps        int            `json:"steps"`
	FormatErrors int            `json:"format_errors"`
	Format       string         `json:"format,omitempty"`
	Tokens       attempt.Tokens `json:"tokens"`
}

// DetailOf returns the detail of a Runner's outcome; zero for a rollout that failed.
func DetailOf(o run.Outcome) Detail {
	var d Detail
	_ = json.Unmarshal(o.Detail, &d) // a failed rollout has no detail
	return d
}

// grade adds the verdict.
func (d *Detail) grade(v verify.Evaluation) {
	d.Status, d.InfraReason = v.Status, v.InfraReason
	for _, s := range v.Suspicious {
		d.Suspicious = append(d.Suspicious, s.Kind)
	}
	if c := v.Confirmation; c != nil {
		d.Confirmed, d.Canary, d.CanaryReason, d.Evidence = v.Confirmed(), c.Canary, c.Reason, c.Evidence
		if c.Variants != nil {
			d.Variants = c.Variants.Tests
		}
	}
}

// Overfit reports whether the patch passes the tests, but not with other values in them. tried is set if that is
// known.
func (d Detail) Overfit() (overfit, tried bool) {
	return slices.Contains(d.Suspicious, verify.Overfit), d.Variants > 0
}

// Solved reports whether a rollout solved its task, by the stricter verdict.
func Solved(o run.Outcome) bool { return o.Reward != nil && *o.Reward >= 1 }

// gradeDir is the directory of a rollout's grading, inside the rollout's directory.
const gradeDir = "grade"

// Run plays one rollout. Its reward is nil if there is no verdict: the agent was interrupted, nothing is graded, or
// the task itself is at fault. An endpoint failure that every other rollout would meet too aborts the run.
func (r *Runner) Run(ctx context.Context, j run.Job) (run.Result, error) {
	dir, err := r.Dir(j)
	if err != nil {
		return run.Result{}, run.Abort(err)
	}
	task, ok := r.Tasks[j.Task]
	if !ok {
		return run.Result{}, run.Abort(fmt.Errorf("no task %s", j.Task))
	}
	report, err := r.play(ctx, j, task, dir)
	if err != nil {
		return run.Result{}, err
	}
	result := run.Result{StopReason: report.StopReason}
	result.Times.Model = report.Seconds.Model
	result.Times.Environment = report.Seconds.Start + report.Seconds.Tools + report.Seconds.Patch
	d := Detail{
		Patch: report.Patch, Files: len(report.Files), Omitted: len(report.Omitted), Steps: report.Steps,
		FormatErrors: report.FormatErrors, Format: report.Format, Tokens: report.Tokens,
	}
	switch {
	case report.StopReason == agent.Interrupted || r.Evaluator == nil:
	case r.Ungraded != nil && r.Ungraded(report.StopReason):
		result.NotGraded = true
	default:
		v, err := r.grade(ctx, task, dir)
		if err != nil {
			return run.Result{}, err
		}
		if !v.Void {
			result.Reward = &v.Reward
		}
		d.grade(v)
		result.Times.Reward = v.Seconds
	}
	result.Detail, err = json.Marshal(d)
	return result, err
}

// play lets the agent work, unless its attempt has already ended, and returns the report on it.
func (r *Runner) play(ctx context.Context, j run.Job, task env.Task, dir string) (attempt.Summary, error) {
	report, err := attempt.ReadSummary(dir)
	if err == nil && ended(report) {
		return report, nil
	}
	leave, err := r.Gates.Sandbox.Enter(ctx)
	if err != nil {
		return report, err
	}
	a := r.attempt(j)
	made, err := a.Make(ctx, task, nil, dir)
	leave()
	switch {
	case err != nil:
		return report, run.Abort(err) // the disk failed, not the rollout
	case errors.Is(context.Cause(ctx), run.ErrDeadline):
		return report, context.Cause(ctx) // the rollout hangs in spite of its own limits
	case made.Outcome.StopReason == agent.Interrupted:
		return attempt.Summary{StopReason: agent.Interrupted}, nil
	case made.Err != nil:
		return report, made.Err
	case permanent(made.Outcome.Err):
		return report, run.Abort(made.Outcome.Err)
	case made.Outcome.Err != nil:
		return report, made.Outcome.Err
	case made.PatchErr != nil:
		return report, fmt.Errorf("compute the patch: %w", made.PatchErr)
	}
	return attempt.ReadSummary(dir)
}

func (r *Runner) attempt(j run.Job) attempt.Attempt {
	a := r.Attempt
	if r.Seed != nil {
		seed := j.Seed(*r.Seed, 0)
		a.Sampling.Seed = &seed
	}
	if r.OnEvent != nil {
		a.OnEvent = func(e agent.Event) { r.OnEvent(j, e) }
	}
	if context := ContextOf(j); context > 0 {
		a.Limits.Context = context
	}
	a.Model = r.Gates.Model.Guard(a.Model)
	return a
}

// ended reports whether an attempt has ended with a result that says something about the model.
func ended(r attempt.Summary) bool {
	switch r.StopReason {
	case "", agent.Interrupted, agent.ModelError, agent.SandboxError:
		return false
	}
	return r.Error == "" && r.PatchError == ""
}

// permanent reports whether every other request would meet the same failure of the endpoint.
func permanent(err error) bool {
	if errors.Is(err, agent.ErrModelChanged) {
		return true
	}
	failure, ok := errors.AsType[*llm.Error](err)
	return ok && (failure.Status == 401 || failure.Status == 403 || failure.Status == 404)
}

// grade grades the attempt's patch, unless it is already graded.
func (r *Runner) grade(ctx context.Context, task env.Task, dir string) (verify.Evaluation, error) {
	patch, err := readPatch(dir)
	if err != nil {
		return verify.Evaluation{}, err
	}
	to := filepath.Join(dir, gradeDir)
	key := r.Evaluator.Key(task, patch)
	if v, err := verify.Load(to, task); err == nil && v.Key == key {
		return v, nil
	}
	if r.Gates.Grading != nil {
		run.Release(ctx)
	}
	leave, err := r.Gates.Grading.Enter(ctx)
	if err != nil {
		return verify.Evaluation{}, err
	}
	defer leave()
	v, err := r.Evaluator.Evaluate(ctx, task, patch)
	if err != nil {
		return verify.Evaluation{}, err
	}
	if err := v.Save(to, task, patch); err != nil {
		return verify.Evaluation{}, run.Abort(err)
	}
	return v, nil
}

// readPatch reads the patch from an attempt's directory; nil if nothing was changed.
func readPatch(dir string) ([]byte, error) {
	patch, err := os.ReadFile(filepath.Join(dir, attempt.PatchFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return patch, nil
}
