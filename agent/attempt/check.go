package attempt

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/repo"
)

// checkTimeout bounds one run of the tests.
const checkTimeout = 30 * time.Minute

// cheapCheck is the longest run of the tests on the old code that is repeated when tests fail.
const cheapCheck = time.Minute

// checkOutput is how many bytes of the tests' output are kept at each end.
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
	// Old is the run of the patch's own tests, which are in TestFiles, on the code without the patch; nil if it has none.
	Old       *TestRun `json:"old,omitempty"`
	TestFiles []string `json:"test_files,omitempty"`
	// Fixed are the tests that pass only with the patch, Broke those that pass only without it, and Unchanged is how many
	// give the same result each time.
	Fixed     []string `json:"fixed,omitempty"`
	Broke     []string `json:"broke,omitempty"`
	Unchanged int      `json:"unchanged,omitempty"`
	// Unbuilt are those of Fixed that gave no result without the patch, because they could not be built or loaded there.
	Unbuilt []string `json:"unbuilt,omitempty"`

	based bool // there were tests without the patch
}

// Trial is how a patch is tested.
type Trial struct {
	Patch   []byte
	Command string
	// BaseCommand runs those of the tests that exist without the patch; empty if there are none.
	BaseCommand string
	// TestFiles are the files of the patch that hold tests or their data.
	TestFiles []string
	// Read finds the tests in what a run prints.
	Read func([]byte) Tests
	// Timeout bounds each run: half an hour when 0.
	Timeout time.Duration
}

// Check runs the tests in fresh sandboxes: without the patch, with only the tests of the patch, if it has any, and with
// all of it. What the agent did besides the patch does not count.
func (a *Attempt) Check(ctx context.Context, task env.Task, snapshot *repo.Snapshot, t Trial) (Check, error) {
	c := Check{Command: t.Command, TestFiles: t.TestFiles, based: t.BaseCommand != ""}
	none, all := t, t
	none.Patch, none.Command, all.TestFiles = nil, t.BaseCommand, nil
	var before, old Tests
	var err error
	if t.BaseCommand != "" {
		if before, err = a.testOld(ctx, task, snapshot, none, &c.Base); err != nil {
			return c, fmt.Errorf("test without the patch: %w", err)
		}
	}
	if len(t.TestFiles) > 0 {
		c.Old = &TestRun{}
		if old, err = a.testOld(ctx, task, snapshot, t, c.Old); err != nil {
			return c, fmt.Errorf("test with the tests of the patch alone: %w", err)
		}
	}
	after, err := a.test(ctx, task, snapshot, all, &c.Patched)
	if err != nil {
		return c, fmt.Errorf("test the patch: %w", err)
	}
	c.judge(before, old, after)
	return c, nil
}

// testOld runs the tests on the old code, and again if some fail and the run was short: a test that fails only once
// proves nothing.
func (a *Attempt) testOld(
	ctx context.Context, task env.Task, snapshot *repo.Snapshot, t Trial, run *TestRun,
) (Tests, error) {
	first, err := a.test(ctx, task, snapshot, t, run)
	if err != nil || !failed(*run) && run.Failed == 0 || run.Seconds > cheapCheck.Seconds() {
		return first, err
	}
	var again TestRun
	second, err := a.test(ctx, task, snapshot, t, &again)
	if err != nil {
		return nil, err
	}
	for name, passed := range first {
		now, there := second[name]
		second[name] = passed || now || !there && !failed(again) // some runners name only what fails
	}
	if failed(*run) && !failed(again) {
		*run = again
	}
	return second, nil
}

func failed(r TestRun) bool { return r.ExitCode != 0 || r.TimedOut }

