package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/forge"
	"deepswe/env/repo"
)

// outcome is the result of solve: the last line of --json, and the source of the summary. Its fields and their meaning
// are the contract of version 1.
type outcome struct {
	Type     string `json:"type"` // "result"
	Version  int    `json:"version"`
	Status   string `json:"status"` // a stop reason, or "failed" if there was no rollout
	ExitCode int    `json:"exit_code"`
	// Patch and Trajectory are paths; null if there is no such file.
	Patch      *string  `json:"patch"`
	Trajectory *string  `json:"trajectory"`
	Run        string   `json:"run,omitempty"`
	Steps      int      `json:"steps"`
	Files      []string `json:"files"`
	// Omitted are changes that the patch does not carry, with the reason.
	Omitted []repo.Omission `json:"omitted,omitempty"`
	Tokens  attempt.Tokens  `json:"tokens"`
	Seconds float64         `json:"seconds"`
	// Cost is the cost of the replies by the prices in the configuration; absent if it has none for the model.
	Cost    *float64 `json:"cost,omitempty"`
	Answer  string   `json:"answer,omitempty"`
	Applied bool     `json:"applied"`
	Branch  string   `json:"branch,omitempty"`
	Commit  string   `json:"commit,omitempty"`
	// PullRequest is the one that --pr has opened or updated.
	PullRequest *forge.Published `json:"pull_request,omitempty"`
	Error       string           `json:"error,omitempty"`

	// Detail is a sentence that explains Status, if that is necessary.
	Detail string `json:"detail,omitempty"`
	// Test is the result of the tests: those of --test or, without it, those that the patch brings.
	Test *attempt.Check `json:"test,omitempty"`
	// Next are the commands that go on with the run or deliver its patch.
	Next []string `json:"next,omitempty"`
	// Choice is how one of several attempts was chosen.
	Choice *cli.RaceResult `json:"choice,omitempty"`

	diff  []byte
	shown bool // the user has seen the diff
}

// add adds a sentence to the detail.
func (o *outcome) add(sentence string) {
	o.Detail = strings.TrimPrefix(o.Detail+"; "+sentence, "; ")
}

// conclusion is what becomes of a run, once its patch is known.
type conclusion struct {
	*solving
	plan *plan
	*record
	played
}

// reportResult delivers the patch where a flag asks for it, and returns the result of the attempt. writeErr is the
// failure to write the attempt's files.
func (c *conclusion) reportResult(ctx context.Context, writeErr error) (outcome, error) {
	out := c.Outcome
	patched := len(c.Patch.Diff) > 0
	submitted := patched && out.StopReason == agent.Submitted
	report := outcome{
		Status: string(out.StopReason), ExitCode: stopCode(out.StopReason, patched), Run: c.path, Steps: out.Steps,
		Files: c.Patch.Files, Omitted: c.Patch.Omitted, Answer: out.Answer, Choice: c.choice,
		Detail: explain(c.Result, c.plan.Limits), diff: c.Patch.Diff,
		Tokens:  attempt.TokensOf(out.Usage),
		Seconds: (c.StartTime + out.Elapsed + c.PatchTime).Round(time.Millisecond).Seconds(),
		Patch:   c.attemptFile(attempt.PatchFile), Trajectory: c.attemptFile(attempt.TrajectoryFile),
	}
	if c.plan.Cost != nil {
		report.Cost = new(c.plan.Cost(out.Usage))
	}
	err := c.failureOf(&report, writeErr)
	if err == nil && submitted {
		c.verifyPatch(ctx, &report)
		err = c.journal.Note(noteVerified, verification{Text: verifiedBy(&report)})
	}
	if err == nil && (c.o.apply != "" || c.o.branch != "") {
		if submitted {
			err = c.deliverPatch(ctx, &report)
		} else if report.Patch != nil {
			report.add("not applied, because the agent did not finish (git apply " + *report.Patch + ")")
		}
	}
	if err == nil && c.o.pull != "" && submitted {
		err = c.proposePatch(ctx, &report)
	}
	if err == nil && c.o.demo && out.StopReason == agent.Submitted {
		err = c.checkDemo(ctx)
	}
	report.Next = c.nextSteps(report)
	return report, err
}

// failureOf returns why the attempt has no complete result, if it has none, and sets the report's exit code.
func (c *conclusion) failureOf(report *outcome, writeErr error) error {
	err := errors.Join(c.Err, c.Outcome.Err)
	if c.Err != nil && errors.Is(c.Outcome.Err, c.Err) {
		err = c.Err
	}
	switch {
	case c.PatchErr == nil:
	case c.Outcome.StopReason == agent.Interrupted && errors.Is(c.PatchErr, context.Canceled):
		report.Detail = "stopped a second time: there was no time for the patch"
	default:
		err = errors.Join(err, fmt.Errorf("the patch could not be computed: %w", c.PatchErr))
		report.ExitCode = cli.ExitSandbox
	}
	if writeErr != nil {
		err = errors.Join(err, writeErr)
		report.ExitCode = cli.ExitInternal
	}
	return err
}

