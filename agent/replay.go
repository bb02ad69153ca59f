package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"deepswe/agent/trajectory"
)

// ErrReplayOrder says that a recorded model was asked in a conversation other than its own.
var ErrReplayOrder = errors.New("the conversation is not the recorded one")

// ReplayModel answers with the replies of a recorded trajectory: the model of the demo, of tests and of bug reports. Which
// reply it gives follows from the conversation alone, so one ReplayModel may serve many rollouts at once.
type ReplayModel struct {
	replies []Reply
}

var _ Model = (*ReplayModel)(nil)

// NewReplayModel takes the replies of a recording. Where dir is not empty, the place that the repository had in the
// recorded sandbox is replaced by it in everything that the model says.
func NewReplayModel(rec *trajectory.Recording, dir string) *ReplayModel {
	m := &ReplayModel{}
	from := recordedDir(rec)
	for r := range rec.Replies() {
		r.Elapsed = 0 // it takes no time now
		r.Calls, r.Problem = nil, ""
		r.Message.Content = relocate(r.Message.Content, from, dir)
		r.Message.Reasoning = relocate(r.Message.Reasoning, from, dir)
		r.Message.ToolCalls = slices.Clone(r.Message.ToolCalls)
		for i := range r.Message.ToolCalls {
			c := &r.Message.ToolCalls[i]
			c.Arguments = relocate(c.Arguments, from, dir)
		}
		m.replies = append(m.replies, r)
	}
	return m
}

// Complete returns the recorded reply that follows the replies in the request. It fails with [ErrReplayExhausted] behind
// the last one, and with [ErrReplayOrder] where the last reply in the request is not the recorded one.
func (m *ReplayModel) Complete(ctx context.Context, r Request) (Reply, error) {
	if err := ctx.Err(); err != nil {
		return Reply{}, context.Cause(ctx)
	}
	next := 0
	var last Message
	for _, message := range r.Messages {
		if message.Role == RoleAssistant {
			next++
			last = message
		}
	}
	if next > 0 && next <= len(m.replies) && last.Content != m.replies[next-1].Message.Content {
		return Reply{}, fmt.Errorf("%w: its reply %d differs", ErrReplayOrder, next)
	}
	if next >= len(m.replies) {
		return Reply{}, fmt.Errorf("%w: it has %d", ErrReplayExhausted, len(m.replies))
	}
	reply := m.replies[next]
	if reply.Tokens != nil {
		own := *reply.Tokens // a rollout goes on to share the memory of its prompts
		reply.Tokens = &own
	}
	if r.OnText != nil {
		r.OnText(reply.Message.Reasoning + reply.Message.Content)
	}
	return reply, nil
}

// recordedDir is where the repository stood in the recorded sandbox; empty where that is not known.
func recordedDir(rec *trajectory.Recording) string {
	dir, _ := rec.Header.Extra[extraDir].(string)
	return dir
}

// relocate replaces the directory from by to wherever it stands as a whole path or at the beginning of one.
func relocate(text, from, to string) string {
	if from == "" || to == "" || from == to {
		return text
	}
	var b strings.Builder
	done := 0
	for {
		i := strings.Index(text[done:], from)
		if i < 0 {
			b.WriteString(text[done:])
			return b.String()
		}
		start, end := done+i, done+i+len(from)
		b.WriteString(text[done:start])
		if start > 0 && partOfName(text[start-1]) || end < len(text) && partOfName(text[end]) {
			b.WriteString(from)
		} else {
			b.WriteString(to)
		}
		done = end
	}
}

// partOfName tells whether the byte goes on with a file's name. A dot may end a sentence as well, and does not count.
func partOfName(c byte) bool {
	return c == '_' || c == '-' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
