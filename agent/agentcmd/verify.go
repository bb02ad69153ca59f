package agentcmd

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/env/disk"
	"deepswe/env/project"
)

// autoTest is the value of --test that means the project's tests as found in its files.
const autoTest = "auto"

// testCommand is the command that runs the project's tests. One that was found is for the folder that the user is in.
type testCommand struct {
	line  string // empty if there is none
	found bool
}

// findTest returns the command of --test, which finds it where the flag asks for that.
func (s *solving) findTest(target string) (testCommand, error) {
	if s.o.Test != autoTest {
		return testCommand{line: s.o.Test}, nil
	}
	line := project.TestCommand(target, project.FindMachine(s.d.Getenv), nil)
	if line == "" {
		return testCommand{}, cli.Usagef("--test auto finds no tests in %s: name the command that runs them", target)
	}
	return testCommand{line, true}, nil
}

// findAgain finds the tests again, because the sandbox is now known, and what a set-up has added to the repository.
func (t testCommand) findAgain(at *place) testCommand {
	if t.found {
		t.line = cmp.Or(project.TestCommand(at.target, at.machine, at.installedBelow(at.target)), t.line)
	}
	return t
}

// runsTests matches commands that run tests.
var runsTests = regexp.MustCompile(`(?i)\b(tox|nox|mocha|rspec|phpunit|[\w.-]*test[\w.-]*)\b`)

// verify runs the tests with and without the patch, and adds the result to the report.
func (c *conclusion) verify(ctx context.Context, report *outcome) {
	trial, ranked := c.trial(report), c.ranked()
	if trial.Command == "" {
		switch {
		case ranked != nil:
			report.add(rankedVerdict(*ranked))
		case !c.o.demo:
			report.add("fixed but unverified: " + c.unproven() + " (--test CMD runs the tests on the patch)")
		}
		return
	}
	c.watch.show(note("running the tests without the patch and with it: " + trial.Command))
	check, err := c.plan.Check(ctx, c.plan.at.task, c.plan.at.snapshot, trial)
	for name, run := range map[string]*attempt.TestRun{
		"test-base.log": &check.Base, "test-old.log": check.Old, "test-patch.log": &check.Patched,
	} {
		if run != nil && len(run.Log) > 0 {
			if werr := disk.WriteFile(filepath.Join(c.dir, name), run.Log); werr != nil && err == nil {
				err = werr
			}
		}
	}
	if err == nil {
		report.Test = &check
		report.add(verdictWith(&check, ranked))
		return
	}
	why := err.Error()
	if ctx.Err() != nil {
		why = "the run was interrupted"
	}
	if ranked == nil {
		report.add("fixed but unverified: " + why)
		return
	}
	report.add(rankedVerdict(*ranked))
	report.add("tested no further: " + why)
}

// verdictWith describes the result of the tests, and of those of a ranking, if there were any: a patch that breaks one
// of these is broken.
func verdictWith(c *attempt.Check, ranked *cli.RaceTests) string {
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