// judge compares the runs.
func (c *Check) judge(before, old, after Tests) {
	fixed := map[string]bool{}
	for name, passed := range before {
		now, there := after[name]
		switch {
		case passed && there && !now:
			c.Broke = append(c.Broke, name)
		case !passed && !old[name] && (now || !there && !failed(c.Patched)):
			fixed[name] = true
		}
	}
	for name, built := range c.proof(before, old, after) {
		fixed[name] = true
		if !built {
			c.Unbuilt = append(c.Unbuilt, name)
		}
	}
	c.Fixed = slices.Collect(maps.Keys(fixed))
	unmet := false // a test that the patch has brought fails
	for name, passed := range after {
		was, there := before[name]
		onOld, brought := old[name]
		unmet = unmet || c.Old != nil && !there && !passed
		switch {
		case there && was == passed && !fixed[name]:
			c.Unchanged++
		case !there && !passed && c.based && !failed(c.Base) && (onOld || !brought):
			c.Broke = append(c.Broke, name)
		}
	}
	slices.Sort(c.Fixed)
	slices.Sort(c.Unbuilt)
	slices.Sort(c.Broke)
	switch {
	case len(c.Broke) > 0, c.based && !failed(c.Base) && failed(c.Patched):
		c.Verdict = Broken
	case unmet:
		c.Verdict = Unverified
	case len(c.Fixed) > 0, !failed(c.Patched) && (failed(c.Base) || c.Old != nil && failed(*c.Old)):
		c.Verdict = Verified
	default:
		c.Verdict = Unverified
	}
}

// proof returns the tests of the patch that fail on the code without it and pass with it, and whether each could be
// built there. A new test that keeps the old code from being built or loaded is missing from the results of that run.
func (c *Check) proof(before, old, after Tests) map[string]bool {
	proof := map[string]bool{}
	for name, passed := range old {
		now, there := after[name]
		if !passed && (now || !there && !failed(c.Patched)) {
			proof[name] = true
		}
	}
	for name, passed := range after {
		_, was := before[name]
		if _, there := old[name]; passed && !was && !there && c.Old != nil && failed(*c.Old) {
			proof[name] = false
		}
	}
	return proof
}

// literal turns a path into a pattern that matches nothing else.
var literal = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// test runs the tests in a fresh sandbox with the patch or, if TestFiles names any, with only those files of it.
func (a *Attempt) test(
	ctx context.Context, task env.Task, snapshot *repo.Snapshot, t Trial, run *TestRun,
) (_ Tests, err error) {
	sb, err := a.Provider.Start(ctx, a.Spec(task, snapshot))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sb.Close(context.WithoutCancel(ctx))) }()
	if len(t.Patch) > 0 {
		if err := applyInside(ctx, sb, t.Patch, t.TestFiles); err != nil {
			return nil, err
		}
	}
	r, err := sb.Run(ctx, env.Command{
		Line: "{ " + t.Command + "\n} 2>&1", Timeout: cmp.Or(t.Timeout, checkTimeout), Head: checkOutput, Tail: checkOutput,
		Env: []string{"PYTEST_ADDOPTS=-rA", "CI=1"}, // pytest names passing tests only when asked to
	})
	if err != nil {
		return nil, err
	}
	run.ExitCode, run.TimedOut, run.Seconds = r.ExitCode, r.TimedOut, r.Elapsed.Seconds()
	run.Log = slices.Concat(r.Stdout.Head, r.Stdout.Tail)
	tests := t.Read(run.Log)
	for _, passed := range tests {
		if passed {
			run.Passed++
		} else {
			run.Failed++
		}
	}
	return tests, nil
}

// applyInside applies the patch in a sandbox, or only its part for the files if any are named, with the sandbox's git
// and without the repository's configuration.
func applyInside(ctx context.Context, sb env.Sandbox, patch []byte, files []string) error {
	options := " "
	for _, name := range files {
		options += "--include=" + env.ShellQuote(literal.Replace(name)) + " "
	}
	file := "/tmp/deepswe-check-" + rand.Text() + ".patch" // not every sandbox has a private /tmp
	if _, err := sb.Write(ctx, file, patch, env.WriteOptions{Create: true}); err != nil {
		return err
	}
	r, err := sb.Run(ctx, env.Command{
		Line: "GIT_DIR=/tmp/deepswe-none git apply --whitespace=nowarn" + options + file +
			"; code=$?; rm -f " + file + "; exit $code",
		Timeout: time.Minute,
	})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("the patch cannot be applied there: git apply: exit code %d: %s", r.ExitCode, r.Stderr.Head)
	}
	return err
}
