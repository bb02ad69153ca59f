package attempt

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"deepswe/agent"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/repo"
	"deepswe/tools"
)

// Attempt says how tasks are attempted: the agent's settings, and the sandbox around it. Provider, Model and Prompt are
// required.
type Attempt struct {
	agent.Settings
	Provider env.Provider
	// Tools are the options of the reference's tools. The tools for native calls are derived from them.
	Tools tools.Options
	// Network allows the sandbox network access.
	Network bool
	// Version is deepswe's own, Run the name of the run.
	Version string
	Run     string
	// Closing Abandon ends the computation of the patch, which otherwise has a minute left after an interrupt.
	Abandon <-chan struct{}
	// LogOnly keeps only the event log, without the ATIF document. The document holds the same, but repeats the whole
	// prompt for every turn, so that it is many times as large.
	LogOnly bool
	// Player, if not nil, plays in place of deepswe's own agent.
	Player Player
	// Folder and Rules become those of the [agent.Issue]. If the sandbox does not have the folder, the root is used.
	Folder string
	Rules  string
	// Reopen and Further are those of [agent.Agent]: they continue an attempt that has ended.
	Reopen  bool
	Further string
	// Notes are about the sandbox, and added to the opening of the conversation. Examine, when not nil, returns further
	// ones once the sandbox has started.
	Notes   []string
	Examine func(ctx context.Context, sb env.Sandbox) ([]string, error)
	// OnPhase, when not nil, is called on the goroutine of Make as each phase begins, OnReady with the repository's
	// directory once the sandbox has started.
	OnPhase func(Phase)
	OnReady func(dir string)
}

// Player is an agent that is not ours.
type Player interface {
	// Play does what [agent.Agent.Run] does.
	Play(ctx context.Context, a *agent.Agent, sb env.Sandbox, issue agent.Issue) (agent.Outcome, error)
	// Shown returns what its sandboxes show of this machine.
	Shown() []env.Shown
}

// Phase is a part of an attempt.
type Phase string

// The phases, in order.
const (
	PhaseSandbox Phase = "sandbox"
	PhaseAgent   Phase = "agent"
	PhasePatch   Phase = "patch"
)

// Result is how an attempt ended.
type Result struct {
	Outcome agent.Outcome
	Patch   repo.Patch
	// Err is the infrastructure failure that ended it, nil otherwise. Such a rollout says nothing about the model.
	Err error
	// PatchErr is the reason why the patch could not be computed. Outcome is not affected by it.
	PatchErr error
	// StartTime is how long the sandbox took to start, PatchTime how long the patch took.
	StartTime time.Duration
	PatchTime time.Duration
}

// Make attempts the task once and writes its files to the directory, which it creates. The repository is the snapshot's
// or, if that is nil, the one in the task's image. The Result is always complete; the error is about writing the files.
func (a *Attempt) Make(ctx context.Context, task env.Task, snapshot *repo.Snapshot, dir string) (Result, error) {
	log, past, err := openLog(dir, a.Player != nil)
	if err != nil {
		return Result{}, fmt.Errorf("attempt %s: %w", task.ID, err)
	}
	result := a.work(ctx, task, snapshot, log, past)
	if err := errors.Join(a.write(dir, task, &result), log.Close()); err != nil {
		return result, fmt.Errorf("attempt %s: %w", task.ID, err)
	}
	return result, nil
}

