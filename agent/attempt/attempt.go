// Package attempt makes one attempt at a task, from a sandbox that is started to a patch on disk: solve makes one of
// them, an evaluation many.
//
// The order never changes: start the sandbox, describe the repository, let the agent work, compute the patch on every
// way out, write what there is, remove the sandbox. The package imports agent, tools and env; it knows neither a
// provider nor an endpoint by name. An [Attempt] is a description and may be run many times, also at once.
package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"deepswe/agent"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/repo"
	"deepswe/tools"
)

// Attempt says how tasks are attempted. Provider, Model and Prompt are required.
type Attempt struct {
	Provider env.Provider
	Model    agent.Model
	// ModelName goes into the record, and decides on the format where Format is nil.
	ModelName string
	Prompt    func(f agent.Format, t env.Task, dir string) ([]agent.Message, error)
	Format    agent.Format
	Limits    agent.Limits
	Sampling  agent.Sampling
	Tools     tools.Options
	// Tokens asks for token ids and logprobs, Stream for text as it arrives.
	Tokens bool
	Stream bool
	Extra  map[string]json.RawMessage
	// Sandbox bounds the sandbox where the task does not; Network opens its network.
	Sandbox env.Limits
	Network bool
	// Version is deepswe's own, Run the name of the run.
	Version string
	Run     string
	// Salvage is how long computing the patch may take once the attempt was interrupted: one minute when 0.
	// Abandon, when it is closed, ends that too.
	Salvage time.Duration
	Abandon <-chan struct{}
	// OnEvent and OnPhase, when not nil, are told what happens, on the goroutine of Make. OnReady is told where the
	// repository stands in the sandbox.
	OnEvent func(agent.Event)
	OnPhase func(Phase)
	OnReady func(dir string)
	Log     *slog.Logger
}

// Phase is a part of an attempt.
type Phase string

// The phases, in their order.
const (
	PhaseSandbox Phase = "sandbox"
	PhaseAgent   Phase = "agent"
	PhasePatch   Phase = "patch"
)

// Relocatable is a model whose words depend on where the repository stands in the sandbox: a recording.
type Relocatable interface {
	In(dir string) agent.Model
}

// Source is where the repository comes from, when it is not in the task's image: a snapshot that is copied in.
type Source struct {
	Snapshot *repo.Snapshot
}

// Result is what an attempt came to.
type Result struct {
	Outcome agent.Outcome
	Patch   repo.Patch
	// Err is the failure of machinery that ended it, nil otherwise. Its rollout says nothing about the model.
	Err error
	// PatchErr is why there is no patch although the agent worked; the rollout's own end stands beside it.
	PatchErr error
	// StartTime is how long it took until the sandbox was ready, PatchTime how long the patch took.
	StartTime time.Duration
	PatchTime time.Duration
}

// Make attempts the task once and leaves its files in the directory, which it creates. The Result is complete whatever
// happened; the error is that of writing the files.
func (a *Attempt) Make(ctx context.Context, task env.Task, src Source, dir string) (Result, error) {
	files, past, err := open(dir)
	if err != nil {
		return Result{}, fmt.Errorf("attempt %s: %w", task.ID, err)
	}
	result := a.work(ctx, task, src, files.log, past)
	if err := errors.Join(files.write(task, a, &result), files.close()); err != nil {
		return result, fmt.Errorf("attempt %s: %w", task.ID, err)
	}
	return result, nil
}

func (a *Attempt) work(ctx context.Context, task env.Task, src Source, log *trajectory.Writer, past []trajectory.Event) (result Result) {
	a.enter(PhaseSandbox)
	began := time.Now()
	sb, err := a.Provider.Start(ctx, a.Spec(task, src))
	result.StartTime = time.Since(began)
	if err != nil {
		result.fail(ctx, fmt.Errorf("start sandbox: %w", err))
		return result
	}
	defer func() {
		// Close has a deadline of its own, and must be tried even when nobody waits any more.
		if err := sb.Close(context.WithoutCancel(ctx)); err != nil {
			result.Err = errors.Join(result.Err, fmt.Errorf("remove sandbox: %w", err))
		}
	}()
	if a.OnReady != nil {
		a.OnReady(sb.Dir())
	}
	var origin env.Origin = sb
	if src.Snapshot != nil {
		origin = src.Snapshot
	}
	base, err := repo.Record(ctx, sb, origin)
	if err != nil {
		result.fail(ctx, err)
		return result
	}

	a.enter(PhaseAgent)
	runner := a.agent(task, log, past)
	if m, ok := a.Model.(Relocatable); ok {
		runner.Model = m.In(sb.Dir())
	}
	result.Outcome, result.Err = runner.Run(ctx, sb, task)

	a.enter(PhasePatch)
	began = time.Now()
	result.Patch, result.PatchErr = a.patch(ctx, base, sb)
	result.PatchTime = time.Since(began)
	return result
}

