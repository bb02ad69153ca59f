package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// resume continues a rollout that was killed or, with Reopen, one that has ended. Its sandbox no longer exists, so
// every recorded call is run again in the new one. The conversation stays as it was recorded, even if a call now
// has a different result, because the model's later replies respond to the recorded conversation.
func (r *rollout) resume(ctx context.Context) (StopReason, error) {
	rec, err := trajectory.Record(r.Past)
	if err != nil {
		return SandboxError, fmt.Errorf("resume the rollout: %w", err)
	}
	if by := rec.Header.Agent; by != "" && r.Header.Agent != "" && by != r.Header.Agent {
		return SandboxError, fmt.Errorf("resume the rollout: only its own agent, %s, can go on with it", by)
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
		if r.differs && i < rec.Header.Prefix {
			return SandboxError, fmt.Errorf("resume the rollout: turn %d: %w", i+1, ErrPrefix)
		}
	}
	r.replaying = false
	r.emit(Event{Kind: EventResumed})
	return r.instruct(rec.Header)
}

// ErrPrefix reports that the beginning of another rollout cannot be continued, because a call has another result in
// the new sandbox.
var ErrPrefix = errors.New("a call of another rollout's beginning has a different result when it is run again")

// moved is a sandbox in which the model uses the path that the repository had before the sandbox was replaced.
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

// past is a log divided into turns. The opening is everything before the first reply.
type past struct {
	opening []Message
	// further contains user messages and compactions between an end of the rollout and the first reply.
	further []trajectory.Event
	turns   []pastTurn
}

// pastTurn is a turn, and whether the rollout ended with it. further contains the user messages (told counts them)
// and compactions between this turn and the next.
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
		case e.Kind == trajectory.KindObservation: // never the first event, which Record would have rejected
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

// follow applies what was recorded between two replies.
func (r *rollout) follow(events []trajectory.Event) error {
	for _, e := range events {
		if e.Kind == trajectory.KindMessage {
			r.append(*e.Message)
			continue
		}
		r.out.Usage.Add(e.Compaction.Usage)
		if err := r.applyCompaction(*e.Compaction); err != nil {
			return fmt.Errorf("resume the rollout: %w", err)
		}
	}
	return nil
}

// append adds messages to the conversation that are already recorded.
func (r *rollout) append(messages ...Message) {
	r.messages = append(r.messages, messages...)
	r.budget.add(messages...)
}

// again replays one recorded turn, and returns a stop reason if the rollout ended there for good. It completes a
// turn whose observations were only partly recorded.
func (r *rollout) again(ctx context.Context, turn pastTurn, last bool) (StopReason, error) {
	known := make([]Message, len(turn.Observations))
	for i, o := range turn.Observations {
		known[i] = o.Message
	}
	reading := r.takeReply(turn.Reply)
	if len(known) < max(1, len(turn.Reply.Message.ToolCalls)) {
		r.replaying = false
		r.renew(turn)
		if last && r.Further != "" {
			r.declined = unfinishedCalls(reading, len(known))
		}
		stop, err := r.perform(ctx, turn.Reply.Message, reading, known)
		r.declined = nil
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
		return r.broken(ctx, fmt.Errorf("resume the rollout: %w", err))
	}
	r.restore(results, turn.Turn)
	stop, _ := r.judge(results)
	r.append(known...)
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

// unfinishedCalls returns, by ID, what the model is told about calls without a result, after the user stopped the
// rollout and asked for something else.
func unfinishedCalls(reading Reading, known int) map[string]string {
	declined := map[string]string{}
	for _, a := range reading.Actions[min(known, len(reading.Actions)):] {
		declined[a.Call.ID] = adviceDeclined + adviceStopped
	}
	return declined
}

// declinedCalls returns, by ID, what the model was told about those of a turn's calls that the user declined.
func declinedCalls(reading Reading, turn trajectory.Turn) map[string]string {
	declined := map[string]string{}
	for i, result := range recordedResults(turn) {
		if i < len(reading.Actions) && result.Failed && strings.HasPrefix(result.Output, adviceDeclined) {
			declined[reading.Actions[i].Call.ID] = result.Output
		}
	}
	return declined
}

// goesOn reports whether the rollout should continue although it ended with this turn, the last one.
func (r *rollout) goesOn(turn pastTurn, stop StopReason) bool {
	return r.Reopen && turn.stop != nil && (stop != Submitted || r.Further != "")
}

// renew starts the limits again when the user continues a rollout that had ended.
func (r *rollout) renew(turn pastTurn) {
	if r.Reopen && turn.stop != nil {
		r.before, r.invalid, r.loops = r.out.Steps, 0, repetition{}
	}
}

// instruct adds to the conversation the user's further instruction, and what has changed about the tools.
func (r *rollout) instruct(h trajectory.Header) (StopReason, error) {
	var parts []string
	if r.Further != "" {
		parts = append(parts, adviceFurther+valid(r.Further))
	}
	if parts = append(parts, r.changedTools(h)...); len(parts) == 0 {
		return "", nil
	}
	m := Message{Role: RoleUser, Content: strings.Join(parts, "\n\n")}
	if left := r.stepsLeft(); left > 0 {
		m.Content += stepsRemaining(left)
	}
	if err := r.record(trajectory.MessageEvent(m)); err != nil {
		return SandboxError, err
	}
	r.append(m)
	return "", nil
}

// changedTools describes the tools whose descriptions differ from the last ones in the conversation, because their
// limits have changed. If every request describes the tools, it returns nothing.
func (r *rollout) changedTools(h trajectory.Header) (notes []string) {
	if len(r.format.Offer(r.specs)) > 0 {
		return nil
	}
	told := map[string]string{}
	for _, definition := range h.Tools {
		var d struct{ Function tools.Spec }
		if json.Unmarshal(definition, &d) == nil { // another program's may have another form
			told[d.Function.Name] = d.Function.Description
		}
	}
	for _, s := range r.specs {
		was, known := told[s.Name]
		heading := fmt.Sprintf(adviceChanged, s.Name)
		for _, m := range r.messages {
			if _, after, ok := strings.Cut(m.Content, heading); ok && m.Role == RoleUser {
				was, known = after[:min(len(after), len(s.Description))], true
			}
		}
		if known && was != s.Description {
			notes = append(notes, heading+s.Description)
		}
	}
	return notes
}

// restore replaces the new outputs by the recorded ones, and reports differences.
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
			r.differs = true
			r.log.Info("a repeated call has a different result", "step", r.out.Steps, "tool", c.action.Call.Name)
		}
		c.result.Output = recorded[i].Output
	}
}