func (a *Attempt) work(
	ctx context.Context, task env.Task, snapshot *repo.Snapshot, log *trajectory.Writer, past []trajectory.Event,
) (result Result) {
	a.enter(PhaseSandbox)
	began := time.Now()
	sb, err := a.Provider.Start(ctx, a.Spec(task, snapshot))
	result.StartTime = time.Since(began)
	if err != nil {
		result.fail(ctx, fmt.Errorf("start sandbox: %w", err))
		return result
	}
	defer func() {
		// Close has its own deadline, and must be tried even after an interrupt.
		if err := sb.Close(context.WithoutCancel(ctx)); err != nil {
			a.warn("the sandbox could not be removed; deepswe clean removes it later", "error", err)
		}
	}()
	if a.OnReady != nil {
		a.OnReady(sb.Dir())
	}
	origin, release := a.origin(ctx, task, snapshot, sb)
	defer func() {
		if err := release(); err != nil {
			result.Err = errors.Join(result.Err, err)
		}
	}()
	var aside []string
	if snapshot != nil {
		aside = snapshot.Aside
	}
	base, err := repo.Record(ctx, sb, origin, aside)
	if err != nil {
		result.fail(ctx, err)
		return result
	}

	notes, err := a.notes(ctx, sb)
	if err != nil {
		result.fail(ctx, fmt.Errorf("examine sandbox: %w", err))
		return result
	}

	a.enter(PhaseAgent)
	runner := a.agent(task, log, past)
	annotate(&runner.Settings, notes)
	digest := base.Digest()
	runner.Header.Extra[extraBase] = digest
	if was := recordedBase(past); was != "" && was != digest {
		a.warn("the repository is not as it was when this work began: the recorded commands run on what is there now")
	}
	if issue := a.issue(ctx, task, sb); a.Player != nil {
		result.Outcome, result.Err = a.Player.Play(ctx, runner, sb, issue)
	} else {
		result.Outcome, result.Err = runner.Run(ctx, repo.Quiet(sb, aside), issue)
	}
	if result.Outcome.StopReason != agent.Exhausted { // its changes are lost with the sandbox
		a.takePatch(ctx, base, sb, &result)
	}
	return result
}

// takePatch reads what the work has changed.
func (a *Attempt) takePatch(ctx context.Context, base *repo.Base, sb env.Sandbox, result *Result) {
	a.enter(PhasePatch)
	began := time.Now()
	result.Patch, result.PatchErr = a.patch(ctx, base, sb)
	result.PatchTime = time.Since(began)
	if errors.Is(result.PatchErr, env.ErrExhausted) {
		result.Outcome.StopReason, result.PatchErr = agent.Exhausted, nil
	}
}

// origin returns the origin of the files that the agent works on, and a function that releases it.
func (a *Attempt) origin(
	ctx context.Context, task env.Task, snapshot *repo.Snapshot, sb env.Sandbox,
) (origin env.Origin, release func() error) {
	switch {
	case snapshot != nil:
		return snapshot, func() error { return nil }
	case task.Repository == "" && (task.Image != "" || task.Dockerfile != ""):
		return sb, func() error { return nil }
	}
	p := &prepared{provider: a.Provider, spec: a.Spec(task, nil)}
	return p, func() error {
		if err := p.close(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("remove sandbox: %w", err)
		}
		return nil
	}
}

