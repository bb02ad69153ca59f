package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// Issue is all that the agent knows of a task.
type Issue struct {
	ID        string
	Statement string
	// Folder is the agent's working directory, relative to the repository's root; empty for the root itself.
	Folder string
	// Rules are the project's own words about how to work on it; empty where there are none.
	Rules string
}

// Tools are what the model works with: a tools.Set, made for this rollout alone.
type Tools interface {
	Specs() []tools.Spec
	// Run runs one call. An error means that the sandbox failed.
	Run(ctx context.Context, sb tools.Sandbox, c tools.Call) (tools.Result, error)
}

// Recorder receives the events of a trajectory as they happen: a trajectory.Writer.
type Recorder interface {
	Append(e trajectory.Event) error
}

// Settings are what the rollouts of a run have in common. Model and Prompt are required.
type Settings struct {
	Model Model
	// ModelName is recorded, and chooses the format where Format is nil.
	ModelName string
	// Prompt returns the messages that open the conversation about an issue, worded for the format. The repository is at
	// dir in the sandbox.
	Prompt func(f Format, issue Issue, dir string) ([]Message, error)
	// Wrap, when not empty, is a tag around every observation that is sent as a user's message: "tool_response" keeps a
	// Qwen3 template from taking it for a new question, and earlier thoughts out of the prompt.
	Wrap string
	// Format is how the model writes its calls. When it is nil, ModelName decides, and a server that accepts no native
	// calls switches the rollout to XML before its first step.
	Format   Format
	Limits   Limits
	Sampling Sampling
	// Cost returns what usage costs; nil where that is not known.
	Cost func(Usage) float64
	// Review, when not nil, is asked before a call runs, except for those that a resumed rollout runs again. Where it
	// returns a text, the call is not run, and the model is told the text in its place.
	Review func(ctx context.Context, c tools.Call) (instead string, err error)
	// Compact chooses by the format what happens when the context is nearly full; nothing does where it is nil.
	Compact func(f Format) Compaction
	// Tokens requests the token ids and logprobs of every reply.
	Tokens bool
	// OnEvent, when not nil, is called with what happens, on Run's goroutine; with Stream also with the model's text as it
	// arrives.
	OnEvent func(Event)
	Stream  bool
	// Log gets warnings; nil discards them.
	Log *slog.Logger
}

// Agent is one rollout, ready to run. Tools are required.
type Agent struct {
	Settings
	Tools Tools
	// Native, when not nil, are used in place of Tools in the format of native calls.
	Native Tools
	// Header begins the trajectory. Run adds the model, the format, the tools, the issue's id, and to Extra the settings
	// of the rollout.
	Header trajectory.Header
	// Record, when not nil, gets every event before it is acted upon. A failure to record ends the rollout.
	Record Recorder
	// Past holds the events of a killed rollout that this one resumes in a fresh sandbox: the recorded calls run again,
	// the recorded conversation stays. Record, when set, already holds them.
	Past []trajectory.Event
	// Reopen takes back the end of a Past that has one, unless that was a submission: the limits begin anew after it.
	// Further, when not empty, is a user's instruction that follows Past, a submission included.
	Reopen  bool
	Further string
	// Clock is time.Now when nil.
	Clock func() time.Time
}

// Limits bound a rollout. A zero field takes its default; a negative one lifts the limit where that makes sense.
type Limits struct {
	// Steps is the maximum number of replies: 100 by default.
	Steps int
	// Wall is the maximum duration; unlimited by default. A resumed rollout gets all of it again.
	Wall time.Duration
	// Context is how many tokens prompt and reply may take together; 0 is unknown: the server reports when it is full.
	Context int
	// ReplyTokens is the maximum number of tokens of one reply; 0 leaves it to the server, within the context.
	ReplyTokens int
	// Cost is how much the replies may cost together, as [Settings.Cost] counts it; unlimited by default. The reply that
	// exceeds it is the last one. It counts everything, also what came before a rollout was reopened.
	Cost float64
	// FormatErrors is how many consecutive replies may hold no well-formed call: 5 by default.
	FormatErrors int
	// Repeats is how often the same calls with the same results may follow each other: 5 by default. The model is warned
	// two rounds before.
	Repeats int
}

