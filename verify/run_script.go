package verify

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"deepswe/env"
)

// maxLog is the maximum size of a test log in bytes. A longer log is not graded.
const maxLog = 128 << 20

// ending is how a script ended, as seen by the sandbox.
type ending struct {
	code   int
	signal string
	// ofTests is set if the code is that of the command that ran the tests.
	ofTests bool
}

// runScript runs the task's script: as it is or, in a strict trial, its two phases. r is the result of the last one;
// ended is false if how it ended already decides the verdict.
func (t *trial) runScript(ctx context.Context) (r env.Result, ended bool, err error) {
	if !t.strict {
		if ok, err := t.installTests(ctx, t.ownTests()); !ok {
			return r, false, err
		}
		return t.runPart(ctx, t.task.Tests.Script, true)
	}
	p := phases{tests: t.task.Tests.Script}
	if t.task.Tests.RewardFile == "" {
		p = split(p.tests)
	}
	t.exit.ofTests = p.exits
	state := "/tmp/deepswe-" + rand.Text() + ".sh"
	prepares := p.setup != ""
	var patch []byte
	if prepares {
		p, patch = p.withoutPatch(t.sb.Dir())
		if r, ended, err = t.prepare(ctx, p, state); err != nil || !ended {
			return r, false, err
		}
		switch _, _, err := t.sb.Read(ctx, state, env.ReadOptions{Limit: 1}); {
		case errors.Is(err, fs.ErrNotExist):
			t.v.Status, t.v.Detail = Unresolved, "the script ended before the tests began"
			return r, false, nil
		case err != nil && env.IsInfrastructure(ctx, err):
			return r, false, fmt.Errorf("prepare the tests: %w", err)
		}
	}
	tests := t.ownTests()
	if patch != nil {
		if ok, err := t.applyTests(ctx, patch, tests); !ok {
			return r, false, err
		}
	}
	if t.mixing != nil {
		if err = t.mix(ctx, tests); err != nil {
			return r, false, err
		}
	}
	if ok, err := t.installTests(ctx, tests); !ok {
		return r, false, err
	}
	if len(t.mixed.set.Canaries) > 0 {
		if err := t.forget(ctx); err != nil {
			return r, false, err
		}
		if p.tests, err = t.unbail(ctx, p.tests); err != nil {
			return r, false, err
		}
	}
	if prepares {
		p.tests = p.restoring(state)
	}
	if r, ended, err = t.runPart(ctx, p.tests, true); err != nil {
		return r, false, err
	}
	return r, ended, t.collect(ctx)
}

// prepare runs what a script does before the tests, and notes what it changes of what they run with.
func (t *trial) prepare(ctx context.Context, p phases, state string) (r env.Result, ended bool, err error) {
	var places []string
	var before, after surroundings
	if active(p.setup) {
		if places, err = t.places(ctx); err != nil {
			return r, false, err
		}
		if before, err = t.survey(ctx, places); err != nil {
			return r, false, err
		}
	}
	r, ended, err = t.runPart(ctx, p.saving(state), !startsServices().MatchString(p.setup))
	if err != nil || !ended || before == nil {
		return r, ended, err
	}
	after, err = t.survey(ctx, places)
	t.planted = after.since(before)
	return r, ended, err
}

// startsServices matches commands that start services, which the tests may need.
var startsServices = env.Pattern(
	`(?m)[^&|>]&[ \t]*$|\b(service|nohup|daemon\w*|systemctl|pg_ctl|Xvfb|supervisord)\b`)

// runPart runs a part of the script, and appends its output to the log. With endAll, everything that it leaves running
// is ended.
func (t *trial) runPart(ctx context.Context, script string, endAll bool) (r env.Result, ended bool, err error) {
	v, most := &t.v, cmp.Or(t.maxLog, maxLog)
	c := scriptCommand(script)
	if t.strict && strings.Contains(script, "<<") { // a document may contain tests
		c = unseenCommand(script)
	}
	c.EndAll, c.Timeout, c.Tail = endAll, t.limit-t.ran, 1
	c.Head = most - int(min(v.LogBytes, int64(most)-1))
	began := time.Now()
	if r, err = t.sb.Run(ctx, c); err != nil {
		return r, false, fmt.Errorf("run the tests: %w", err)
	}
	t.ran += time.Since(began)
	v.Log, v.LogBytes = append(v.Log, r.Stdout.Head...), v.LogBytes+r.Stdout.Size
	v.OutOfMemory, v.OutOfDisk = v.OutOfMemory || r.OutOfMemory, v.OutOfDisk || r.OutOfDisk
	t.exit.code, t.exit.signal = r.ExitCode, r.Signal
	switch {
	case r.TimedOut || t.ran >= t.limit:
		v.Status, v.Detail = TimedOut, fmt.Sprintf("the tests took longer than %s", t.limit)
		// The harness's own words, by which the class tests_timed_out is recognised.
		v.Log = fmt.Appendf(v.Log, "\n\nTimeout error: %d seconds exceeded.", int(t.limit.Seconds()))
		return r, false, nil
	case v.LogBytes > int64(most):
		v.Status, v.Detail = Ungradable, fmt.Sprintf("the test log of %d bytes is longer than %d", v.LogBytes, most)
		return r, false, nil
	}
	return r, true, nil
}

// longestArgument is the maximum length of a script that is passed as an argument; the kernel's limit is 128 KiB.
const longestArgument = 100 << 10

// scriptCommand runs a script without a file, because the code under test could rewrite the file while the shell reads
// it. Both streams are merged in the order in which they were written, as in the harness.
func scriptCommand(script string) env.Command {
	if len(script) <= longestArgument {
		return env.Command{Line: "exec 2>&1\n" + script}
	}
	return unseenCommand(script)
}

// unseenCommand does this for a script of any length, which is not on the command line.
func unseenCommand(script string) env.Command {
	// The x preserves line feeds at the end.
	return env.Command{
		Line: `exec 2>&1; script=$(cat; echo x); exec </dev/null; eval "${script%x}"`, Stdin: []byte(script),
	}
}
