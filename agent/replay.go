package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// ErrReplayOrder reports that a recorded model was asked in a conversation that differs from the recorded one.
var ErrReplayOrder = errors.New("the conversation differs from the recorded one")

// ReplayModel answers with the replies of a recorded trajectory, for the demo, tests and bug reports. The reply
// depends only on the request, so one ReplayModel may serve many rollouts concurrently.
type ReplayModel struct {
	replies []Reply
	dir     string // the recorded repository's path
}

var _ Model = (*ReplayModel)(nil)

// NewReplayModel returns a model with the replies of a recording.
func NewReplayModel(rec *trajectory.Recording) *ReplayModel {
	m := &ReplayModel{dir: recordedDir(rec)}
	for _, t := range rec.Turns {
		r := t.Reply
		r.Elapsed, r.Calls, r.Problem = 0, nil, "" // these do not come from the model
		m.replies = append(m.replies, r)
	}
	return m
}

// Complete returns the recorded reply that follows the replies in the request. If Request.Dir is not empty, it
// replaces the recorded repository's path in the reply. It returns [ErrReplayExhausted] after the last reply, and
// [ErrReplayOrder] if the last reply in the request differs from the recorded one.
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
	if next > 0 && next <= len(m.replies) && last.Content != relocate(m.replies[next-1].Message.Content, m.dir, r.Dir) {
		return Reply{}, fmt.Errorf("%w: its reply %d differs", ErrReplayOrder, next)
	}
	if next >= len(m.replies) {
		return Reply{}, fmt.Errorf("%w: it has %d", ErrReplayExhausted, len(m.replies))
	}
	reply := m.replies[next]
	if reply.Tokens != nil {
		own := *reply.Tokens // a copy, because a rollout changes its samples (see SharePrompts)
		reply.Tokens = &own
	}
	said := &reply.Message
	said.Content = relocate(said.Content, m.dir, r.Dir)
	said.Reasoning = relocate(said.Reasoning, m.dir, r.Dir)
	said.ToolCalls = slices.Clone(said.ToolCalls)
	for i := range said.ToolCalls {
		said.ToolCalls[i].Arguments = relocate(said.ToolCalls[i].Arguments, m.dir, r.Dir)
	}
	if r.OnText != nil {
		r.OnText(said.Reasoning + said.Content)
	}
	return reply, nil
}

// recordedDir returns the repository's path in the recorded sandbox, or "" if it is unknown.
func recordedDir(rec *trajectory.Recording) string {
	dir, _ := rec.Header.Extra[extraDir].(string)
	return dir
}

// relocate replaces the directory from by to wherever it is a whole path or the start of one. It does nothing if
// either is empty.
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

// partOfName reports whether the byte continues a file name. A dot does not count, because it may end a sentence.
func partOfName(c byte) bool {
	return c == '_' || c == '-' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// Comparison is a recorded call with its recorded result and its result when it was run again.
type Comparison struct {
	// Step is the number of the recorded reply, from 1.
	Step int
	// Call is the call that was run again, with the recorded sandbox's paths replaced by this one's.
	Call tools.Call
	// Recorded is the recorded result, zero if there is none; Got is the new one.
	Recorded trajectory.Result
	Got      tools.Result
	// Same reports whether both results are equal, except for what differs between any two runs: times, durations,
	// addresses, temporary files, and the repository's path.
	Same bool
}

// Rerun runs the calls of a recorded trajectory again, in order, in a fresh sandbox, and compares the results. It
// skips calls that were refused. The sequence ends with the first error, which means that the sandbox failed or ctx
// ended.
func Rerun(
	ctx context.Context, rec *trajectory.Recording, t Tools, sb tools.Sandbox,
) iter.Seq2[Comparison, error] {
	return func(yield func(Comparison, error) bool) {
		from, to := recordedDir(rec), sb.Dir()
		specs := t.Specs()
		for i, turn := range rec.Turns {
			results := recordedResults(turn)
			for n, a := range recordedActions(rec.Header.Format, specs, turn) {
				refused := n < len(results) && results[n].Failed &&
					(a.Call.Name == finishTool || strings.HasPrefix(results[n].Output, adviceDeclined))
				if !a.runs() || refused {
					continue
				}
				c := Comparison{Step: i + 1, Call: a.Call}
				for key, value := range a.Call.Args {
					c.Call.Args[key] = relocate(value, from, to)
				}
				if n < len(results) {
					c.Recorded = results[n]
				}
				var err error
				if c.Got, err = t.Run(ctx, sb, c.Call); err != nil {
					yield(c, fmt.Errorf("rerun step %d: %s: %w", c.Step, c.Call.Name, err))
					return
				}
				c.Same = same(c.Recorded, c.Got, from, to)
				if !yield(c, nil) {
					return
				}
				if c.Got.Finished {
					break // the rest of the reply was not run
				}
			}
		}
	}
}

// recordedActions parses a recorded reply as it was parsed originally. For a reply of another agent, only the calls
// are known.
func recordedActions(format string, specs []tools.Spec, turn trajectory.Turn) []Action {
	if f, ours := FormatNamed(format); ours {
		return read(f, specs, turn.Reply).Actions
	}
	actions := make([]Action, len(turn.Reply.Calls))
	for i, c := range turn.Reply.Calls {
		actions[i].Call = tools.Call{ID: c.ID, Name: c.Name, Args: maps.Clone(c.Args)}
	}
	return actions
}

func recordedResults(turn trajectory.Turn) []trajectory.Result {
	var all []trajectory.Result
	for _, o := range turn.Observations {
		all = append(all, o.Results...)
	}
	return all
}

func same(recorded trajectory.Result, got tools.Result, from, to string) bool {
	if recorded.ExitCode != nil && got.ExitCode != nil && *recorded.ExitCode != *got.ExitCode {
		return false
	}
	return recorded.TimedOut == got.TimedOut && sameOutput(recorded.Output, relocate(valid(got.Output), to, from))
}