// issue returns what the agent is asked. The folder to work in counts only if the sandbox has it.
func (a *Attempt) issue(ctx context.Context, task env.Task, sb env.Sandbox) agent.Issue {
	issue := agent.Issue{ID: task.ID, Statement: task.Statement, Folder: a.Folder, Rules: a.Rules}
	if issue.Folder != "" {
		if _, err := sb.List(ctx, path.Join(sb.Dir(), issue.Folder), env.ListOptions{Limit: 1}); err != nil {
			issue.Folder = ""
		}
	}
	return issue
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

// Spec describes the sandbox of an attempt at the task. A sandbox that was prepared ahead of time is used only where
// its spec is identical.
func (a *Attempt) Spec(task env.Task, snapshot *repo.Snapshot) env.Spec {
	s := task.Spec()
	s.Prepare, s.Network, s.Run = task.Prepare, a.Network, a.Run
	if a.Player != nil {
		s.Shown = append(s.Shown, a.Player.Shown()...)
	}
	if snapshot != nil {
		snapshot.Place(&s)
		return s
	}
	// The image was built after the fix and may contain it, so later history is removed. The agent starts from what is
	// checked out after the task's own preparation: the record's base commit may predate what that preparation hides.
	s.Prepare = append(slices.Clip(s.Prepare), repo.Hygiene(""))
	return s
}

func (a *Attempt) agent(task env.Task, log *trajectory.Writer, past []trajectory.Event) *agent.Agent {
	native := a.Tools
	native.Native = true
	return &agent.Agent{
		Settings: a.Settings,
		Tools:    tools.New(a.Tools),
		Native:   tools.New(native),
		Header: trajectory.Header{
			Session: a.Run, Trajectory: task.ID, Agent: "deepswe", AgentVersion: a.Version,
			Extra: map[string]any{"sandbox": a.Provider.Name()},
		},
		Record: log, Past: past, Reopen: a.Reopen, Further: a.Further,
	}
}

// extraBase is the key of a trajectory's extra object that holds the digest of the repository at the start.
const extraBase = "base"

// recordedBase returns the digest of the repository at the beginning of a log; empty if it is not known.
func recordedBase(past []trajectory.Event) string {
	if len(past) == 0 || past[0].Header == nil {
		return ""
	}
	digest, _ := past[0].Header.Extra[extraBase].(string)
	return digest
}

// warn tells the user of something that does not change the result.
func (a *Attempt) warn(text string, args ...any) {
	if a.Log != nil {
		a.Log.Warn(text, args...)
	}
}

// longestPatch is how long computing the patch may take without an interrupt.
const longestPatch = 10 * time.Minute

// salvage is how long it may take after an interrupt.
const salvage = time.Minute

// patch computes the patch even if ctx has ended, because the agent's work must not be lost.
func (a *Attempt) patch(ctx context.Context, base *repo.Base, sb env.Sandbox) (repo.Patch, error) {
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { cancel(a.patience(ctx, done)) })
	defer watch.Wait()
	defer close(done)
	return base.Patch(working, sb)
}

// patience returns the reason to give up on the patch, or nil when it is done.
func (a *Attempt) patience(ctx context.Context, done <-chan struct{}) error {
	timer := time.NewTimer(longestPatch)
	defer timer.Stop()
	interrupt, reason := ctx.Done(), fmt.Errorf("not finished within %s", longestPatch)
	for {
		select {
		case <-done:
			return nil
		case <-a.Abandon:
			return context.Canceled
		case <-timer.C:
			return reason
		case <-interrupt:
			timer.Reset(salvage)
			interrupt, reason = nil, fmt.Errorf("not finished within %s of the interrupt", salvage)
		}
	}
}

// notes returns what the model is told about the sandbox.
func (a *Attempt) notes(ctx context.Context, sb env.Sandbox) ([]string, error) {
	if a.Examine == nil {
		return a.Notes, nil
	}
	found, err := a.Examine(ctx, sb)
	return slices.Concat(a.Notes, found), err
}

// annotate adds notes about the sandbox to the opening of a conversation.
func annotate(a *agent.Settings, notes []string) {
	if len(notes) == 0 {
		return
	}
	opening := a.Prompt
	a.Prompt = func(o agent.Opening) ([]agent.Message, error) {
		messages, err := opening(o)
		if n := len(messages); err == nil && n > 0 {
			messages[n-1].Content += "\n\nAbout this copy of the repository:\n- " + strings.Join(notes, "\n- ")
		}
		return messages, err
	}
}

// prepared is the origin of a repository that the task's own preparation creates, so that neither an image nor the
// host has it: a second sandbox, prepared in the same way, which the agent never sees. It is started when the first
// file is requested, because not every attempt changes a file, and providers of such sandboxes have room for any
// number.
type prepared struct {
	provider env.Provider
	spec     env.Spec

	mu sync.Mutex // files are read concurrently
	sb env.Sandbox
}

// Original implements env.Origin.
func (p *prepared) Original(ctx context.Context, name string) ([]byte, error) {
	sb, err := p.start(ctx)
	if err != nil {
		return nil, err
	}
	data, _, err := sb.Read(ctx, path.Join(sb.Dir(), name), env.ReadOptions{NoFollow: true})
	return data, err
}

func (p *prepared) start(ctx context.Context) (env.Sandbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sb != nil {
		return p.sb, nil
	}
	sb, err := p.provider.Start(ctx, p.spec)
	if err == nil {
		p.sb = sb
	}
	return sb, err
}

func (p *prepared) close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sb == nil {
		return nil
	}
	return p.sb.Close(ctx)
}
