package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"regexp"
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
	compaction Compaction
	budget     budget
	loops      repetition
	invalid    int  // consecutive format errors
	before     int  // replies before the rollout was reopened, which do not count against the limit
	opened     bool // the header and first messages are recorded
	// declined contains the IDs of a recorded turn's calls that the user declined.
	declined map[string]bool
	// replaying is set while recorded turns are replayed.
	replaying bool
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
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
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
	stop, err = r.begin(ctx)
	for stop == "" {
		stop, err = r.step(ctx)
	}
	return stop, err
}

// begin writes the first messages, or continues the conversation of Past.
func (r *rollout) begin(ctx context.Context) (StopReason, error) {
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
	messages, err := r.Prompt(f, r.issue, r.dir)
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
	r.format, r.messages = f, messages
	if r.compaction = NoCompaction; r.Compact != nil {
		r.compaction = r.Compact(f)
	}
	if r.tools = r.Tools; f.Name() == trajectory.FormatTools && r.Native != nil {
		r.tools = r.Native
	}
	r.settle()
	r.specs = r.tools.Specs()
	r.budget = budget{context: r.limits.Context}
	r.budget.add(messages...)
	r.budget.addTools(f.Offer(r.specs))
	r.emit(Event{Kind: EventStart, Text: f.Name()})
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
	reading := r.take(reply)
	if err := r.recordReply(reply, reading); err != nil {
		return SandboxError, err
	}
	return r.perform(ctx, reply.Message, reading, nil)
}

// exhausted returns the limit that forbids another step, or "".
func (r *rollout) exhausted(ctx context.Context) StopReason {
	switch {
	case ctx.Err() != nil:
		return stopped(ctx)
	case reached(r.out.Steps-r.before, r.limits.Steps):
		return MaxSteps
	case r.budget.full():
		return MaxContext
	case r.Cost != nil && r.limits.Cost > 0 && r.Cost(r.out.Usage) >= r.limits.Cost:
		return MaxCost
	}
	return ""
}

// stopped returns why ctx has ended, or "" if it has not.
func stopped(ctx context.Context) StopReason {
	switch {
	case ctx.Err() == nil:
		return ""
	case errors.Is(context.Cause(ctx), errWall):
		return Timeout
	}
	return Interrupted
}

// errFallback reports that the rollout could not switch to XML.
var errFallback = errors.New("fall back to XML")

// ask gets the next reply. If the server does not support tool calls and the user has not chosen the format, it
// asks again in XML, as long as nothing is recorded yet.
func (r *rollout) ask(ctx context.Context) (Reply, error) {
	reply, err := r.complete(ctx)
	undecided := r.Format == nil && !r.opened
	if !undecided || !errors.Is(err, ErrToolsUnsupported) {
		return reply, err
	}
	r.log.Warn("the endpoint does not support tool calls: continuing in XML", "model", r.ModelName, "error", err)
	r.emit(Event{Kind: EventFallback, Text: XML{}.Name()})
	if err := r.open(XML{}); err != nil {
		return Reply{}, fmt.Errorf("%w: %w", errFallback, err)
	}
	return r.complete(ctx)
}

// complete sends the request, and repeats it if only our own limit on the reply was at fault.
func (r *rollout) complete(ctx context.Context) (Reply, error) {
	request := Request{
		Messages:  slices.Clip(r.messages),
		Tools:     r.format.Offer(r.specs),
		Sampling:  r.Sampling,
		MaxTokens: r.replyTokens(),
		Tokens:    r.Tokens,
		Dir:       r.dir,
	}
	if !r.Tokens {
		// Stream even if nobody watches, because gateways cut requests that stay silent during a long thought.
		request.OnText = func(text string) {
			if r.Stream {
				r.emit(Event{Kind: EventText, Step: r.out.Steps + 1, Text: text})
			}
		}
	}
	start := r.now()
	reply, err := r.Model.Complete(ctx, request)
	if err != nil && ctx.Err() == nil && r.loosen(&request, err) {
		reply, err = r.Model.Complete(ctx, request)
	}
	if err != nil {
		return Reply{}, err
	}
	reply.Message.Role = RoleAssistant
	if reply.Elapsed == 0 {
		reply.Elapsed = r.now().Sub(start)
	}
	return reply, nil
}