// printOutcome prints the result, and returns the error that the exit code comes from.
func (s *solving) printOutcome(report outcome, err error) error {
	if err != nil {
		report.Error = err.Error()
		if report.ExitCode == cli.ExitDone {
			report.ExitCode = cli.ExitCode(err)
		}
	}
	if lost := s.watch.finish(report); lost != nil && !errors.Is(lost, cli.ErrReaderGone) {
		err = errors.Join(err, fmt.Errorf("the result could not be printed: %w", lost))
		if report.ExitCode == cli.ExitDone {
			report.ExitCode = cli.ExitInternal
		}
	}
	if report.ExitCode == cli.ExitDone {
		return nil
	}
	return &cli.ExitError{Code: report.ExitCode, Err: err}
}

// attemptFile returns the path of a file of the attempt; nil if it was not written.
func (c *conclusion) attemptFile(name string) *string {
	path := filepath.Join(c.dir, name)
	if _, err := os.Lstat(path); err != nil || c.dir == "" {
		return nil
	}
	return &path
}

// checkDemo runs the demo's tests in a fresh sandbox, on the patch alone.
func (c *conclusion) checkDemo(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("demo: %w", err)
		}
	}()
	dir, err := disk.MakeScratch("", "check")
	if err != nil {
		return err
	}
	defer disk.RemoveScratch(dir)
	if err := writeDemo(c.d.Demo, dir); err != nil {
		return err
	}
	if err := repo.Apply(ctx, dir, c.Patch.Diff); err != nil {
		return err
	}
	spec := env.Spec{Image: c.plan.at.task.Image, CopyIn: dir, Run: c.plan.Run, Rollout: "demo-check"}
	sb, err := c.plan.Provider.Start(ctx, spec)
	if err != nil {
		return err
	}
	r, err := sb.Run(ctx, env.Command{Line: "go test ./... 2>&1", Timeout: 2 * time.Minute})
	if err = errors.Join(err, sb.Close(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	c.watch.show(checked{Command: "go test ./...", Passed: r.ExitCode == 0, Output: string(r.Stdout.Head)})
	if r.ExitCode != 0 {
		return &cli.ExitError{Code: cli.ExitUnsolved, Err: errors.New("the tests fail after the fix")}
	}
	return nil
}

// explain returns a sentence about why a rollout ended and what can be done about it; empty if the stop reason or an
// error says enough.
func explain(r attempt.Result, l agent.Limits) string {
	out := r.Outcome
	window := "the model's context"
	if l.Context > 0 {
		window = fmt.Sprintf("the context of %d tokens", l.Context)
	}
	switch out.StopReason {
	case agent.MaxSteps:
		return fmt.Sprintf("the limit of %s is reached; --max-steps allows more", cli.Plural(l.Steps, "step"))
	case agent.MaxContext:
		if out.Steps == 0 {
			return fmt.Sprintf("the prompt alone does not fit into %s: serve the model with a longer one, or shorten the issue",
				window)
		}
		return fmt.Sprintf("the conversation has filled %s, or what the endpoint has of it; --context allows more, up to "+
			"what the endpoint serves", window)
	case agent.MaxCost:
		return fmt.Sprintf("the cost limit of %.2f is reached; --max-cost allows more", l.Cost)
	case agent.Timeout:
		return fmt.Sprintf("the time limit of %s is reached; --timeout allows more", l.Wall)
	case agent.FormatErrors:
		other := agent.XML{}.Name()
		if out.Format == other {
			other = agent.Native{}.Name()
		}
		return fmt.Sprintf("the last replies contained no valid call in the format %s; to try the other one: --format %s",
			out.Format, other)
	case agent.Exhausted:
		return "the commands have used up the sandbox's own memory or disk, which ended it; its changes are lost"
	case agent.Stuck:
		return "the model is stuck: it repeats the same calls with the same results"
	case agent.Submitted:
		switch {
		case r.PatchErr != nil || len(r.Patch.Diff) > 0:
		case r.Patch.Ignored > 0:
			return "nothing has changed but files that are ignored or generated: " + cli.Plural(r.Patch.Ignored, "new file")
		case len(r.Patch.Omitted) == 0:
			return "the agent submitted without having changed a file"
		}
	}
	return ""
}

// stopCode is the exit code of a finished rollout.
func stopCode(stop agent.StopReason, patched bool) int {
	switch {
	case stop == agent.Interrupted:
		return cli.ExitInterrupted
	case stop == agent.ModelError:
		return cli.ExitModel
	case stop == agent.SandboxError:
		return cli.ExitSandbox
	case !patched:
		return cli.ExitUnsolved
	case stop == agent.Submitted:
		return cli.ExitDone
	}
	return cli.ExitLimit
}

// nextSteps are the commands that a user may want next.
func (c *conclusion) nextSteps(report outcome) []string {
	name := shellWord(runName(c.d, c.path))
	submitted := report.Status == string(agent.Submitted)
	var next []string
	if !submitted && !c.o.demo {
		next = append(next, "deepswe solve --resume "+name)
	}
	if report.Patch == nil || c.o.demo {
		return next
	}
	if report.Applied || report.Branch != "" {
		return append(next, "deepswe undo "+name)
	}
	where := ""
	if c.settings.Repo == "" { // the clone is gone
		where = " --repo DIR"
	}
	if next = append(next, "deepswe apply "+name+where); submitted {
		branch := cmp.Or(c.o.branch, branchName(c.settings))
		next = append(next, "deepswe branch "+name+" "+shellWord(branch)+where,
			"deepswe solve --continue "+name+` "what else"`)
	}
	return next
}
