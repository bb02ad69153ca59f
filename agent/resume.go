package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// resume continues a rollout that was killed, or one that ended where Reopen is set. Its sandbox is gone, so every
// recorded call runs again in the new one. The conversation stays as it was recorded, even where a call now has another
// result, because everything that the model said since was an answer to that conversation.
func (r *rollout) resume(ctx context.Context) (StopReason, error) {
	rec, err := trajectory.Record(r.Past)
	if err != nil {
		return SandboxError, fmt.Errorf("resume the rollout: %w", err)
	}
	format, ok := FormatNamed(rec.Header.Format)
	if !ok {
		return SandboxError, fmt.Errorf("resume the rollout: its trajectory has the unknown format %q", rec.Header.Format)
	}
	r.dir = cmp.Or(recordedDir(rec), r.dir)
	r.out.Events = slices.Clip(r.Past)
	r.opened, r.replaying = true, true
	past := pastOf(r.Past)
	if len(past.turns) == 0 {
		if err := r.reopen(format, past.opening); err != nil {
			return SandboxError, err
		}
	} else {
		r.start(format, slices.Clip(past.opening))
	}
	if err := r.follow(past.further); err != nil {
		return SandboxError, err
	}
	for i, turn := range past.turns {
		if stop, err := r.again(ctx, turn, i == len(past.turns)-1); stop != "" {
			return stop, err
		}
	}
	r.replaying = false
	r.emit(Event{Kind: EventResumed})
	return r.instruct()
}

// settle lets the model see the repository where the conversation has it, wherever the sandbox has it now.
func (r *rollout) settle() {
	if r.dir != r.root {
		r.tools = moved{Tools: r.tools, seen: r.dir, real: r.root}
	}
}

// moved lets a model work at the path where its repository was before the sandbox was replaced.
type moved struct {
	Tools
	seen, real string
}

func (m moved) Run(ctx context.Context, sb tools.Sandbox, c tools.Call) (tools.Result, error) {
	c.Args = maps.Clone(c.Args)
	for key, value := range c.Args {
		c.Args[key] = relocate(value, m.seen, m.real)
	}
	result, err := m.Tools.Run(ctx, sb, c)
	result.Output = relocate(result.Output, m.real, m.seen)
	result.Answer = relocate(result.Answer, m.real, m.seen)
	return result, err
}

// past is a log by turns. What comes before the first reply is the opening.
type past struct {
	opening []Message
	// further is what came after the end before the first reply: messages of the user, and compactions.
	further []trajectory.Event
	turns   []pastTurn
}

// pastTurn is a turn, and whether the rollout ended with it. What came between it and the next one is in further:
// messages of the user, of which there are told, and compactions.
type pastTurn struct {
	trajectory.Turn
	stop    *trajectory.Stop
	further []trajectory.Event
	told    int
}

func pastOf(events []trajectory.Event) past {
	var p past
	stopped := false
	for _, e := range events {
		n := len(p.turns) - 1
		switch {
		case e.Kind == trajectory.KindReply:
			p.turns = append(p.turns, pastTurn{Turn: trajectory.Turn{Reply: *e.Reply}})
		case e.Kind == trajectory.KindObservation: // never the first, or Record had failed
			p.turns[n].Observations = append(p.turns[n].Observations, *e.Observation)
		case e.Kind == trajectory.KindMessage && n >= 0:
			p.turns[n].further = append(p.turns[n].further, e)
			p.turns[n].told++
		case e.Kind == trajectory.KindCompaction && n >= 0:
			p.turns[n].further = append(p.turns[n].further, e)
		case e.Kind == trajectory.KindCompaction, e.Kind == trajectory.KindMessage && stopped:
			p.further = append(p.further, e)
		case e.Kind == trajectory.KindMessage:
			p.opening = append(p.opening, *e.Message)
		case e.Kind == trajectory.KindStop && n >= 0:
			p.turns[n].stop = e.Stop
		case e.Kind == trajectory.KindStop:
			stopped = true
		}
	}
	return p
}