// fail records a failure before the agent's first step.
func (r *Result) fail(ctx context.Context, err error) {
	r.Outcome.StopReason = agent.SandboxError
	if ctx.Err() != nil {
		r.Outcome.StopReason = agent.Interrupted
		return
	}
	r.Outcome.Err, r.Err = err, err
}

func (a *Attempt) enter(p Phase) {
	if a.OnPhase != nil {
		a.OnPhase(p)
	}
}

// Spec is the sandbox that an attempt at the task starts. One that was made ready ahead of time is only used where its spec
// is the same in every word.
func (a *Attempt) Spec(task env.Task, src Source) env.Spec {
	s := env.Spec{
		Image: task.Image, Dockerfile: task.Dockerfile, Dir: task.Dir, Prepare: task.Prepare, Env: task.Env,
		Limits: task.Limits, Network: a.Network, Run: a.Run, Rollout: task.ID,
	}
	if s.Limits == (env.Limits{}) {
		s.Limits = a.Sandbox
	}
	if src.Snapshot != nil {
		s.CopyIn = src.Snapshot.Dir
		return s
	}
	// The image was built when the fix was known, and may well hold it. What is checked out after the task's own
	// preparation is where the agent starts; the record's base commit may lie before what that preparation hides.
	s.Prepare = append(slices.Clip(s.Prepare), repo.Hygiene(""))
	return s
}

func (a *Attempt) agent(task env.Task, log *trajectory.Writer, past []trajectory.Event) *agent.Agent {
	return &agent.Agent{
		Model: a.Model, Tools: tools.New(a.Tools), Prompt: a.Prompt, Format: a.Format, Limits: a.Limits,
		Sampling: a.Sampling, Tokens: a.Tokens, Extra: a.Extra, Stream: a.Stream, OnEvent: a.OnEvent, Log: a.Log,
		Header: trajectory.Header{
			Session: a.Run, Trajectory: task.ID, Agent: "deepswe", AgentVersion: a.Version, Model: a.ModelName, Task: task.ID,
			Extra: map[string]any{"sandbox": a.Provider.Name()},
		},
		Record: log, Past: past,
	}
}

// longestPatch is how long computing the patch may take while nobody waits for an end.
const longestPatch = 10 * time.Minute

// patch computes the patch, also when ctx is done: what the agent did must not be lost.
func (a *Attempt) patch(ctx context.Context, base *repo.Base, sb env.Sandbox) (repo.Patch, error) {
	limit := a.Salvage
	if limit == 0 {
		limit = time.Minute
	}
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { cancel(a.patience(ctx, limit, done)) })
	defer watch.Wait()
	defer close(done)
	return base.Patch(working, sb, repo.PatchOptions{})
}

// patience returns the reason to give up the patch, or nil when it is done.
func (a *Attempt) patience(ctx context.Context, limit time.Duration, done <-chan struct{}) error {
	calm := time.NewTimer(longestPatch)
	defer calm.Stop()
	select {
	case <-done:
		return nil
	case <-a.Abandon:
		return context.Canceled
	case <-calm.C:
		return fmt.Errorf("it takes longer than %s", longestPatch)
	case <-ctx.Done():
	}
	hurry := time.NewTimer(limit)
	defer hurry.Stop()
	select {
	case <-done:
		return nil
	case <-a.Abandon:
		return context.Canceled
	case <-hurry.C:
		return fmt.Errorf("it takes longer than %s, which is all that an interrupt leaves", limit)
	}
}
