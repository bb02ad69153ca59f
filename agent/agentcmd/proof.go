package agentcmd

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/project"
)

// unaskedTests bounds a run of tests that nobody has asked for.
const unaskedTests = 3 * time.Minute

// askForTest is for the model: without a test that fails before the fix, nothing shows that the bug is gone.
const askForTest = "Its reviewers want proof: add a test of the fixed behavior to the project's own tests, beside " +
	"those that are there. It is run on the old code, where it must fail, and on yours, where it must pass."

// trial is how the patch is tested: by --test or, without it, by the tests that it brings. There is no command if it
// brings none, or nobody knows how to run them.
func (c *conclusion) trial(report *outcome) attempt.Trial {
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

// inFolder is a command line, if there is any, that runs in the folder of the repository where the user stands.
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

// ranked returns how the tests of the ranking went on the patch; nil if it has run none on it.
func (c *conclusion) ranked() *cli.RaceTests {
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
			text += ", " + failed + " " + namedOf(c.Failed, c.Tests-c.Passed)
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

// came says what shows that the patch is right.
func came(c attempt.Check) string {
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