// replyTokens returns the limit on the next reply, from Limits and from what is left of the context; 0 means none.
func (r *rollout) replyTokens() int {
	limit := max(r.limits.ReplyTokens, 0)
	left := r.budget.left()
	if left == 0 || r.unbounded {
		return limit
	}
	if limit == 0 {
		return left
	}
	return min(limit, left)
}

// boundRefused matches the errors of hosted endpoints that reject a limit above their model's maximum.
var boundRefused = regexp.MustCompile(`max_(completion_)?tokens`)

// loosen removes our own limit from a request and reports whether repeating the request can help. Either the
// prompt's length was underestimated, so that prompt and limit together were too long; without a limit, the server
// uses what is left. Or the server has rejected the limit itself, because its context is smaller than assumed.
func (r *rollout) loosen(request *Request, err error) bool {
	limit := max(r.limits.ReplyTokens, 0)
	if request.MaxTokens == limit || !errors.Is(err, ErrContextOverflow) && !boundRefused.MatchString(err.Error()) {
		return false
	}
	r.unbounded = true
	request.MaxTokens = limit
	return true
}

// unanswered classifies the failure of a request.
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

// take parses the reply, and adds it to the conversation and the totals.
func (r *rollout) take(reply Reply) Reading {
	reading := read(r.format, r.specs, reply)
	r.messages = append(r.messages, reply.Message)
	r.budget.replied(reply)
	o := &r.out
	o.Steps++
	if len(reply.Message.ToolCalls) == 0 && len(reading.Actions) > 0 {
		reading.Actions[0].Call.ID = fmt.Sprintf("call_%d", o.Steps) // unique in the trajectory, like a server's IDs
	}
	o.Usage.Add(reply.Usage)
	sharePrompts(r.samples, reply.Tokens)
	r.samples = append(r.samples, reply.Tokens)
	o.ModelTime += reply.Elapsed
	if !slices.ContainsFunc(reading.Actions, Action.runs) {
		o.FormatErrors++
	}
	if r.invalid++; slices.ContainsFunc(reading.Actions, Action.wellFormed) {
		r.invalid = 0
	}
	r.emit(Event{Kind: EventReply, Text: reply.Message.Content, Usage: &reply.Usage, Elapsed: reply.Elapsed})
	return reading
}

// sharePrompts makes the prompts of earlier replies use the memory of the next reply's prompt, which usually starts
// with them. Otherwise, a rollout's token IDs would take memory quadratic in its length.
func sharePrompts(past []*Sample, next *Sample) {
	if next == nil {
		return
	}
	var known []int32 // a prompt that next starts with
	for _, t := range slices.Backward(past) {
		if t == nil || len(t.PromptIDs) == 0 {
			continue
		}
		n := len(t.PromptIDs)
		inKnown := n <= len(known) && &t.PromptIDs[0] == &known[0]
		if !inKnown && (n > len(next.PromptIDs) || !slices.Equal(t.PromptIDs, next.PromptIDs[:n])) {
			return
		}
		known = t.PromptIDs
		t.PromptIDs = next.PromptIDs[:n:n]
	}
}

