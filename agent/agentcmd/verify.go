package agentcmd

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/env/disk"
	"deepswe/env/project"
)

// autoTest is the value of --test that means the project's tests as found in its files.
const autoTest = "auto"

// checkTest finds the tests where --test asks for that.
func (j *job) checkTest() error {
	if j.o.Test != autoTest {
		return nil
	}
	if j.o.Test = project.TestCommand(j.target, project.FindMachine(j.d.Getenv), nil); j.o.Test == "" {
		return cli.Usagef("--test auto finds no tests in %s: name the command that runs them", j.target)
	}
	j.found = true
	return nil
}

// retest finds the tests again, because the sandbox is now known, and what a set-up has added to the repository.
func (j *job) retest() {
	if !j.found {
		return
	}
	if command := project.TestCommand(j.target, j.machine(), j.installedBelow(j.target)); command != "" {
		j.o.Test = command
	}
}

// testCommand matches commands that run tests.
var testCommand = regexp.MustCompile(`(?i)\b(tox|nox|mocha|rspec|phpunit|[\w.-]*test[\w.-]*)\b`)

// testWatch remembers whether the agent ran a test.
type testWatch struct{ ran atomic.Bool }

func (w *testWatch) event(e agent.Event) {
	if e.Kind == agent.EventCall && testCommand.MatchString(commandLine(e.Call)) {
		w.ran.Store(true)
	}
}

// verify runs the tests with and without the patch, and adds the result to the report.
func (j *job) verify(ctx context.Context, report *outcome) {
	trial := j.trial(report)
	if trial.Command == "" {
		switch ranked := j.ranked(); {
		case ranked != nil:
			report.add(rankedVerdict(*ranked))
		case !j.o.demo:
			report.add("fixed but unverified: " + j.unproven() + " (--test CMD runs the tests on the patch)")
		}
		return
	}
	j.watch.show(note("running the tests without the patch and with it: " + trial.Command))
	c, err := j.attempt.Check(ctx, j.task, j.snapshot, trial)
	for name, run := range map[string]*attempt.TestRun{
		"test-base.log": &c.Base, "test-old.log": c.Old, "test-patch.log": &c.Patched,
	} {
		if run != nil && len(run.Log) > 0 {
			if werr := disk.WriteFile(filepath.Join(j.dir, name), run.Log); werr != nil && err == nil {
				err = werr
			}
		}
	}
	if err == nil {
		report.Test = &c
		report.add(j.verdict(&c))
		return
	}
	why := err.Error()
	if ctx.Err() != nil {
		why = "the run was interrupted"
	}
	if ranked := j.ranked(); ranked != nil {
		report.add(rankedVerdict(*ranked))
		report.add("tested no further: " + why)
		return
	}
	report.add("fixed but unverified: " + why)
}

// verdict describes the result of the tests, and of those of a ranking: a patch that breaks one of these is broken.
func (j *job) verdict(c *attempt.Check) string {
	ranked := j.ranked()
	switch {
	case ranked == nil:
		return verdictOn(*c)
	case ranked.Breaks() && c.Verdict != attempt.Broken:
		c.Verdict, c.Broke = attempt.Broken, ranked.Regression.Failed
		return rankedVerdict(*ranked)
	}
	return verdictOn(*c) + "; in the ranking, " + rankedCounts(*ranked)
}

// verdictOn describes the result of the tests in a sentence.
func verdictOn(c attempt.Check) string {
	switch c.Verdict {
	case attempt.Verified:
		return fmt.Sprintf("fixed and verified (%s): %s", c.Command, came(c))
	case attempt.Broken:
		if len(c.Broke) == 0 {
			return fmt.Sprintf("broken elsewhere: %s passes without the patch and fails with it (exit code %d)",
				c.Command, c.Patched.ExitCode)
		}
		return fmt.Sprintf("broken elsewhere (%s): %s passed before: %s", c.Command,
			cli.Plural(len(c.Broke), "failing test"), named(c.Broke))
	}
	counts := fmt.Sprintf("exit code %d", c.Patched.ExitCode)
	if c.Patched.Passed+c.Patched.Failed > 0 { // some runners name no tests
		counts = fmt.Sprintf("%d passed, %d failed, %s", c.Patched.Passed, c.Patched.Failed, counts)
	}
	return fmt.Sprintf("fixed but unverified: %s says the same without the patch and with it (%s); %s", c.Command,
		counts, withoutProof(c))
}

// named names a few tests.
func named(tests []string) string { return namedOf(tests, len(tests)) }

// namedOf names a few of some tests, the first of which are known.
func namedOf(tests []string, all int) string {
	const most = 3
	text := strings.Join(tests[:min(most, len(tests))], ", ")
	if more := all - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
