package agent

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// Issue is everything that the agent may know about a task.
type Issue struct {
	ID        string
	Statement string
	// Folder is the agent's working directory, relative to the repository's root; empty for the root itself.
	Folder string
	// Rules are the project's own instructions for agents; empty if there are none.
	Rules string
}

// Opening is what a conversation begins with.
type Opening struct {
	// Format is how the model will write calls.
	Format Format
	Issue  Issue
	// Dir is the repository's path in the sandbox.
	Dir string
	// Tools describe the tools that the rollout runs, with the limits in force. A format that offers tools natively
	// sends them beside the conversation, too.
	Tools []tools.Spec
}

// Tools are the tools that the model uses: a tools.Set made for this rollout.
type Tools interface {
	Specs() []tools.Spec
	// Run runs one call. An error means that the sandbox failed or ctx ended; a call that fails is a Result.
	Run(ctx context.Context, sb tools.Sandbox, c tools.Call) (tools.Result, error)
}

// Recorder stores the events of a trajectory as they happen; trajectory.Writer implements it.
type Recorder interface {
	Append(e trajectory.Event) error
}

// Settings are shared by the rollouts of a run. Model and Prompt are required.
type Settings struct {
	Model Model
	// ModelName is recorded, and selects the format if Format is nil.
	ModelName string
	// Prompt returns the first messages of the conversation. The steps that remain are added to the last one.
	Prompt func(Opening) ([]Message, error)
	// Wrap, if not empty, is a tag around each observation that is sent as a user message. With "tool_response", a
	// Qwen3 template does not mistake observations for new questions, which would remove earlier thoughts from the
	// prompt.
	Wrap string
	// Format is how the model writes calls. If it is nil, ModelName selects it, and if the server does not support
	// native calls, the rollout switches to XML before its first step.
	Format   Format
	Limits   Limits
	Sampling Sampling
	// Cost returns the cost of a usage; nil if it is unknown.
	Cost func(Usage) float64
	// Review, if not nil, is asked before each call runs, except for calls that a resumed rollout repeats. If it
	// returns a text, the call is not run, and the model gets the text instead of a result.
	Review func(ctx context.Context, c tools.Call) (instead string, err error)
	// Compact selects by format what happens when the context is nearly full; nil means nothing.
	Compact func(f Format) Compaction
	// Tokens requests token IDs and logprobs with every reply.
	Tokens bool
	// OnEvent, if not nil, is called on Run's goroutine with every event. With Stream, that includes the model's
	// text as it arrives.
	OnEvent func(Event)
	Stream  bool
	// Log receives warnings; nil discards them.
	Log *slog.Logger
}

// Agent is one rollout, ready to run. Tools is required.
type Agent struct {
	Settings
	Tools Tools
	// Native, if not nil, replaces Tools if the format is that of native calls.
	Native Tools
	// Header is the start of the trajectory's header. Run adds the model, the format, the tools and the issue's ID
	// and, to Extra, the settings of the rollout.
	Header trajectory.Header
	// Record, if not nil, stores every event before the rollout acts on it. A failure to record ends the rollout.
	Record Recorder
	// Past contains the events of a killed rollout, which this one resumes in a fresh sandbox: it runs the recorded
	// calls again and keeps the recorded conversation. Record, if not nil, already contains them.
	Past []trajectory.Event
	// Reopen continues a Past that has ended, unless it ended with a submission; the limits start again from there.
	// Further, if not empty, is a user's instruction that follows Past, even after a submission.
	Reopen  bool
	Further string
	// Clock is time.Now if nil.
	Clock func() time.Time
}

// Limits bound a rollout. A zero field means its default; a negative one disables the limit where that is possible.
type Limits struct {
	// Steps is the maximum number of replies; 100 by default.
	Steps int
	// Wall is the maximum duration; unlimited by default. A resumed rollout may take all of it again. The time in
	// which the model's endpoint is gone does not count.
	Wall time.Duration
	// Context is the maximum number of tokens of prompt and reply together. 0 means unknown: the server reports
	// when it is full.
	Context int
	// ReplyTokens is the maximum number of tokens of one reply; 0 leaves it to the server, within the context.
	ReplyTokens int
	// Cost is the maximum cost of all replies, according to [Settings.Cost]; unlimited by default. The reply that
	// exceeds it is the last one. It includes what a rollout cost before it was reopened.
	Cost float64
	// FormatErrors is the maximum number of consecutive replies without a well-formed call; 5 by default.
	FormatErrors int
	// Repeats is how often in a row the same calls may have the same results; 5 by default. The model is warned two
	// repetitions earlier.
	Repeats int
}