// perform runs the calls of a reply and adds the observations to the conversation. When replaying, known contains
// the observations that are already recorded.
func (r *rollout) perform(ctx context.Context, reply Message, reading Reading, known []Message) (StopReason, error) {
	if reading.Problem != "" {
		r.emit(Event{Kind: EventProblem, Text: reading.Advice})
	}
	results, err := r.act(ctx, reading.Actions)
	if err != nil {
		if stop := stopped(ctx); stop != "" {
			return stop, nil
		}
		return SandboxError, fmt.Errorf("step %d: %w", r.out.Steps, err)
	}
	stop, warning := r.judge(results)
	bodies, fits := r.observe(reading, results, warning, stop == "")
	if stop == "" && !fits {
		stop = MaxContext
	}
	messages := answer(reply, bodies, r.Wrap)
	copy(messages, known)
	if err := r.recordObservations(reply, messages, results, len(known)); err != nil {
		return SandboxError, err
	}
	r.messages = append(r.messages, messages...)
	r.budget.add(messages...)
	return stop, nil
}

// finishTool is the tool that submits.
const finishTool = "finish"

// callResult is an action and, if it was run, its result.
type callResult struct {
	action  Action
	result  tools.Result
	elapsed time.Duration
}

// act runs the actions in order. After a submission, nothing else is run. A submission is refused if an earlier
// action of the same reply failed, because the model did not know that when it wrote the reply.
func (r *rollout) act(ctx context.Context, actions []Action) ([]callResult, error) {
	results := make([]callResult, len(actions))
	submitted, failed := false, false
	for i, a := range actions {
		switch {
		case !a.runs():
		case submitted:
			a.Problem, a.Refusal = ProblemTooLate, adviceTooLate
		case failed && a.Call.Name == finishTool:
			a.Problem, a.Refusal = ProblemTooEarly, adviceTooEarly
		}
		results[i].action = a
		if !a.runs() {
			failed = true
			r.emit(Event{Kind: EventProblem, Call: &a.Call, Text: a.Refusal})
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r.emit(Event{Kind: EventCall, Call: &a.Call})
		declined, err := r.review(ctx, a.Call)
		if err != nil {
			return nil, err
		}
		if declined != "" {
			results[i].result = tools.Result{Output: declined, Failed: true}
			r.emit(Event{Kind: EventResult, Call: &a.Call, Result: &results[i].result})
			failed = true
			continue
		}
		start := r.now()
		result, err := r.tools.Run(ctx, r.sandbox, a.Call)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Call.Name, err)
		}
		results[i].result, results[i].elapsed = result, r.now().Sub(start)
		r.out.ToolTime += results[i].elapsed
		r.emit(Event{Kind: EventResult, Call: &a.Call, Result: &result, Elapsed: results[i].elapsed})
		submitted, failed = submitted || result.Finished, failed || result.Failed
	}
	return results, nil
}

// review asks the user about a call. It returns what to tell the model instead of a result, or "" if the call may
// run.
func (r *rollout) review(ctx context.Context, c tools.Call) (string, error) {
	if r.declined[c.ID] {
		return adviceDeclined, nil // the recorded text replaces this one
	}
	if r.Review == nil || r.replaying {
		return "", nil
	}
	instead, err := r.Review(ctx, c)
	if err != nil || instead == "" {
		return "", err
	}
	return adviceDeclined + valid(instead), nil
}

// judge returns the reason to end the rollout after these results, or a warning for a model that repeats itself.
func (r *rollout) judge(results []callResult) (stop StopReason, warning string) {
	if i := slices.IndexFunc(results, func(c callResult) bool { return c.result.Finished }); i >= 0 {
		r.out.Answer = results[i].result.Answer
		return Submitted, ""
	}
	if reached(r.invalid, r.limits.FormatErrors) {
		return FormatErrors, ""
	}
	read := slices.DeleteFunc(slices.Clone(results), func(c callResult) bool { return !c.action.wellFormed() })
	if len(read) == 0 {
		return "", ""
	}
	times, length := r.loops.add(sign(read))
	switch limit := r.limits.Repeats; {
	case reached(times, limit):
		return Stuck, ""
	case limit > 0 && times >= max(limit-2, 2):
		return "", adviceRepeating(times, length)
	}
	return "", ""
}
