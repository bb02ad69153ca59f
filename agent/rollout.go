package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"deepswe/env"
	"deepswe/tools"
)

// rollout is a running [Agent].
type rollout struct {
	*Agent
	sandbox tools.Sandbox
	task    env.Task
	limits  Limits
	log     *slog.Logger
	started time.Time
	specs   []tools.Spec
	format  Format

	messages []Message
	samples  []*Sample // of the replies so far
	budget   budget
	circles  repetition
	wrong    int  // format errors in a row
	opened   bool // the header and the first messages are recorded
	// unbounded is set once our own bound on a reply had been in the way.
	unbounded bool
	out       Outcome
}

func newRollout(a *Agent, sb tools.Sandbox, task env.Task) *rollout {
	r := &rollout{Agent: a, sandbox: sb, task: task, limits: a.Limits.withDefaults(), log: a.Log}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.started = r.now()
	return r
}

func (r *rollout) now() time.Time {
	if r.Clock != nil {
		return r.Clock()
	}
	return time.Now()
}

func (r *rollout) tell(e Event) {
	if r.OnEvent == nil {
		return
	}
	e.Time = r.now()
	e.Step = max(e.Step, r.out.Steps)
	r.OnEvent(e)
}

// run returns why the rollout ended, and the failure behind it where there is one.
func (r *rollout) run(ctx context.Context) (StopReason, error) {
	r.specs = r.Tools.Specs()
	stop, err := r.begin(ctx)
	for stop == "" {
		stop, err = r.step(ctx)
	}
	return stop, err
}

// begin writes the first messages, or takes up the conversation where Past left it.
func (r *rollout) begin(ctx context.Context) (StopReason, error) {
	if len(r.Past) > 0 {
		return r.resume(ctx)
	}
	format := r.Format
	if format == nil {
		format = FormatFor(r.Header.Model)
	}
	if err := r.open(format); err != nil {
		return SandboxError, err
	}
	return "", nil
}

// open begins the conversation in the given format.
func (r *rollout) open(f Format) error {
	messages, err := r.Prompt(f, r.task, r.sandbox.Dir())
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

// start makes the messages the beginning of the conversation.
func (r *rollout) start(f Format, messages []Message) {
	r.format, r.messages = f, messages
	r.budget = budget{context: r.limits.Context}
	r.budget.add(messages...)
	r.budget.addTools(f.Offer(r.specs))
	r.tell(Event{Kind: EventStart, Text: f.Name()})
}

// step asks the model once and runs what it wants to be run.
func (r *rollout) step(ctx context.Context) (StopReason, error) {
	if stop := r.exhausted(ctx); stop != "" {
		return stop, nil
	}
	r.tell(Event{Kind: EventStep, Step: r.out.Steps + 1})
	reply, err := r.ask(ctx)
	if err != nil {
		return r.unanswered(ctx, err)
	}
	reading := r.take(reply)
	if err := r.recordReply(reply, reading); err != nil {
		return SandboxError, err
	}
	return r.perform(ctx, reply.Message, reading, nil)
}

// exhausted tells whether a limit forbids another step.
func (r *rollout) exhausted(ctx context.Context) StopReason {
	switch {
	case ctx.Err() != nil:
		return stopped(ctx)
	case reached(r.out.Steps, r.limits.Steps):
		return MaxSteps
	case r.budget.full():
		return MaxContext
	}
	return ""
}

// stopped tells why ctx is done; empty while it is not.
func stopped(ctx context.Context) StopReason {
	switch {
	case ctx.Err() == nil:
		return ""
	case errors.Is(context.Cause(ctx), errWall):
		return Timeout
	}
	return Interrupted
}

// unanswered sorts the failure of a request.
func (r *rollout) unanswered(ctx context.Context, err error) (StopReason, error) {
	if stop := stopped(ctx); stop != "" {
		return stop, nil
	}
	switch {
	case errors.Is(err, ErrContextOverflow):
		r.log.Info("the conversation does not fit into the model's context", "step", r.out.Steps+1, "error", err)
		return MaxContext, nil
	case errors.Is(err, errFallback):
		return SandboxError, err
	}
	return ModelError, fmt.Errorf("step %d: %w", r.out.Steps+1, err)
}

// take reads the reply, and adds it to the conversation and to the totals.
func (r *rollout) take(reply Reply) Reading {
	reading := read(r.format, r.specs, reply)
	r.messages = append(r.messages, reply.Message)
	r.budget.replied(reply)
	o := &r.out
	o.Steps++
	if len(reply.Message.ToolCalls) == 0 && len(reading.Actions) > 0 {
		reading.Actions[0].Call.ID = fmt.Sprintf("call_%d", o.Steps) // unique in the whole trajectory, as a server's own are
	}
	o.Usage.Prompt += reply.Usage.Prompt
	o.Usage.Completion += reply.Usage.Completion
	o.Usage.Cached += reply.Usage.Cached
	o.Usage.Reasoning += reply.Usage.Reasoning
	share(r.samples, reply.Tokens)
	r.samples = append(r.samples, reply.Tokens)
	o.ModelTime += reply.Elapsed
	if slices.ContainsFunc(reading.Actions, Action.runs) {
		r.wrong = 0
	} else {
		r.wrong++
		o.FormatErrors++
	}
	r.tell(Event{Kind: EventReply, Text: reply.Message.Content, Usage: &reply.Usage, Elapsed: reply.Elapsed})
	return reading
}

// perform runs the calls of a reply and tells the model what became of them. Of a reply that was recorded before, the
// observations in told are known already.
func (r *rollout) perform(ctx context.Context, reply Message, reading Reading, told []Message) (StopReason, error) {
	if reading.Problem != "" {
		r.tell(Event{Kind: EventProblem, Text: reading.Advice})
	}
	done, err := r.act(ctx, reading.Actions)
	if err != nil {
		if stop := stopped(ctx); stop != "" {
			return stop, nil
		}
		return SandboxError, fmt.Errorf("step %d: %w", r.out.Steps, err)
	}
	stop, warning := r.judge(done)
	observed := r.observe(reading, done, warning, stop == "")
	if stop == "" && !observed.fits {
		stop = MaxContext
	}
	messages := answer(reply, observed.bodies)
	copy(messages, told)
	if err := r.recordObservations(reply, messages, done, len(told)); err != nil {
		return SandboxError, err
	}
	r.messages = append(r.messages, messages...)
	r.budget.add(messages...)
	return stop, nil
}

// judge tells whether the rollout ends with what was done, for a reason that lies in what the model did. The warning is
// for a model that repeats itself.
func (r *rollout) judge(done []deed) (stop StopReason, warning string) {
	if i := slices.IndexFunc(done, func(d deed) bool { return d.result.Finished }); i >= 0 {
		r.out.Answer = done[i].result.Answer
		return Submitted, ""
	}
	if reached(r.wrong, r.limits.FormatErrors) {
		return FormatErrors, ""
	}
	ran := slices.DeleteFunc(slices.Clone(done), func(d deed) bool { return !d.action.runs() })
	if len(ran) == 0 {
		return "", ""
	}
	times, length := r.circles.see(sign(ran))
	switch limit := r.limits.Repeats; {
	case reached(times, limit):
		return Stuck, ""
	case limit > 0 && times >= max(limit-2, 2):
		return "", repeating(times, length)
	}
	return "", ""
}
