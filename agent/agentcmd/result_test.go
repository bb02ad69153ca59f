package agentcmd

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/env/repo"
)

// Every stop reason has an exit code, with a patch and without one.
func TestStopCode(t *testing.T) {
	for stop, want := range map[agent.StopReason][2]int{
		agent.Submitted:    {cli.ExitUnsolved, cli.ExitDone},
		agent.MaxSteps:     {cli.ExitUnsolved, cli.ExitLimit},
		agent.MaxContext:   {cli.ExitUnsolved, cli.ExitLimit},
		agent.Timeout:      {cli.ExitUnsolved, cli.ExitLimit},
		agent.FormatErrors: {cli.ExitUnsolved, cli.ExitLimit},
		agent.Stuck:        {cli.ExitUnsolved, cli.ExitLimit},
		agent.ModelError:   {cli.ExitModel, cli.ExitModel},
		agent.SandboxError: {cli.ExitSandbox, cli.ExitSandbox},
		agent.Interrupted:  {cli.ExitInterrupted, cli.ExitInterrupted},
	} {
		if got := [2]int{stopCode(stop, false), stopCode(stop, true)}; got != want {
			t.Errorf("%s: %v, want %v", stop, got, want)
		}
	}
}

// If a stop reason needs an explanation, a sentence says what happened and what to do.
func TestExplain(t *testing.T) {
	limits := agent.Limits{Steps: 7, Wall: 2 * time.Hour, Context: 4096}
	patch := repo.Patch{Diff: []byte("x")}
	for _, c := range []struct {
		result attempt.Result
		says   string // "" for nothing at all
	}{
		{attempt.Result{Outcome: agent.Outcome{StopReason: agent.MaxContext}},
			"the prompt alone does not fit into the context of 4096 tokens"},
		{attempt.Result{Outcome: agent.Outcome{StopReason: agent.MaxContext, Steps: 3}}, "--context"},
		{attempt.Result{Outcome: agent.Outcome{StopReason: agent.MaxSteps}}, "7 steps"},
		{attempt.Result{Outcome: agent.Outcome{StopReason: agent.Timeout}}, "2h0m0s"},
		{attempt.Result{Outcome: agent.Outcome{StopReason: agent.FormatErrors, Format: "xml"}}, "--format"},
		{attempt.Result{Outcome: agent.Outcome{StopReason: agent.Stuck}}, "stuck"},
		{attempt.Result{Outcome: agent.Outcome{StopReason: agent.Submitted}}, "without having changed a file"},
		{attempt.Result{Outcome: agent.Outcome{StopReason: agent.Submitted}, Patch: repo.Patch{Ignored: 2}}, "2 new files"},
		{attempt.Result{Outcome: agent.Outcome{StopReason: agent.Submitted}, Patch: patch}, ""},
		{attempt.Result{Outcome: agent.Outcome{StopReason: agent.Submitted}, PatchErr: errors.New("no disk")}, ""},
		{attempt.Result{Outcome: agent.Outcome{StopReason: agent.ModelError}}, ""},
	} {
		got := explain(c.result, limits)
		if (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s after %d steps: %q, want %q", c.result.Outcome.StopReason, c.result.Outcome.Steps, got, c.says)
		}
	}
}

// Flags that were not given are filled in from the configuration, so that the result is consistent.
func TestFill(t *testing.T) {
	config := cli.Config{Env: "docker", Image: "python:3.12", Format: "tools", Context: 1000}
	type settings struct {
		env, image, format string
		context            int
	}
	for name, c := range map[string]struct {
		given settings
		flags []string
		want  settings
	}{
		"nothing given": {settings{cli.EnvAuto, "", "auto", 65536}, nil,
			settings{"docker", "python:3.12", "tools", 1000}},
		"everything given": {settings{cli.EnvDocker, "i", "xml", 5}, []string{"env", "image", "format", "context"},
			settings{cli.EnvDocker, "i", "xml", 5}},
		"a sandbox without images": {settings{cli.EnvBwrap, "", "auto", 0}, []string{"env", "context"},
			settings{cli.EnvBwrap, "", "tools", 0}},
		"an image for containers": {settings{cli.EnvAuto, "i", "auto", 0}, []string{"image", "context"},
			settings{"docker", "i", "tools", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var o solveOptions
			o.Env, o.Image, o.Format, o.Context = c.given.env, c.given.image, c.given.format, c.given.context
			o.Given = func(flag string) bool { return slices.Contains(c.flags, flag) }
			o.fillFrom(config)
			if got := (settings{o.Env, o.Image, o.Format, o.Context}); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if err := (cli.SandboxChoice{Env: o.Env, Image: o.Image}).Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The tests that the ranking ran on the chosen patch are part of the verdict, with totals and names.
func TestVerdictUsesTheRanking(t *testing.T) {
	t.Parallel()
	good, bad := cli.RaceCount{Tests: 8, Passed: 8}, cli.RaceCount{Tests: 8, Passed: 7, Failed: []string{"test_x"}}
	fixed, half := cli.RaceCount{Tests: 2, Passed: 2}, cli.RaceCount{Tests: 2, Passed: 1, Failed: []string{"test_y"}}
	verified := &attempt.Check{Command: "make test", Verdict: attempt.Verified, Fixed: []string{"test_new"}}
	for name, c := range map[string]struct {
		ranked *cli.RaceTests
		check  *attempt.Check // nil if the patch brings no tests
		want   string
	}{
		"all pass": {&cli.RaceTests{Regression: good, Reproduction: fixed}, nil,
			"fixed and verified: 8 of 8 regression tests pass; 2 of 2 reproduction tests pass"},
		"one breaks": {&cli.RaceTests{Regression: bad, Reproduction: fixed}, nil,
			"broken elsewhere: 7 of 8 regression tests pass, breaks test_x; 2 of 2 reproduction tests pass"},
		"one is not fixed": {&cli.RaceTests{Regression: good, Reproduction: half}, nil,
			"fixed but unverified: 8 of 8 regression tests pass; 1 of 2 reproduction tests pass, fails test_y"},
		"no reproduction tests": {&cli.RaceTests{Regression: good}, nil,
			"fixed but unverified: 8 of 8 regression tests pass, and no test that fails without the patch was run"},
		"many break": {&cli.RaceTests{Regression: cli.RaceCount{Tests: 40, Passed: 3, Failed: []string{"a", "b", "c", "d"}}}, nil,
			"broken elsewhere: 3 of 40 regression tests pass, breaks a, b, c and 34 more"},
		"forged": {&cli.RaceTests{Regression: bad, Problem: "results are forged (marker): x"}, nil,
			"fixed but unverified: results are forged (marker): x"},
		"its own tests pass, too": {&cli.RaceTests{Regression: good}, verified,
			"fixed and verified (make test): test_new fails before and passes after; none broke; " +
				"in the ranking, 8 of 8 regression tests pass"},
		"only its own tests pass": {&cli.RaceTests{Regression: bad}, verified,
			"broken elsewhere: 7 of 8 regression tests pass, breaks test_x"},
		"the ranking ran none": {nil, verified,
			"fixed and verified (make test): test_new fails before and passes after; none broke"},
	} {
		var got string
		if c.check == nil {
			got = rankedVerdict(*c.ranked)
		} else {
			check := *c.check
			got = verdictWith(&check, c.ranked)
			if broken := c.ranked != nil && c.ranked.Breaks(); (check.Verdict == attempt.Broken) != broken {
				t.Errorf("%s: the verdict is %s", name, check.Verdict)
			}
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}
