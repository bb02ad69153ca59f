package attempt

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"deepswe/env"
	"deepswe/env/repo"
)

// checkTimeout bounds one run of the tests.
const checkTimeout = 30 * time.Minute

// checkOutput is the maximum number of bytes of the tests' output that are kept, from either end.
const checkOutput = 8 << 20

// Tests parses the output of a test run, and returns for each test whether it passed.
type Tests map[string]bool

// Verdict is the result of running the tests with and without a patch.
type Verdict string

// The verdicts. A patch is verified when tests that failed before pass, and none that passed fails.
const (
	Verified   Verdict = "verified"
	Unverified Verdict = "unverified"
	Broken     Verdict = "broken"
)

// TestRun is one run of the tests.
type TestRun struct {
	ExitCode int     `json:"exit_code"`
	TimedOut bool    `json:"timed_out,omitempty"`
	Passed   int     `json:"passed"`
	Failed   int     `json:"failed"`
	Seconds  float64 `json:"seconds"`

	Log []byte `json:"-"`
}

// Check is how the tests ran without the patch and with it.
type Check struct {
	Command string  `json:"command"`
	Verdict Verdict `json:"verdict"`
	Base    TestRun `json:"base"`
	Patched TestRun `json:"patched"`
	// Fixed are the tests that pass only with the patch, Broke those that pass only without it.
	Fixed []string `json:"fixed,omitempty"`
	Broke []string `json:"broke,omitempty"`
}

// Check runs the tests in two fresh sandboxes, without the patch and with it. What the agent did besides the patch does
// not count. read finds the tests in what a run prints.
func (a *Attempt) Check(
	ctx context.Context, task env.Task, snapshot *repo.Snapshot, patch []byte, command string, read func([]byte) Tests,
) (Check, error) {
	c := Check{Command: command}
	before, err := a.test(ctx, task, snapshot, nil, &c.Base, command, read)
	if err != nil {
		return c, fmt.Errorf("test without the patch: %w", err)
	}
	after, err := a.test(ctx, task, snapshot, patch, &c.Patched, command, read)
	if err != nil {
		return c, fmt.Errorf("test the patch: %w", err)
	}
	c.judge(before, after)
	return c, nil
}

// judge compares the two runs.
func (c *Check) judge(before, after Tests) {
	failed := func(r TestRun) bool { return r.ExitCode != 0 || r.TimedOut }
	for name, passed := range before {
		now, there := after[name]
		switch {
		case passed && there && !now:
			c.Broke = append(c.Broke, name)
		case !passed && (now || !there && !failed(c.Patched)): // some runners name only what fails
			c.Fixed = append(c.Fixed, name)
		}
	}
	for name, passed := range after {
		if _, there := before[name]; !passed && !there && !failed(c.Base) {
			c.Broke = append(c.Broke, name)
		}
	}
	slices.Sort(c.Fixed)
	slices.Sort(c.Broke)
	switch {
	case len(c.Broke) > 0, !failed(c.Base) && failed(c.Patched):
		c.Verdict = Broken
	case len(c.Fixed) > 0, failed(c.Base) && !failed(c.Patched):
		c.Verdict = Verified
	default:
		c.Verdict = Unverified
	}
}

// test runs the tests in a fresh sandbox.
func (a *Attempt) test(
	ctx context.Context, task env.Task, snapshot *repo.Snapshot, patch []byte, run *TestRun, command string,
	read func([]byte) Tests,
) (_ Tests, err error) {
	sb, err := a.Provider.Start(ctx, a.Spec(task, snapshot))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sb.Close(context.WithoutCancel(ctx))) }()
	if len(patch) > 0 {
		if err := applyInside(ctx, sb, patch); err != nil {
			return nil, err
		}
	}
	r, err := sb.Run(ctx, env.Command{
		Line: "{ " + command + "\n} 2>&1", Timeout: checkTimeout, Head: checkOutput, Tail: checkOutput,
		Env: []string{"PYTEST_ADDOPTS=-rA", "CI=1"}, // pytest names passing tests only when asked to
	})
	if err != nil {
		return nil, err
	}
	run.ExitCode, run.TimedOut, run.Seconds = r.ExitCode, r.TimedOut, r.Elapsed.Seconds()
	run.Log = slices.Concat(r.Stdout.Head, r.Stdout.Tail)
	tests := read(run.Log)
	for _, passed := range tests {
		if passed {
			run.Passed++
		} else {
			run.Failed++
		}
	}
	return tests, nil
}

// applyInside applies the patch in a sandbox, with the git command there and without its repository's configuration.
func applyInside(ctx context.Context, sb env.Sandbox, patch []byte) error {
	file := "/tmp/deepswe-check-" + rand.Text() + ".patch" // not every sandbox has a private /tmp
	if _, err := sb.Write(ctx, file, patch, env.WriteOptions{Create: true}); err != nil {
		return err
	}
	r, err := sb.Run(ctx, env.Command{
		Line: "GIT_DIR=/tmp/deepswe-none git apply --whitespace=nowarn " + file +
			"; code=$?; rm -f " + file + "; exit $code",
		Timeout: time.Minute,
	})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("the patch cannot be applied there: git apply: exit code %d: %s", r.ExitCode, r.Stderr.Head)
	}
	return err
}
