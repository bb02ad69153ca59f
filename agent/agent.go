package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/tools"
)

// Tools are what the model works with: a tools.Set, made for this rollout alone.
type Tools interface {
	Specs() []tools.Spec
	// Run runs one call. An error means that the sandbox failed.
	Run(ctx context.Context, sb tools.Sandbox, c tools.Call) (tools.Result, error)
}

// Recorder takes the events of a trajectory as they come: a trajectory.Writer.
type Recorder interface {
	Append(e trajectory.Event) error
}

// Agent is one rollout, ready to run. Model, Tools and Prompt are required.
type Agent struct {
	Model Model
	Tools Tools
	// Prompt returns the messages that the conversation begins with, in the words that fit the format. The repository
	// stands at dir in the sandbox.
	Prompt func(f Format, t env.Task, dir string) ([]Message, error)
	// Format is how the model writes its calls. When it is nil, Header.Model's name decides, and a server that takes no
	// native calls turns the rollout to XML before its first step.
	Format   Format
	Limits   Limits
	Sampling Sampling
	// Tokens asks for the token ids and logprobs of every reply.
	Tokens bool
	// Extra is merged into every request, see [Request].
	Extra map[string]json.RawMessage
	// Header begins the trajectory. Run adds the format, the tools, the task's id, and to Extra what the rollout ran with.
	Header trajectory.Header
	// Record, when not nil, gets every event before it is acted upon. A failure to record ends the rollout.
	Record Recorder
	// Past are the events of a killed rollout that this one goes on from, with its sandbox started afresh: the recorded
	// calls run again, the recorded conversation stays. Record, when set, already holds them.
	Past []trajectory.Event
	// OnEvent, when not nil, is told what happens, on Run's goroutine. Stream asks the model for its text as it arrives.
	OnEvent func(Event)
	Stream  bool
	// Clock is time.Now when nil; Log gets warnings, and nothing when nil.
	Clock func() time.Time
	Log   *slog.Logger
}

// errWall is the cause of a context that Limits.Wall ended.
var errWall = errors.New("the rollout's time is up")

// Run runs the rollout until the model submits or a limit is reached. It always returns an Outcome with a stop reason,
// and with the trajectory up to there, which is empty where not even the prompt could be written. The error is not nil only where our own machinery failed (SandboxError): such a
// rollout says nothing about the model, and must be repeated. A failing model, a full context, a cancelled ctx are
// outcomes.
func (a *Agent) Run(ctx context.Context, sb tools.Sandbox, task env.Task) (Outcome, error) {
	r := newRollout(a, sb, task)
	if a.Limits.Wall > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, a.Limits.Wall, errWall)
		defer cancel()
	}
	stop, err := r.guarded(ctx)
	return r.finish(stop, err)
}

// guarded turns a panic of ours into an error: a rollout must not take its neighbours along.
func (r *rollout) guarded(ctx context.Context) (stop StopReason, err error) {
	defer func() {
		if p := recover(); p != nil {
			stop, err = SandboxError, fmt.Errorf("internal error in step %d: %v\n%s", r.out.Steps, p, debug.Stack())
		}
	}()
	return r.run(ctx)
}

// finish records the end and completes the outcome.
func (r *rollout) finish(stop StopReason, err error) (Outcome, error) {
	r.out.StopReason, r.out.Err = stop, err
	r.out.Elapsed = r.now().Sub(r.started)
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	if r.format != nil { // else not even the first message was written, and there is nothing to record
		r.out.Format = r.format.Name()
		recordErr := r.record(trajectory.StopEvent(trajectory.Stop{
			Reason: stop, Answer: r.out.Answer, Error: failure, Elapsed: r.out.Elapsed,
		}))
		if recordErr != nil && stop != SandboxError {
			r.out.StopReason, r.out.Err = SandboxError, recordErr
		}
	}
	r.tell(Event{Kind: EventStop, StopReason: r.out.StopReason, Text: failure})
	if r.out.StopReason == SandboxError {
		return r.out, r.out.Err
	}
	return r.out, nil
}