// reopen completes an opening that may have been cut off.
func (r *rollout) reopen(f Format, known []Message) error {
	if err := r.open(f); err != nil {
		return err
	}
	if len(known) > len(r.messages) {
		return errors.New("resume the rollout: the prompt is not the recorded one")
	}
	copy(r.messages, known)
	for _, m := range r.messages[len(known):] {
		if err := r.put(trajectory.MessageEvent(m)); err != nil {
			return err
		}
	}
	return nil
}

// follow goes through what is recorded between two replies.
func (r *rollout) follow(events []trajectory.Event) error {
	for _, e := range events {
		if e.Kind == trajectory.KindMessage {
			r.append([]Message{*e.Message})
			continue
		}
		r.out.Usage.Add(e.Compaction.Usage)
		if err := r.applyCompaction(*e.Compaction); err != nil {
			return fmt.Errorf("resume the rollout: %w", err)
		}
	}
	return nil
}

// append adds messages to the conversation that are recorded already.
func (r *rollout) append(messages []Message) {
	r.messages = append(r.messages, messages...)
	r.budget.add(messages...)
}

// again goes through one recorded turn, and returns a reason to stop if the rollout ended there for good. A turn that
// was cut off before all of it was observed is completed.
func (r *rollout) again(ctx context.Context, turn pastTurn, last bool) (StopReason, error) {
	known := make([]Message, len(turn.Observations))
	for i, o := range turn.Observations {
		known[i] = o.Message
	}
	reading := r.take(turn.Reply)
	if len(known) < max(1, len(turn.Reply.Message.ToolCalls)) {
		r.replaying = false
		r.renew(turn)
		stop, err := r.perform(ctx, turn.Reply.Message, reading, known)
		if err == nil {
			err = r.follow(turn.further)
		}
		if err != nil {
			return SandboxError, err
		}
		return stop, nil
	}
	r.declined = declinedCalls(reading, turn.Turn)
	results, err := r.act(ctx, reading.Actions)
	r.declined = nil
	if err != nil {
		if stop := stopped(ctx); stop != "" {
			return stop, nil
		}
		return SandboxError, fmt.Errorf("resume the rollout: step %d: %w", r.out.Steps, err)
	}
	r.restore(results, turn.Turn)
	stop, _ := r.judge(results)
	r.append(known)
	if !last || turn.told > 0 || r.goesOn(turn, stop) {
		stop = ""
		r.out.Answer = ""
		r.renew(turn)
	}
	if err := r.follow(turn.further); err != nil {
		return SandboxError, err
	}
	return stop, nil
}

// declinedCalls are the ids of the calls of a turn that the user did not let run.
func declinedCalls(reading Reading, turn trajectory.Turn) map[string]bool {
	declined := map[string]bool{}
	for i, result := range recordedResults(turn) {
		if i < len(reading.Actions) && result.Failed && strings.HasPrefix(result.Output, adviceDeclined) {
			declined[reading.Actions[i].Call.ID] = true
		}
	}
	return declined
}

// goesOn reports whether a rollout that ended with the turn, which is the last one, is to go on all the same.
func (r *rollout) goesOn(turn pastTurn, stop StopReason) bool {
	return r.Reopen && turn.stop != nil && (stop != Submitted || r.Further != "")
}

// renew begins the limits anew after the end of a rollout that goes on because its user wants it to.
func (r *rollout) renew(turn pastTurn) {
	if r.Reopen && turn.stop != nil {
		r.before, r.invalid, r.loops = r.out.Steps, 0, repetition{}
	}
}

// instruct adds the user's further instruction.
func (r *rollout) instruct() (StopReason, error) {
	if r.Further == "" {
		return "", nil
	}
	m := Message{Role: RoleUser, Content: adviceFurther + valid(r.Further)}
	if left := r.stepsLeft(); left > 0 {
		m.Content += stepsRemaining(left)
	}
	if err := r.record(trajectory.MessageEvent(m)); err != nil {
		return SandboxError, err
	}
	r.append([]Message{m})
	return "", nil
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
