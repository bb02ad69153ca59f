package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"deepswe/agent/trajectory"
)

// Compaction is what a rollout does when its conversation no longer fits into the model's context. It is recorded,
// so that a resumed rollout sends the same prompts; the log and the trajectory keep every message in full.
type Compaction string

// The strategies. NoCompaction is the default, because a model like DeepSWE was trained without one.
const (
	NoCompaction Compaction = "none"
	// Elide replaces the oldest observations by a short note.
	Elide Compaction = "elide"
	// Summarize elides and, if that is not enough, lets the model replace all but the last turns by a summary.
	Summarize Compaction = "summary"
)

// Compactions returns the names of all strategies.
func Compactions() []Compaction { return []Compaction{NoCompaction, Elide, Summarize} }

const (
	// compactAt is the percentage of the usable context at which compaction starts, elideTo the percentage to
	// reduce it to. The gap lets the prompts of many steps share a prefix, which servers can cache.
	compactAt = 80
	elideTo   = 50
	// summarizeAbove is the percentage above which eliding was not enough and a summary follows.
	summarizeAbove = 65
	// keptTurns is how many of the last turns stay unchanged.
	keptTurns = 4
	// smallestElided is the smallest observation that is worth eliding, in bytes.
	smallestElided = 400
)

// elided replaces an old observation.
const elided = "[Output elided to save context: %d characters. Run the call again if you need it.]"

// adviceSummarize asks the model for a summary.
const adviceSummarize = `The context is nearly full. ` +
	`Everything above, except for the task and the most recent steps, will be replaced by your answer to this message. ` +
	`Do not call a tool now. Write down, for yourself, everything that you need to continue: ` +
	`what you found out (files, functions, line numbers, causes), what you changed and why, which ` +
	`commands and tests you ran with which results, and what is left to do.`

const summaryFrame = "The earlier steps of this session were replaced by this summary, which you wrote:\n\n"

func (r *rollout) compacting() bool { return r.compaction == Elide || r.compaction == Summarize }

// compact compacts the conversation if the context is nearly full or if needed is set, because the server has
// rejected the prompt as too long. It reports whether anything changed. An error means that recording failed.
func (r *rollout) compact(ctx context.Context, needed bool) (changed bool, err error) {
	if !r.compacting() || !needed && !r.budget.above(compactAt) {
		return false, nil
	}
	before := r.budget.prompt()
	if c := r.planElision(needed); len(c.Elided) > 0 {
		if err := r.compacted(c); err != nil {
			return false, err
		}
		changed = true
	}
	if r.compaction == Summarize && (r.budget.above(summarizeAbove) || needed && !changed) {
		if c, ok := r.summarize(ctx); ok {
			if err := r.compacted(c); err != nil {
				return changed, err
			}
			changed = true
		}
	}
	if changed {
		r.emit(Event{Kind: EventCompaction, Text: fmt.Sprintf("context compacted: about %d tokens became %d", before,
			r.budget.prompt())})
	}
	return changed, nil
}

// planElision selects observations to elide, oldest first, until there is enough room.
func (r *rollout) planElision(needed bool) trajectory.Compaction {
	c := trajectory.Compaction{Strategy: string(Elide)}
	size := sizeOf(r.messages)
	target := size * elideTo / 100
	if now := r.budget.prompt(); r.budget.context > 0 && !needed && now > 0 {
		target = int(float64(size) * float64(r.budget.usable()*elideTo/100) / float64(now))
	}
	opening := r.openingLength()
	for i := opening; i < r.turnStart(keptTurns) && size > target; i++ {
		m := r.messages[i]
		if m.Role == RoleAssistant || len(m.Content) < smallestElided {
			continue
		}
		size -= len(m.Content) - len(elided)
		c.Elided = append(c.Elided, i)
	}
	return c
}

// openingLength returns how many messages come before the first reply.
func (r *rollout) openingLength() int {
	i := slices.IndexFunc(r.messages, func(m Message) bool { return m.Role == RoleAssistant })
	if i < 0 {
		return len(r.messages)
	}
	return i
}

// turnStart returns the index of the reply that starts the nth turn from the end.
func (r *rollout) turnStart(n int) int {
	for i, m := range slices.Backward(r.messages) {
		if m.Role == RoleAssistant {
			if n--; n == 0 {
				return i
			}
		}
	}
	return 0
}

// WithoutThoughts returns what follows the thoughts that a reply begins with.
func WithoutThoughts(reply string) string {
	if _, after, thought := strings.Cut(reply, "</think>"); thought {
		return after
	}
	return reply
}

// summarize asks the model for a summary of all turns but the last two.
func (r *rollout) summarize(ctx context.Context) (trajectory.Compaction, bool) {
	const kept = 2
	c := trajectory.Compaction{Strategy: string(Summarize), From: r.openingLength(), To: r.turnStart(kept)}
	if c.To <= c.From {
		return c, false
	}
	reply, err := r.Model.Complete(ctx, Request{
		Messages: append(slices.Clip(r.messages), Message{Role: RoleUser, Content: adviceSummarize}),
		Tools:    r.format.Offer(r.specs), Sampling: r.Sampling, MaxTokens: r.replyTokens(), Dir: r.dir,
		OnText: func(string) {},
	})
	text := WithoutThoughts(reply.Message.Content)
	if text = strings.TrimSpace(text); err != nil || text == "" {
		r.log.Info("the model did not write a summary", "error", err)
		return c, false
	}
	r.out.Usage.Add(reply.Usage)
	c.Usage = reply.Usage
	c.Summary = summaryFrame + valid(text)
	return c, true
}

// compacted records a compaction and applies it.
func (r *rollout) compacted(c trajectory.Compaction) error {
	if err := r.record(trajectory.CompactionEvent(c)); err != nil {
		return err
	}
	return r.applyCompaction(c)
}

// applyCompaction changes the conversation as c says. c may come from a log and is checked.
func (r *rollout) applyCompaction(c trajectory.Compaction) error {
	before := sizeOf(r.messages)
	messages := slices.Clone(r.messages)
	for _, i := range c.Elided {
		if i < 0 || i >= len(messages) {
			return fmt.Errorf("%w: a compaction of message %d of %d", trajectory.ErrLog, i, len(messages))
		}
		messages[i].Content = fmt.Sprintf(elided, len(messages[i].Content))
	}
	if c.Summary != "" {
		if c.From < 0 || c.To < c.From || c.To > len(messages) {
			return fmt.Errorf("%w: a summary of messages %d to %d of %d", trajectory.ErrLog, c.From, c.To, len(messages))
		}
		messages = slices.Replace(messages, c.From, c.To, Message{Role: RoleUser, Content: c.Summary})
	}
	r.messages, r.sampled = messages, nil
	r.budget.shrink(before, sizeOf(messages))
	return nil
}

func sizeOf(messages []Message) int {
	var b budget
	b.add(messages...)
	return b.pending
}
