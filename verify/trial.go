package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"time"

	"deepswe/env"
	"deepswe/env/repo"
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
	// planted are files that tests run with and that were changed before them, by path.
	planted map[string]string
	// mixed is what was made wrong, found what the run has shown about it.
	mixed mixture
	found findings
}

// run runs the trial. Everything that the patch causes is recorded in v; an error is an infrastructure failure.
func (t *trial) run(ctx context.Context) error {
	if t.strict && movable(t.task) {
		t.task, t.moved = elsewhere(t.task), true
	}
	if err := t.start(ctx); err != nil {
		return err
	}
	before, changes, err := t.applied(ctx)
	if err != nil || t.v.Applied == "" {
		return err
	}
	var instead []file
	if len(changes) > 0 {
		t.v.Withheld, instead = before.withhold(changes, t.reaches)
	}
	telltales := t.telltales(changes)
	if t.strict {
		if ok, err := t.install(ctx, instead); !ok {
			return err
		}
		if ok, err := t.takeVendored(ctx, changes); !ok {
			return err
		}
	}
	err = t.test(ctx)
	t.v.Suspicious = append(t.v.Suspicious, telltales...)
	return err
}

// applied applies the patch, and returns the repository before it and what it has changed. If it does not apply, v says
// so.
func (t *trial) applied(ctx context.Context) (before *snapshot, changes []change, err error) {
	if before, err = t.look(ctx); err != nil {
		return nil, nil, err
	}
	command, failure, err := t.apply(ctx)
	if err != nil {
		return nil, nil, err
	}
	if t.v.Applied = command; command == "" {
		t.v.Status, t.v.Detail = PatchFailed, failure
		return nil, nil, t.needRoom(ctx)
	}
	changes, err = t.changes(ctx, before)
	return before, changes, err
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

// ownTests returns the grader's own files, by their paths.
func (t *trial) ownTests() map[string]file {
	files := map[string]file{}
	for name, text := range t.task.Tests.Files {
		files[t.at(name)] = file{kind: env.KindFile, mode: 0o755, data: []byte(text)}
	}
	return files
}

// at returns the path of a file that may be named from the repository's directory.
func (t *trial) at(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(t.sb.Dir(), name)
}

// installTests writes files with tests.
func (t *trial) installTests(ctx context.Context, tests map[string]file) (ok bool, err error) {
	var files []file
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		f := tests[name]
		if f.name, err = filepath.Rel(t.sb.Dir(), name); err == nil && filepath.IsLocal(f.name) {
			files = append(files, f)
			continue
		}
		if _, err := t.sb.Write(ctx, name, f.data, env.WriteOptions{Parents: true, Mode: f.mode}); err != nil {
			return false, fmt.Errorf("write %s: %w", name, err)
		}
	}
	return t.install(ctx, files)
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

// parser returns the name of the parser for the tests' output; empty if none is known.
func (t *trial) parser() string {
	if t.task.Tests.RewardFile != "" {
		return parserOf(shellText(t.task))
	}
	return t.task.Tests.Parser
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

// fail makes withheld tests that got other values fail, in the verdict and in its lists.
func (t *trial) fail(other map[string]string) {
	for _, c := range t.mixed.set.Canaries {
		says, ok := other[c.Mutation]
		if !ok {
			continue
		}
		v := &t.v
		if v.Reward = 0; v.Status == Resolved {
			v.Status, v.Detail = Unresolved, says
		}
		if v.Report == nil || v.Report.Tests == nil {
			continue
		}
		report, tests := *v.Report, *v.Report.Tests
		for _, list := range []struct {
			ids  []string
			into *harness.TestLists
		}{{t.task.Tests.FailToPass, &tests.FailToPass}, {t.task.Tests.PassToPass, &tests.PassToPass}} {
			for _, id := range list.ids {
				if slices.Contains(c.Tests, id) {
					list.into.Failure = append(slices.Clip(list.into.Failure), id)
				}
			}
		}
		report.Tests, report.Resolved = &tests, false
		v.Report, v.Broken = &report, tests.PassToPass.Failure
	}
}

// right returns the task by which the right tests are graded.
func (t *trial) right(e Evidence) env.Task {
	if len(t.mixed.wrong) == 0 || t.task.Tests.Expected == nil {
		return t.mixed.without(t.task, nil)
	}
	parse, err := e.parser(t.task.Tests.Parser)
	if err != nil {
		return t.task
	}
	r, err := parse(testlog.Decode(t.v.Log), testlog.Task{ID: t.task.ID, Version: t.task.Tests.Version})
	if err != nil {
		return t.task
	}
	return t.mixed.without(t.task, r)
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

// rewardReport returns the report on a task that the harness cannot grade.
func rewardReport(t env.Task, s Status) *harness.Report {
	return &harness.Report{ID: t.ID, PatchExists: true, PatchApplied: true, Resolved: s == Resolved}
}
