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

// ErrReplayOrder means that a recorded model was asked in a conversation other than its own.
var ErrReplayOrder = errors.New("the conversation differs from the recorded one")

// ReplayModel answers with the replies of a recorded trajectory: the model of the demo, of tests and of bug reports.
// The request alone determines the reply, so one ReplayModel may serve many rollouts at once.
type ReplayModel struct {
	replies []Reply
	dir     string // of the recorded repository
}

var _ Model = (*ReplayModel)(nil)

// NewReplayModel takes the replies of a recording.
func NewReplayModel(rec *trajectory.Recording) *ReplayModel {
	m := &ReplayModel{dir: recordedDir(rec)}
	for _, t := range rec.Turns {
		r := t.Reply
		r.Elapsed, r.Calls, r.Problem = 0, nil, "" // none of it is the model's
		m.replies = append(m.replies, r)
	}
	return m
}

// Complete returns the recorded reply that follows the replies in the request, with the path of the recorded repository
// replaced by Request.Dir unless that is empty. It fails with [ErrReplayExhausted] after the last reply, and with
// [ErrReplayOrder] where the last reply in the request is not the recorded one.
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
		own := *reply.Tokens // a rollout shares the memory of its prompts
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

// recordedDir is where the repository was in the recorded sandbox; empty where that is unknown.
func recordedDir(rec *trajectory.Recording) string {
	dir, _ := rec.Header.Extra[extraDir].(string)
	return dir
}

// relocate replaces the directory from by to wherever it is a whole path or the beginning of one. It does nothing where
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

// partOfName reports whether the byte continues a file name. A dot may also end a sentence, and does not count.
func partOfName(c byte) bool {
	return c == '_' || c == '-' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// Comparison is one recorded call beside its result now.
type Comparison struct {
	// Step counts the recorded replies from 1.
	Step int
	// Call is what ran now. Paths of the recorded sandbox have become paths of this one.
	Call tools.Call
	// Recorded is the result then, and the zero Result where none was recorded; Got is the result now.
	Recorded trajectory.Result
	Got      tools.Result
	// Same is set where both are equal except for what differs between any two runs: times, durations, addresses,
	// temporary files, and the repository's directory.
	Same bool
}

// Rerun runs the calls of a recorded trajectory again, in order, in a fresh sandbox, and compares the results. Calls
// that were refused then are left out. It ends with the first error, which means that the sandbox failed or ctx ended.
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
					break // what follows in the reply was not run; what follows it is another instruction
				}
			}
		}
	}
}

// recordedActions parses a recorded reply as it was parsed then. Of another agent's reply only the calls are known.
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

// recordedResults are the results of a turn in the order of its calls.
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
