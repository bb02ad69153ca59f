package agent

import (
	"context"
	"fmt"
	"iter"
	"maps"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// Comparison is one recorded call beside what it gives now.
type Comparison struct {
	// Step counts the recorded replies from 1.
	Step int
	// Call is what ran now. Paths of the recorded sandbox have become paths of this one.
	Call tools.Call
	// Recorded is the result then, and the zero Result where none was recorded; Got is the result now.
	Recorded trajectory.Result
	Got      tools.Result
	// Same tells that both are equal but for what differs between any two runs: times, durations, addresses, temporary
	// files, and the place of the repository.
	Same bool
}

// Rerun runs the calls of a recorded trajectory again, in order, in a fresh sandbox, and compares the results. What was
// refused then is left out. It ends with the first error, which means that the sandbox failed or ctx ended.
func Rerun(ctx context.Context, rec *trajectory.Recording, t Tools, sb tools.Sandbox) iter.Seq2[Comparison, error] {
	return func(yield func(Comparison, error) bool) {
		from, to := recordedDir(rec), sb.Dir()
		specs := t.Specs()
		for i, turn := range rec.Turns {
			results := recordedResults(turn)
			for n, a := range recordedActions(rec.Header.Format, specs, turn) {
				if !a.runs() {
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
					yield(c, fmt.Errorf("run step %d again: %s: %w", c.Step, c.Call.Name, err))
					return
				}
				c.Same = same(c.Recorded, c.Got, from, to)
				if !yield(c, nil) || c.Got.Finished {
					return
				}
			}
		}
	}
}

// recordedActions reads a recorded reply as it was read then. Of another agent's reply only the calls are known.
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

func same(recorded trajectory.Result, got tools.Result, from, to string) bool {
	if recorded.ExitCode != nil && got.ExitCode != nil && *recorded.ExitCode != *got.ExitCode {
		return false
	}
	return recorded.TimedOut == got.TimedOut && sameOutput(recorded.Output, relocate(valid(got.Output), to, from))
}
