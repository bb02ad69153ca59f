package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"deepswe/agent/trajectory"
)

// resume continues a rollout that was killed. Its sandbox is gone, so every recorded call runs again in the new one.
// The conversation stays as it was recorded, even where a call now has another result, because everything that the
// model said since was an answer to that conversation.
func (r *rollout) resume(ctx context.Context) (StopReason, error) {
	past, err := trajectory.Record(r.Past)
	if err != nil {
		return SandboxError, fmt.Errorf("resume the rollout: %w", err)
	}
	format, ok := FormatNamed(past.Header.Format)
	if !ok {
		return SandboxError, fmt.Errorf("resume the rollout: its trajectory has the unknown format %q", past.Header.Format)
	}
	if from, to := recordedDir(past), r.sandbox.Dir(); from != "" && from != to {
		return SandboxError, fmt.Errorf("resume the rollout: its conversation is about a repository at %s, which is "+
			"now at %s: remove its event log to start over", from, to)
	}
	r.out.Events = slices.Clip(r.Past)
	r.opened = true
	if len(past.Turns) == 0 {
		return r.reopen(format, past.Messages)
	}
	// What comes before the first reply is the opening.
	first := slices.IndexFunc(past.Messages, func(m Message) bool { return m.Role == RoleAssistant })
	r.start(format, past.Messages[:first:first])
	for _, turn := range past.Turns {
		if stop, err := r.again(ctx, turn); stop != "" {
			return stop, err
		}
	}
	return "", nil
}

// reopen completes an opening that may have been cut off.
func (r *rollout) reopen(f Format, known []Message) (StopReason, error) {
	if err := r.open(f); err != nil {
		return SandboxError, err
	}
	if len(known) > len(r.messages) {
		return SandboxError, errors.New("resume the rollout: the prompt is not the recorded one")
	}
	copy(r.messages, known)
	for _, m := range r.messages[len(known):] {
		if err := r.put(trajectory.MessageEvent(m)); err != nil {
			return SandboxError, err
		}
	}
	return "", nil
}

// again goes through one recorded turn. A turn that was cut off before all of it was observed is completed.
func (r *rollout) again(ctx context.Context, turn trajectory.Turn) (StopReason, error) {
	reply := turn.Reply
	reading := r.take(reply)
	known := make([]Message, len(turn.Observations))
	for i, o := range turn.Observations {
		known[i] = o.Message
	}
	if len(known) < max(1, len(reply.Message.ToolCalls)) {
		return r.perform(ctx, reply.Message, reading, known)
	}
	results, err := r.act(ctx, reading.Actions)
	if err != nil {
		if stop := stopped(ctx); stop != "" {
			return stop, nil
		}
		return SandboxError, fmt.Errorf("resume the rollout: step %d: %w", r.out.Steps, err)
	}
	r.restore(results, turn)
	stop, _ := r.judge(results)
	r.messages = append(r.messages, known...)
	r.budget.add(known...)
	return stop, nil
}

// restore replaces the new outputs by the recorded ones, and reports where they differ.
func (r *rollout) restore(results []callResult, turn trajectory.Turn) {
	recorded := recordedResults(turn)
	for i := range results {
		if i >= len(recorded) || !results[i].action.runs() {
			continue
		}
		c := &results[i]
		if !sameOutput(recorded[i].Output, valid(c.result.Output)) {
			result := c.result
			r.emit(Event{Kind: EventDifference, Call: &c.action.Call, Result: &result, Text: recorded[i].Output})
			r.log.Info("a resumed call has another result than before", "step", r.out.Steps, "tool", c.action.Call.Name)
		}
		c.result.Output = recorded[i].Output
	}
}
