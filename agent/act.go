package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"deepswe/env"
	"deepswe/tools"
)

// perform runs the calls of a reply and adds the observations to the conversation. When replaying, known contains
// the observations that are already recorded.
func (r *rollout) perform(ctx context.Context, reply Message, reading Reading, known []Message) (StopReason, error) {
	if reading.Problem != "" {
		r.emit(Event{Kind: EventProblem, Text: reading.Advice})
	}
	results, err := r.act(ctx, reading.Actions)
	if err != nil {
		return r.broken(ctx, err)
	}
	stop, warning := r.judge(results)
	bodies, fits := r.observeResults(reading, results, warning, stop == "")
	if stop == "" && !fits {
		stop = MaxContext
	}
	messages := answer(reply, bodies, r.Wrap)
	copy(messages, known)
	if err := r.recordObservations(reply, messages, results, len(known)); err != nil {
		return SandboxError, err
	}
	r.append(messages...)
	return stop, nil
}

// broken returns how the rollout ends when a call has failed with an error of the sandbox.
func (r *rollout) broken(ctx context.Context, err error) (StopReason, error) {
	switch stop := Stopped(ctx); {
	case stop != "":
		return stop, nil
	case errors.Is(err, env.ErrExhausted):
		return Exhausted, nil
	}
	return SandboxError, fmt.Errorf("step %d: %w", r.out.Steps, err)
}

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
	if told := r.declined[c.ID]; told != "" {
		return told, nil
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
