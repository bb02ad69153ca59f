package verifycmd

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/verify"
	"deepswe/verify/plot"
	"deepswe/verify/swe"
)

// report writes the run's files and prints the report.
func (e *evaluation) report(outcomes []run.Outcome, complete bool) error {
	r, err := e.swe.Report(outcomes, complete, e.soundness)
	if err != nil {
		return err
	}
	if e.o.model.WantsTokens() {
		left, err := e.swe.WriteRollouts(outcomes, e.d.WriteRollouts)
		if err != nil {
			return err
		}
		if left > 0 {
			e.progress.note("%d rollouts are not in %s, because the endpoint gave no token ids", left, swe.RolloutsFile)
		}
	}
	e.progress.plan("", 0) // the live line has done its work
	if e.o.json {
		_ = e.lines.Print(r)
		return nil
	}
	e.summary(r)
	return nil
}

// summary prints the report for people.
func (e *evaluation) summary(r swe.EvaluationReport) {
	out := e.d.Out
	e.soundnessSummary()
	if r.Attempts == 0 {
		fmt.Fprintln(out, e.dir.Path(swe.ReportFile))
		return
	}
	for _, p := range r.PassAtK {
		fmt.Fprintf(out, "pass@%-4d %5.1f%%  (95%%: %s, %d tasks)\n", p.K, 100*p.Rate, plot.Interval(p.Low, p.High), p.Tasks)
	}
	for _, c := range r.Contexts {
		fmt.Fprintf(out, "context   %5s  %d solved of %d", swe.ContextName(c.Context), c.Solved, c.Finished)
		if len(c.PassAtK) > 0 {
			first := c.PassAtK[0]
			fmt.Fprintf(out, ", pass@1 %s (95%%: %s)", plot.Percent(first.Rate), plot.Interval(first.Low, first.High))
		}
		fmt.Fprintf(out, ", %d ran out of context\n", c.Full)
	}
	fmt.Fprintf(out, "attempts  %d solved of %d", r.Solved, r.Finished)
	if r.Resolved != r.Solved {
		fmt.Fprintf(out, ", %d resolved by the harness's rules", r.Resolved)
	}
	if r.Failed > 0 {
		fmt.Fprintf(out, ", %d failed", r.Failed)
	}
	if r.Missing > 0 {
		fmt.Fprintf(out, ", %d not made", r.Missing)
	}
	if len(r.Unconfirmed) > 0 {
		fmt.Fprintf(out, ", rewards of %d tasks confirmed by no canary", len(r.Unconfirmed))
	}
	if r.Varied > 0 {
		fmt.Fprintf(out, "\nvariants  %d of %d solutions fail tests with other values in them", r.Overfits, r.Varied)
	}
	fmt.Fprintf(out, "\ntasks     %d never, %d sometimes, %d always solved\n",
		len(r.Split.Never), len(r.Split.Sometimes), len(r.Split.Always))
	fmt.Fprint(out, "ends     ")
	for _, reason := range slices.Sorted(maps.Keys(r.StopReasons)) {
		fmt.Fprintf(out, " %s %d", reason, r.StopReasons[reason])
	}
	s := r.Seconds
	fmt.Fprintf(out, "\ntokens    %s read, %s written, in %d steps\n",
		cli.Count(r.Tokens.Prompt), cli.Count(r.Tokens.Completion), r.Steps)
	if s.Total > 0 {
		fmt.Fprintf(out, "time      %.0f%% model, %.0f%% sandbox, %.0f%% grading, %.0f%% waiting; %s a rollout\n",
			100*s.Model/s.Total, 100*s.Environment/s.Total, 100*s.Grading/s.Total, 100*s.Queue/s.Total,
			cli.Clock(secondsOf(s.Total/float64(max(1, r.Finished)))))
	}
	fmt.Fprintln(out, e.dir.Path(swe.ReportFile))
}

// soundnessSummary prints what the soundness check has found.
func (e *evaluation) soundnessSummary() {
	s := e.soundness
	if s == nil {
		return
	}
	fmt.Fprintf(e.d.Out, "soundness %d of %d tasks are sound\n", s.Sound, len(s.Results))
	for _, list := range []struct {
		says  string
		tasks []string
	}{
		{"solved without any change", s.PassesEmpty}, {"not solved by the reference solution", s.FailsGold},
		{"without a reference solution", s.NoGold}, {"cannot be graded", s.Ungradable},
		{"not graded, because of an infrastructure failure", s.Failed},
		{"not canaried: none of their tests can be made to fail", s.NotCanaried},
		{"with the canary off: their solutions are not confirmed either", s.CanaryOff},
		{"with less evidence for a reward than is required (--evidence)", s.WeakEvidence},
	} {
		if len(list.tasks) > 0 {
			fmt.Fprintf(e.d.Out, "  %d %s: %s\n", len(list.tasks), list.says, cli.Plain(strings.Join(list.tasks, " ")))
		}
	}
	e.mutationSummary()
}

// mutationSummary prints the tasks whose tests accept most of the wrong solutions.
func (e *evaluation) mutationSummary() {
	const most = 10
	var tried, killed int
	for _, t := range e.soundness.Results {
		if t.Mutation != nil {
			tried, killed = tried+t.Mutation.Mutants, killed+t.Mutation.Killed
		}
	}
	if tried == 0 {
		return
	}
	fmt.Fprintf(e.d.Out, "mutants   %d of %d wrong solutions fail the tests (%.0f%%)\n", killed, tried,
		100*float64(killed)/float64(tried))
	weak := e.soundness.WeakestTests()
	for _, t := range weak[:min(most, len(weak))] {
		fmt.Fprintf(e.d.Out, "  %d of %d fail in %s; the first that passes: %s\n", t.Mutation.Killed, t.Mutation.Mutants,
			cli.Plain(t.Task), cli.Plain(strings.ReplaceAll(strings.TrimSpace(t.Mutation.Survivors[0]), "\n", " ")))
	}
	if left := len(weak) - most; left > 0 {
		fmt.Fprintf(e.d.Out, "  and %d more, in %s\n", left, e.dir.Path(swe.SoundnessFile))
	}
}

// print prints a rollout as a line of JSON.
func (e *evaluation) print(o run.Outcome) {
	_ = e.lines.Print(struct {
		Type    string `json:"type"`
		Version int    `json:"version"`
		Task    string `json:"task"`
		// Context is the context length of an attempt at a smaller one than the run's own.
		Context int `json:"context,omitempty"`
		swe.AttemptResult
		Suspicious []verify.SuspicionKind `json:"suspicious,omitempty"`
		Error      string                 `json:"error,omitempty"`
		Seconds    run.Times              `json:"seconds"`
	}{"rollout", 1, o.Task, swe.ContextOf(o.Job), swe.NewAttemptResult(o), swe.DetailOf(o).Suspicious, o.Err, o.Times})
}

func secondsOf(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
