package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

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
	r.log.Warn("the endpoint does not support tool calls: continuing in XML", "error", err)
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
		Sampled:   r.sampled, Fresh: r.fresh,
		Waiting: r.wall.Pause,
		Dir:     r.dir,
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
	reply.Elapsed = cmp.Or(reply.Elapsed, r.now().Sub(start))
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
	if stop := Stopped(ctx); stop != "" {
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

// takeReply parses the reply, and adds it to the conversation and the totals.
func (r *rollout) takeReply(reply Reply) Reading {
	reading := read(r.format, r.specs, reply)
	r.messages = append(r.messages, reply.Message)
	r.sampled, r.fresh = reply.Tokens, len(r.messages)
	r.budget.replied(reply)
	o := &r.out
	o.Steps++
	if len(reply.Message.ToolCalls) == 0 && len(reading.Actions) > 0 {
		reading.Actions[0].Call.ID = fmt.Sprintf("call_%d", o.Steps) // unique in the trajectory, like a server's IDs
	}
	o.Usage.Add(reply.Usage)
	SharePrompts(r.samples, reply.Tokens)
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

// SharePrompts makes the prompts of earlier replies use the memory of the next reply's prompt, which usually starts
// with them. Otherwise, a rollout's token IDs would take memory quadratic in its length.
func SharePrompts(past []*Sample, next *Sample) {
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
