package agentcmd

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/project"
)

// runsTests matches commands that run tests.
var runsTests = regexp.MustCompile(`(?i)\b(tox|nox|mocha|rspec|phpunit|[\w.-]*test[\w.-]*)\b`)

// verifyPatch runs the tests with and without the patch, and adds the result to the report.
func (c *conclusion) verifyPatch(ctx context.Context, report *outcome) {
	trial, ranked := c.trialOf(report), c.rankedTests()
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
		return fmt.Sprintf("fixed and verified (%s): %s", c.Command, proofOf(c))
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

func named(tests []string) string { return cli.SomeOf(tests, len(tests)) }

// unaskedTests bounds a run of tests that nobody has asked for.
const unaskedTests = 3 * time.Minute

// askForTest is for the model: without a test that fails before the fix, nothing shows that the bug is gone.
const askForTest = "Its reviewers want proof: add a test of the fixed behavior to the project's own tests, beside " +
	"those that are there. It is run on the old code, where it must fail, and on yours, where it must pass."

// trialOf returns how the patch is tested: by --test or, without it, by the tests in the patch. The command is empty
// if the patch has none, or if it is not known how to run them.
func (c *conclusion) trialOf(report *outcome) attempt.Trial {
	command := c.plan.test.line
	if c.plan.test.found {
		command = c.inFolder(command)
	}
	t := attempt.Trial{Patch: report.diff, Command: command, BaseCommand: command, Read: c.d.ReadTests}
	for _, name := range report.Files {
		if c.d.IsTest(name) {
			t.TestFiles = append(t.TestFiles, name)
		}
	}
	if t.Command == "" && !c.o.demo {
		t.Timeout = unaskedTests
		t.Command, t.BaseCommand = c.testsOf(report.diff, t.TestFiles)
	}
	return t
}

// testsOf returns the commands that run the tests in the files with the patch, and without it.
func (c *conclusion) testsOf(diff []byte, files []string) (patched, base string) {
	folder := filepath.FromSlash(c.plan.Folder) // the user's
	var kept []string                           // below it
	for _, name := range files {
		below, err := filepath.Rel(filepath.Join(".", folder), filepath.FromSlash(name))
		if err != nil || !filepath.IsLocal(below) {
			return "", ""
		}
		if !bytes.Contains(diff, []byte("--- a/"+name+"\n+++ /dev/null\n")) {
			kept = append(kept, filepath.ToSlash(below))
		}
	}
	if len(kept) == 0 {
		return "", ""
	}
	at := c.plan.at
	dir := filepath.Join(at.snapshot.Source, folder)
	patched, base = project.TestCommandsOf(dir, at.machine, at.installedBelow(dir), kept)
	return c.inFolder(patched), c.inFolder(base)
}

// inFolder returns the command line, unless it is empty, changed to run in the user's folder of the repository.
func (c *conclusion) inFolder(command string) string {
	if command == "" || c.plan.Folder == "" {
		return command
	}
	return "cd " + env.ShellQuote(c.plan.Folder) + " && " + command
}

// unproven says why nothing was tested.
func (c *conclusion) unproven() string {
	if !c.tested {
		return "the agent ran no test"
	}
	return "the agent wrote no test that could be run on the old code"
}

// rankedTests returns how the tests of the ranking went on the patch; nil if it ran none.
func (c *conclusion) rankedTests() *cli.RaceTests {
	if c.choice == nil {
		return nil
	}
	return c.choice.Tests
}

// rankedVerdict describes the result of the ranking's tests in a sentence.
func rankedVerdict(t cli.RaceTests) string {
	switch r := t.Reproduction; {
	case t.Breaks():
		return "broken elsewhere: " + rankedCounts(t)
	case t.Problem == "" && r.Tests > 0 && r.Passed == r.Tests:
		return "fixed and verified: " + rankedCounts(t)
	case t.Problem == "" && r.Tests == 0:
		return "fixed but unverified: " + rankedCounts(t) + ", and no test that fails without the patch was run"
	}
	return "fixed but unverified: " + rankedCounts(t)
}

// rankedCounts says how many of the ranking's tests pass, and names those that fail.
func rankedCounts(t cli.RaceTests) string {
	if t.Problem != "" {
		return t.Problem
	}
	var parts []string
	add := func(c cli.RaceCount, kind, failed string) {
		if c.Tests == 0 {
			return
		}
		text := fmt.Sprintf("%d of %d %s tests pass", c.Passed, c.Tests, kind)
		if c.Passed < c.Tests {
			text += ", " + failed + " " + cli.SomeOf(c.Failed, c.Tests-c.Passed)
		}
		parts = append(parts, text)
	}
	add(t.Regression, "regression", "breaks")
	add(t.Reproduction, "reproduction", "fails")
	return strings.Join(parts, "; ")
}

// withoutProof says why the tests of a patch prove nothing.
func withoutProof(c attempt.Check) string {
	if len(c.TestFiles) == 0 {
		return "the agent wrote no test for the fix"
	}
	if c.Patched.ExitCode != 0 || c.Patched.TimedOut {
		return "the agent's own tests do not all pass (" + named(c.TestFiles) + ")"
	}
	return "the agent's own tests pass without it as well (" + named(c.TestFiles) + ")"
}

// proofOf says what shows that the patch is right.
func proofOf(c attempt.Check) string {
	var text string
	failed := slices.DeleteFunc(slices.Clone(c.Fixed), func(test string) bool { return slices.Contains(c.Unbuilt, test) })
	switch {
	case len(c.Fixed) > 0:
		text = strings.TrimPrefix(
			turned(failed, "fails", "fail")+turned(c.Unbuilt, "does not compile", "do not compile"), "; ")
	case len(c.TestFiles) > 0:
		text = "the tests of " + named(c.TestFiles) + " fail before and pass after"
	default:
		text = "it fails without the patch and passes with it"
	}
	if c.Unchanged > 0 {
		return fmt.Sprintf("%s; %s unchanged", text, cli.Plural(c.Unchanged, "other"))
	}
	return text + "; none broke"
}

// turned says what became of tests that pass now, after a semicolon; empty for none.
func turned(tests []string, one, several string) string {
	switch len(tests) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; %s %s before and passes after", tests[0], one)
	}
	return fmt.Sprintf("; %s %s before and pass after (%d tests)", named(tests), several, len(tests))
}
