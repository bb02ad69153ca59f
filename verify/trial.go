package verify

import (
	"bytes"
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/repo"
	"deepswe/verify/canary"
	"deepswe/verify/harness"
	"deepswe/verify/testlog"
)

// trial is one run of the tests with a patch, in a sandbox of its own.
type trial struct {
	*Evaluator
	task  env.Task
	patch []byte
	limit time.Duration
	// strict takes only the changes that a fix consists of, and makes the script end with the tests' exit status.
	strict bool
	// mixing, if not nil, makes some of the tests wrong.
	mixing *mixing
	// moved is set if the reward has another path than in the task.
	moved bool
	// alone is set if there is no other trial of the patch.
	alone bool

	sb env.Sandbox
	v  Evaluation
	// patchPath is the path of the patch while it is applied. It is different in each trial, because not every sandbox
	// has a private /tmp.
	patchPath string
	// ran is how long the script ran, exit how it ended.
	ran  time.Duration
	exit ending
	// earlier are the repository's tests that others replace.
	earlier []canary.Source
	// tampered are the files used by the tests that were changed before the tests ran, by path.
	tampered map[string]string
	// mixed is what was made wrong, found what the run has shown about it.
	mixed mixture
	found findings
}

// run runs the trial. Everything that the patch causes is recorded in v; an error is an infrastructure failure.
func (t *trial) run(ctx context.Context) error {
	if t.strict {
		t.task, t.moved = elsewhere(t.task)
	}
	if err := t.start(ctx); err != nil {
		return err
	}
	telltales, ok, err := t.takePatch(ctx)
	if !ok {
		return err
	}
	err = t.test(ctx)
	t.v.Suspicious = append(t.v.Suspicious, telltales...)
	return err
}

// start starts a pristine sandbox for the trial, and removes the previous one, if any.
func (t *trial) start(ctx context.Context) error {
	if t.sb != nil {
		old := t.sb
		t.sb = nil
		if err := old.Close(ctx); err != nil {
			return fmt.Errorf("remove sandbox: %w", err)
		}
	}
	s := t.task.Spec()
	s.Prepare, s.Network, s.Run, s.Grading = t.task.Tests.Prepare, t.v.Network, t.Run, true
	if t.strict && t.task.Tests.RewardFile == "" && !needsHistory(t.task) {
		s.Prepare = append(slices.Clip(s.Prepare), repo.Hygiene("")) // the history may contain the solution
	}
	var err error
	if t.sb, err = t.Provider.Start(ctx, s); err != nil {
		t.sb = nil
		return fmt.Errorf("start sandbox: %w", err)
	}
	return nil
}

// install writes files that the patch must not control, replacing whatever is there. ok is false if the patch has made
// that impossible.
func (t *trial) install(ctx context.Context, files []file) (ok bool, err error) {
	err = writeFiles(ctx, t.sb, files)
	if err == nil || env.IsInfrastructure(ctx, err) {
		return err == nil, err
	}
	if err := t.needRoom(ctx); err != nil {
		return false, err
	}
	t.v.Status, t.v.Detail = Unresolved, "with the patch, the tests cannot be put in place: "+err.Error()
	return false, nil
}

// test runs the script and reads its verdict.
func (t *trial) test(ctx context.Context) error {
	if err := t.needRoom(ctx); err != nil {
		return err
	}
	if err := t.clearRewards(ctx); err != nil {
		return err
	}
	r, ended, err := t.runScript(ctx)
	defer t.outOfDisk()
	switch {
	case err != nil || !ended:
		return err
	case t.task.Tests.RewardFile != "" && r.OutOfDisk: // the script was ended before it could give a reward
		return nil
	case t.task.Tests.RewardFile != "":
		t.readWrong()
		return t.readRewards(ctx, r)
	}
	t.grade()
	t.found = t.mixed.judge(t.exit, t.v.Tests)
	return nil
}

// grade reads the log.
func (t *trial) grade() {
	v := &t.v
	evidence := Evidence{Log: v.Log, Thorough: t.strict}
	if t.exit.ofTests {
		evidence.ExitCode = &t.exit.code
	}
	g, err := GradeLog(t.right(evidence), evidence)
	if err != nil {
		v.Status, v.Detail = Ungradable, err.Error()
		if g, ok := errors.AsType[*GradingError](err); ok {
			v.Void = g.Reason == UnknownParser || g.Reason == UnsuitedParser || g.Reason == UnknownEvalType
		}
		return
	}
	if g.Resolved && t.exit.signal != "" {
		g.Resolved = false
		g.Suspicious = append(g.Suspicious, Suspicion{KilledScript, "the script that runs the tests was ended by " +
			t.exit.signal})
	}
	v.Report, v.Suspicious, v.Tests = &g.Report, g.Suspicious, g.Results
	v.Status = Unresolved
	if g.Report.Resolved {
		v.Status = Resolved
	}
	if g.Resolved {
		v.Reward = 1
	}
	if tests := g.Report.Tests; tests != nil {
		v.Fixed, v.Broken = tests.FailToPass.Success, tests.PassToPass.Failure
	}
}

// classify searches the logs of a task that was not solved for a failure of the environment, as the harness does.
func (v *Evaluation) classify() {
	if v.Status == Resolved || v.Status == NoPatch {
		return
	}
	if class, found := harness.Classify(testlog.Decode(v.Log) + "\n" + string(v.instanceLog())); found {
		v.InfraReason, v.InfraTier = class.Reason, class.Tier
	}
}

