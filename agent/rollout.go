package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"slices"
	"time"

	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/tools"
)

// rollout is a running [Agent].
type rollout struct {
	*Agent
	sandbox tools.Sandbox
	issue   Issue
	limits  Limits
	log     *slog.Logger
	now     func() time.Time
	started time.Time
	tools   Tools
	specs   []tools.Spec
	dir     string // the repository's path for the model
	root    string // the repository's path in the sandbox
	format  Format

	messages   []Message
	samples    []*Sample // of the replies so far; nil for replies without token IDs
	sampled    *Sample   // the last of them, if everything before fresh is unchanged since
	fresh      int       // the index of the first message after the last reply
	wall       *WallClock
	compaction Compaction
	budget     budget
	loops      repetition
	invalid    int  // consecutive format errors
	before     int  // replies before the rollout was reopened, which do not count against the limit
	opened     bool // the header and first messages are recorded
	// declined has, by ID, what the model is told instead of the results of recorded calls that are not run.
	declined map[string]string
	// replaying is set while recorded turns are replayed, and differs once a call of one has had another result.
	replaying bool
	differs   bool
	// unbounded is set once the server has rejected our own limit on a reply.
	unbounded bool
	out       Outcome
}

func newRollout(a *Agent, sb tools.Sandbox, issue Issue) *rollout {
	r := &rollout{
		Agent: a, sandbox: sb, issue: issue, limits: a.Limits.withDefaults(), log: a.Log, now: a.Clock,
		tools: a.Tools, dir: sb.Dir(), root: sb.Dir(),
	}
	if issue.Folder != "" {
		r.sandbox = within{Sandbox: sb, dir: path.Join(sb.Dir(), issue.Folder)}
	}
	r.log = cmp.Or(r.log, slog.New(slog.DiscardHandler))
	if r.now == nil {
		r.now = time.Now
	}
	r.started = r.now()
	return r
}

// within is a sandbox in which commands and relative paths start in a folder of the repository.
type within struct {
	tools.Sandbox
	dir string
}

func (w within) Dir() string { return w.dir }

func (w within) Run(ctx context.Context, c env.Command) (env.Result, error) {
	c.Dir = cmp.Or(c.Dir, w.dir)
	return w.Sandbox.Run(ctx, c)
}

func (w within) Search(ctx context.Context, q env.Query) (env.Matches, error) {
	q.Path = cmp.Or(q.Path, w.dir)
	return w.Sandbox.Search(ctx, q)
}

// emit passes an event to OnEvent.
func (r *rollout) emit(e Event) {
	if r.OnEvent == nil {
		return
	}
	e.Time = r.now()
	e.Step, e.Replayed = max(e.Step, r.out.Steps), r.replaying
	r.OnEvent(e)
}

// run returns why the rollout ended, and the failure behind that, if any. It turns a panic into an error, so that
// one rollout cannot take down the others.
func (r *rollout) run(ctx context.Context) (stop StopReason, err error) {
	defer func() {
		if p := recover(); p != nil {
			stop, err = SandboxError, fmt.Errorf("internal error in step %d: %v\n%s", r.out.Steps, p, debug.Stack())
		}
	}()
	stop, err = r.beginConversation(ctx)
	for stop == "" {
		stop, err = r.step(ctx)
	}
	return stop, err
}

// beginConversation writes the first messages, or continues the conversation of Past.
func (r *rollout) beginConversation(ctx context.Context) (StopReason, error) {
	if len(r.Past) > 0 {
		return r.resume(ctx)
	}
	format := r.Format
	if format == nil {
		format = FormatFor(r.ModelName)
	}
	if err := r.open(format); err != nil {
		return SandboxError, err
	}
	return "", nil
}

// open starts the conversation in the given format.
func (r *rollout) open(f Format) error {
	messages, err := r.Prompt(Opening{Format: f, Issue: r.issue, Dir: r.dir, Tools: r.toolsFor(f).Specs()})
	if err != nil {
		return fmt.Errorf("write the prompt: %w", err)
	}
	if len(messages) == 0 {
		return errors.New("write the prompt: it has no message")
	}
	messages = slices.Clone(messages)
	if r.limits.Steps > 0 {
		messages[len(messages)-1].Content += stepsRemaining(r.limits.Steps)
	}
	r.start(f, messages)
	return nil
}

// start makes the messages the start of the conversation.
func (r *rollout) start(f Format, messages []Message) {
	r.format, r.messages, r.sampled = f, messages, nil
	if r.compaction = NoCompaction; r.Compact != nil {
		r.compaction = r.Compact(f)
	}
	r.tools = r.toolsFor(f)
	if r.dir != r.root { // a resumed conversation keeps the path that it began with
		r.tools = moved{Tools: r.tools, seen: r.dir, real: r.root}
	}
	r.specs = r.tools.Specs()
	r.budget = budget{context: r.limits.Context}
	r.budget.add(messages...)
	r.budget.addTools(f.Offer(r.specs))
	r.emit(Event{Kind: EventStart, Text: f.Name()})
}

func (r *rollout) toolsFor(f Format) Tools {
	if f.Name() == trajectory.FormatTools && r.Native != nil {
		return r.Native
	}
	return r.Tools
}

// step asks the model once and runs the calls of its reply.
func (r *rollout) step(ctx context.Context) (StopReason, error) {
	if ctx.Err() == nil {
		if _, err := r.compact(ctx, false); err != nil {
			return SandboxError, err
		}
	}
	if stop := r.exhausted(ctx); stop != "" {
		return stop, nil
	}
	r.emit(Event{Kind: EventStep, Step: r.out.Steps + 1})
	reply, err := r.ask(ctx)
	if errors.Is(err, ErrContextOverflow) && ctx.Err() == nil {
		changed, cerr := r.compact(ctx, true)
		if cerr != nil {
			return SandboxError, cerr
		}
		if changed {
			reply, err = r.ask(ctx)
		}
	}
	if err != nil {
		return r.unanswered(ctx, err)
	}
	reading := r.takeReply(reply)
	if err := r.recordReply(reply, reading); err != nil {
		return SandboxError, err
	}
	return r.perform(ctx, reply.Message, reading, nil)
}

// exhausted returns the limit that forbids another step, or "".
func (r *rollout) exhausted(ctx context.Context) StopReason {
	switch {
	case ctx.Err() != nil:
		return Stopped(ctx)
	case reached(r.out.Steps-r.before, r.limits.Steps):
		return MaxSteps
	case r.budget.full():
		return MaxContext
	case r.Cost != nil && r.limits.Cost > 0 && r.Cost(r.out.Usage) >= r.limits.Cost:
		return MaxCost
	}
	return ""
}

// Stopped returns why ctx has ended, or "" if it has not.
func Stopped(ctx context.Context) StopReason {
	switch {
	case ctx.Err() == nil:
		return ""
	case errors.Is(context.Cause(ctx), errWall):
		return Timeout
	}
	return Interrupted
}