func (l Limits) withDefaults() Limits {
	l.Steps, l.FormatErrors, l.Repeats = cmp.Or(l.Steps, 100), cmp.Or(l.FormatErrors, 5), cmp.Or(l.Repeats, 5)
	return l
}

// reached reports whether n has reached the limit; a limit of 0 is none.
func reached(n, limit int) bool { return limit > 0 && n >= limit }

// Outcome is how a rollout ended. It holds no patch: the caller computes the patch from the sandbox, however the
// rollout ended, and never takes it from what the model wrote.
type Outcome struct {
	StopReason StopReason
	// Err is the failure behind ModelError and SandboxError, and nil for every other reason.
	Err error
	// Answer is what the model said about its work when it submitted.
	Answer string
	// Format is the action format that was used in the end.
	Format string
	// Steps counts the model's replies. FormatErrors counts those among them from which nothing could be run.
	Steps        int
	FormatErrors int
	// Usage sums the usage of all replies: Prompt counts a token once for each reply that read it.
	Usage Usage
	// Events is the trajectory: trajectory.Record restores the conversation, trajectory.NewDocument makes the ATIF
	// document.
	Events []trajectory.Event
	// ModelTime and ToolTime are how long the model and the tools took; Elapsed is the whole duration. In a resumed
	// rollout ModelTime includes the recorded replies.
	ModelTime time.Duration
	ToolTime  time.Duration
	Elapsed   time.Duration
}

// errWall is the cause of a context that Limits.Wall ended.
var errWall = errors.New("the rollout's time is up")

// Run runs the rollout until the model submits or a limit is reached. It always returns an Outcome with a stop reason
// and the trajectory up to there, which is empty where not even the prompt could be written. A failing model, a full
// context and a cancelled ctx are outcomes. The error is non-nil only for infrastructure failures (SandboxError): such
// a rollout says nothing about the model and must be repeated.
func (a *Agent) Run(ctx context.Context, sb tools.Sandbox, issue Issue) (Outcome, error) {
	r := newRollout(a, sb, issue)
	if a.Limits.Wall > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, a.Limits.Wall, errWall)
		defer cancel()
	}
	stop, err := r.run(ctx)
	return r.finish(stop, err)
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
	r.emit(Event{Kind: EventStop, StopReason: r.out.StopReason, Text: failure})
	if r.out.StopReason == SandboxError {
		return r.out, r.out.Err
	}
	return r.out, nil
}

// EventKind says what happened in an [Event].
type EventKind string

// The kinds of events, in the order of a step.
const (
	// EventStart: the rollout begins; Text is the action format.
	EventStart EventKind = "start"
	// EventStep: the model is asked.
	EventStep EventKind = "step"
	// EventText: a piece of the reply arrived in Text. Only with [Settings.Stream].
	EventText EventKind = "text"
	// EventReply: the whole reply is there, in Text; Usage and Elapsed are its own.
	EventReply EventKind = "reply"
	// EventProblem: nothing can be run from the reply, or not this call of it; Text is the message to the model.
	EventProblem EventKind = "problem"
	// EventCall: Call is about to run.
	EventCall EventKind = "call"
	// EventResult: Call has run, with Result.
	EventResult EventKind = "result"
	// EventResumed: what Past holds has been gone through again, and the rollout goes on.
	EventResumed EventKind = "resumed"
	// EventDifference: while resuming, Result of Call differs from the recorded output in Text.
	EventDifference EventKind = "difference"
	// EventNotice: the model is warned that it repeats itself or runs out of context; Text is the warning.
	EventNotice EventKind = "notice"
	// EventCompaction: the conversation was made shorter, as Text says.
	EventCompaction EventKind = "compaction"
	// EventFallback: the server accepts no tool calls, and the rollout continues in the format Text.
	EventFallback EventKind = "fallback"
	// EventStop: the rollout ended for the reason StopReason; Text is the error behind it, if any.
	EventStop EventKind = "stop"
)

// Event reports the progress of a rollout. Besides Kind, Time and Step only the fields that the kind names are set.
type Event struct {
	Kind EventKind
	Time time.Time
	// Step counts replies from 1; 0 before the first.
	Step       int
	Text       string
	Call       *tools.Call
	Result     *tools.Result
	Usage      *Usage
	Elapsed    time.Duration
	StopReason StopReason
	// Replayed is set on events of recorded turns that are gone through again.
	Replayed bool
}