// beginTrial prepares a trial to be run by this evaluator.
func (e *Evaluator) beginTrial(t *trial) {
	t.Evaluator, t.v = e, e.newEvaluation(t.task, t.patch, t.limit)
	t.patchPath = "/tmp/deepswe-" + crand.Text() + ".diff"
}

// runTrial runs one trial, including the start and the removal of its sandbox.
func (e *Evaluator) runTrial(ctx context.Context, t *trial) (err error) {
	e.beginTrial(t)
	if err := Gradable(t.task); err != nil {
		t.v.Status, t.v.Void, t.v.Detail = Ungradable, true, err.Error()
		return nil
	}
	defer func() {
		t.v.classify()
		if t.sb != nil {
			err = errors.Join(err, t.sb.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err = t.run(ctx); errors.Is(err, env.ErrExhausted) {
		t.v.Status, t.v.Reward, t.v.Detail = Unresolved, 0, "the sandbox ended: its own memory or disk was used up"
		err = nil
	}
	return err
}

// needsHistory reports whether a task's script uses a commit other than the base commit.
func needsHistory(t env.Task) bool {
	for line := range strings.Lines(t.Tests.Script) {
		known := strings.Contains(line, "HEAD") || t.BaseCommit != "" && strings.Contains(line, t.BaseCommit)
		if historyCommands().MatchString(line) && !known && !strings.HasPrefix(line, "+") && !strings.HasPrefix(line, " ") {
			return true
		}
	}
	return false
}

// historyCommands match git commands that name a commit.
var historyCommands = env.Pattern(
	`\bgit\b.*\b(checkout|show|restore|reset|cherry-pick|merge|rebase|worktree|archive|fetch|switch|log)\s+[^-\s|;&]`)

// instanceLog describes the evaluation, with the words that the harness searches for.
func (v Evaluation) instanceLog() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "task %s, graded by %s\n", v.Task, v.Grader)
	switch {
	case v.Status == PatchFailed:
		fmt.Fprintf(&b, "%s:\n%s\n", patchFailed, v.Detail)
	case v.Applied != "":
		fmt.Fprintf(&b, "%s: %s\n", patchApplied, v.Applied)
	}
	if v.Status != PatchFailed && v.Detail != "" {
		fmt.Fprintln(&b, v.Detail)
	}
	fmt.Fprintf(&b, "result: %s\n", v.Status)
	return b.Bytes()
}

const patchApplied = ">>>>> Applied Patch"

// needRoom returns an infrastructure failure if the disk is full before the tests have begun, because their failures
// would say nothing about the patch. It ignores other reasons why a file cannot be written.
func (t *trial) needRoom(ctx context.Context) error {
	probe := make([]byte, 64<<10)
	for i := range probe {
		probe[i] = byte(i) // a file of zeros may take no space
	}
	var written []string
	var full error
	for _, dir := range []string{path.Dir(t.patchPath), t.sb.Dir()} {
		name := dir + "/.deepswe-room-" + path.Base(t.patchPath)
		_, err := t.sb.Write(ctx, name, probe, env.WriteOptions{})
		switch {
		case err == nil:
			written = append(written, name)
		case errors.Is(err, env.ErrNoSpace):
			full = fmt.Errorf("%w: the disk of the sandbox is full before the tests begin: nothing can be written to %s: "+
				"to fix: free space on the machine that runs the sandbox (deepswe clean), or give it more (--disk)",
				env.ErrInfrastructure, dir)
		case env.IsInfrastructure(ctx, err):
			return fmt.Errorf("look for room on the disk: %w", err)
		}
	}
	if len(written) > 0 {
		r, err := t.sb.Run(ctx, env.Command{Line: "rm -f -- " + env.ShellQuote(written...), Timeout: applyTimeout})
		if err == nil && r.ExitCode != 0 {
			err = errors.New(output(r))
		}
		if err != nil {
			return errors.Join(full, fmt.Errorf("remove a file: %w", err))
		}
	}
	return full
}

// outOfDisk sets the reward to 0 if the tests wrote more than a sandbox may. The harness's verdict on the log does not
// change.
func (t *trial) outOfDisk() {
	v := &t.v
	if !v.OutOfDisk {
		return
	}
	v.Status = cmp.Or(v.Status, Unresolved)
	v.Reward, v.Detail = 0, "the tests wrote more to the disk than a sandbox may (see --disk), and were ended"
}

// Gradable returns an error that wraps ErrUngradable if no patch for the task can be graded, whatever the tests print.
func Gradable(t env.Task) error {
	fail := func(reason Reason, err error) error { return &GradingError{t.ID, reason, err} }
	if t.Tests.Script == "" {
		return fail(NoTests, errors.New("the task has no test script"))
	}
	if t.Tests.RewardFile != "" {
		return nil
	}
	if _, err := testlog.Lookup(t.Tests.Parser); err != nil {
		return fail(UnknownParser, err)
	}
	if t.Tests.Expected == nil && t.Tests.EvalType != PassAndFail && t.Tests.EvalType != FailOnly {
		return fail(UnknownEvalType, fmt.Errorf("%w %q", errEvalType, t.Tests.EvalType))
	}
	return nil
}
