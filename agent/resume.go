package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"deepswe/agent/trajectory"
)

// resume takes up a rollout that was killed. Its sandbox is gone, so every recorded call runs again in the new one; the
// conversation stays as it was recorded, also where a call now has another result, because all that the model said
// since was said to that conversation.
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
		return SandboxError, fmt.Errorf("resume the rollout: its repository stood at %s and now stands at %s, which the conversation does "+
			"not know: remove its event log to start it anew", from, to)
	}
	r.out.Events = slices.Clip(r.Past)
	r.opened = true
	if len(past.Turns) == 0 {
		return r.reopen(format, past.Messages)
	}
	// What stands before the first reply is the opening.
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

// again goes through one recorded turn. One that was cut off before all of it was observed is brought to its end.
func (r *rollout) again(ctx context.Context, turn trajectory.Turn) (StopReason, error) {
	reply := turn.Reply
	reading := r.take(reply)
	told := make([]Message, len(turn.Observations))
	for i, o := range turn.Observations {
		told[i] = o.Message
	}
	if len(told) < max(1, len(reply.Message.ToolCalls)) {
		return r.perform(ctx, reply.Message, reading, told)
	}
	done, err := r.act(ctx, reading.Actions)
	if err != nil {
		if stop := stopped(ctx); stop != "" {
			return stop, nil
		}
		return SandboxError, fmt.Errorf("resume the rollout: step %d: %w", r.out.Steps, err)
	}
	r.adopt(done, turn)
	stop, _ := r.judge(done)
	r.messages = append(r.messages, told...)
	r.budget.add(told...)
	return stop, nil
}

// adopt puts the recorded outputs in the place of the new ones, and tells where they differ.
func (r *rollout) adopt(done []deed, turn trajectory.Turn) {
	recorded := recordedResults(turn)
	for i := range done {
		if i >= len(recorded) || !done[i].action.runs() {
			continue
		}
		d := &done[i]
		if !sameOutput(recorded[i].Output, valid(d.result.Output)) {
			result := d.result
			r.tell(Event{Kind: EventDifference, Call: &d.action.Call, Result: &result, Text: recorded[i].Output})
			r.log.Info("a resumed call has another result than before", "step", r.out.Steps, "tool", d.action.Call.Name)
		}
		d.result.Output = recorded[i].Output
	}
}

// recordedResults are the results of a turn in the order of its calls.
func recordedResults(turn trajectory.Turn) []trajectory.Result {
	var all []trajectory.Result
	for _, o := range turn.Observations {
		all = append(all, o.Results...)
	}
	return all
}

// sameOutput compares what two runs of a command printed, without what is different every time.
func sameOutput(a, b string) bool { return a == b || steady(a) == steady(b) }