func (l Limits) withDefaults() Limits {
	l.Steps, l.FormatErrors, l.Repeats = cmp.Or(l.Steps, 100), cmp.Or(l.FormatErrors, 5), cmp.Or(l.Repeats, 5)
	return l
}

// reached reports whether n has reached the limit; a limit of 0 or less is never reached.
func reached(n, limit int) bool { return limit > 0 && n >= limit }

// Outcome is how a rollout ended. It contains no patch: the caller computes the patch from the sandbox, however the
// rollout ended, and never takes it from the model's text.
type Outcome struct {
	StopReason StopReason
	// Err is the failure behind ModelError or SandboxError; nil for every other reason.
	Err error
	// Answer is the model's summary of its work when it submitted.
	Answer string
	// Format is the name of the action format that was used last.
	Format string
	// Steps counts the model's replies; FormatErrors counts those with nothing that could be run.
	Steps        int
	FormatErrors int
	// Usage is the sum over all replies: a token in the prompt of several replies is counted for each of them.
	Usage Usage
	// Events is the trajectory. trajectory.Record restores the conversation from it, trajectory.NewDocument creates
	// the ATIF document.
	Events []trajectory.Event
	// ModelTime and ToolTime are the time spent on replies and on calls; Elapsed is the whole duration. For a
	// resumed rollout, ModelTime includes the recorded replies.
	ModelTime time.Duration
	ToolTime  time.Duration
	Elapsed   time.Duration
}

// Run runs the rollout until the model submits or a limit is reached. It always returns an Outcome with a stop
// reason and the trajectory so far, which is empty if the prompt could not be created. A failing model, a full
// context and a cancelled ctx are outcomes, not errors. The error is non-nil only for infrastructure failures
// (SandboxError); such a rollout says nothing about the model and has to be repeated.
func (a *Agent) Run(ctx context.Context, sb tools.Sandbox, issue Issue) (Outcome, error) {
	r := newRollout(a, sb, issue)
	if a.Limits.Wall > 0 {
		ctx, r.wall = StartWall(ctx, a.Limits.Wall)
		defer r.wall.Stop()
	}
	stop, err := r.run(ctx)
	return r.finish(stop, err)
}

// finish records the end of the rollout and completes the outcome.
func (r *rollout) finish(stop StopReason, err error) (Outcome, error) {
	r.out.StopReason, r.out.Err = stop, err
	r.out.Elapsed = r.now().Sub(r.started)
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	if r.format != nil { // otherwise there is not even a first message to record
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

// EventKind is the kind of an [Event].
type EventKind string

// The kinds of events, in the order of a step.
const (
	// EventStart: the rollout begins; Text is the action format.
	EventStart EventKind = "start"
	// EventStep: the model is being asked for a reply.
	EventStep EventKind = "step"
	// EventText: a piece of the reply has arrived, in Text. Only with [Settings.Stream].
	EventText EventKind = "text"
	// EventReply: the reply is complete, in Text, with its own Usage and Elapsed.
	EventReply EventKind = "reply"
	// EventProblem: the reply contains no call that can be run or, if Call is set, this call cannot be run; Text is the
	// message to the model.
	EventProblem EventKind = "problem"
	// EventCall: Call is about to run.
	EventCall EventKind = "call"
	// EventResult: Call has run, with Result.
	EventResult EventKind = "result"
	// EventResumed: Past has been replayed, and the rollout continues.
	EventResumed EventKind = "resumed"
	// EventDifference: while replaying Past, the Result of Call differs from the recorded output in Text.
	EventDifference EventKind = "difference"
	// EventNotice: the model is warned that it repeats itself or that the context is nearly full; Text is the
	// warning.
	EventNotice EventKind = "notice"
	// EventCompaction: the conversation was shortened, as Text says.
	EventCompaction EventKind = "compaction"
	// EventFallback: the server does not support tool calls, and the rollout continues in the format Text.
	EventFallback EventKind = "fallback"
	// EventStop: the rollout ended for the reason StopReason; Text is the error behind it, if any.
	EventStop EventKind = "stop"
)

// Event reports the progress of a rollout. Besides Kind, Time and Step, only the fields that the kind mentions are
// set.
type Event struct {
	Kind EventKind
	Time time.Time
	// Step counts replies from 1; it is 0 before the first.
	Step       int
	Text       string
	Call       *tools.Call
	Result     *tools.Result
	Usage      *Usage
	Elapsed    time.Duration
	StopReason StopReason
	// Replayed is set on events of recorded turns that are being replayed.
	Replayed bool
}
