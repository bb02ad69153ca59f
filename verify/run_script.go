package verify

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/repo"
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
// ended is false if the verdict is decided already, for example because the time was up.
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
	}
	if err := t.readEarlier(ctx, patch); err != nil {
		return r, false, err
	}
	if prepares {
		if r, ended, err = t.prepare(ctx, p, state); err != nil || !ended {
			return r, false, err
		}
		switch _, _, err := t.sb.Read(ctx, state, env.ReadOptions{Limit: 1}); {
		case errors.Is(err, fs.ErrNotExist):
			t.v.Status, t.v.Detail = Unresolved, "the script ended before the tests began"
			return r, false, nil
		case env.IsInfrastructure(ctx, err):
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
		if p.tests, err = t.forgetRight(ctx, p.tests); err != nil {
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

// unseenCommand runs a script of any length in the same way, without showing it on the command line.
func unseenCommand(script string) env.Command {
	// The x preserves line feeds at the end.
	return env.Command{
		Line: `exec 2>&1; script=$(cat; echo x); exec </dev/null; eval "${script%x}"`, Stdin: []byte(script),
	}
}

// ownTests returns the files that come with the task's tests, by their paths.
func (t *trial) ownTests() map[string]file {
	files := map[string]file{}
	for name, text := range t.task.Tests.Files {
		files[t.at(name)] = file{kind: env.KindFile, mode: 0o755, data: []byte(text)}
	}
	return files
}

// at returns the absolute path of a file whose name may be relative to the repository's directory.
func (t *trial) at(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(t.sb.Dir(), name)
}

// installTests writes files with tests. ok is as in install.
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

// phases is a test script in two halves, which run in separate shells, so that the tests cannot read the first half
// from the command line of their parent process.
type phases struct {
	// setup is the part before the tests; empty if the script does not mark where they begin.
	setup string
	// tests is the rest. If the script marks the tests, tests ends with their exit status.
	tests string
	// exits is set if tests ends with the exit status of the tests.
	exits bool
}

// exitSaved matches a line that saves the exit code of the line before.
var exitSaved = env.Pattern(`(?m)^[ \t]*([A-Za-z_]\w*)=\$\?[ \t]*$`)

// split splits a script at its markers. Commands after the tests, such as restoring files, are left out: they would
// change the exit status, and have no effect on grading.
func split(script string) phases {
	lines := strings.SplitAfter(script, "\n")
	start := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, startMarker) })
	if start < 0 {
		return phases{tests: script}
	}
	length := slices.IndexFunc(lines[start:], func(l string) bool { return strings.Contains(l, endMarker) })
	if length < 0 {
		return phases{tests: script}
	}
	end := start + length
	region := strings.Join(lines[start+1:end], "")
	status, tests := "$deepswe_status", lines[start]+region
	if saved := exitSaved().FindAllStringSubmatch(region, -1); len(saved) > 0 {
		status = "$" + saved[len(saved)-1][1]
	} else {
		tests += "{ deepswe_status=$?; } 2>/dev/null\n" // untraced: the log is read up to the end marker
	}
	tests += lines[end]
	for _, l := range lines[end+1:] {
		if strings.Contains(l, exitMarker) {
			tests += l
		}
	}
	return phases{
		setup: strings.Join(lines[:start], ""), exits: true,
		tests: strings.TrimSuffix(tests, "\n") + "\n{ exit \"" + status + "\"; } 2>/dev/null\n",
	}
}

// saving returns the first half with commands that save the state of its shell to a file: variables, functions,
// options, directory.
func (p phases) saving(file string) string {
	quoted := env.ShellQuote(file)
	return p.setup + `
{ deepswe_options=$(set +o); set +x; } 2>/dev/null
{ echo 'rm -f ` + file + `'
if [ -n "${BASH_VERSION:-}" ]; then unset BASH_EXECUTION_STRING; shopt -p; alias -p; declare -f; declare -p
else set; export -p; fi
umask | sed 's/^/umask /'
for deepswe_limit in n s v; do echo "ulimit -S$deepswe_limit $(ulimit -S$deepswe_limit)"; done
printf 'cd %s\n' "'$(pwd | sed "s/'/'\\\\''/g")'"
printf '%s\n' "$deepswe_options"; } >` + quoted + " 2>/dev/null\n"
}

// restoring returns the second half with commands that restore this state.
func (p phases) restoring(file string) string {
	return "{ . " + env.ShellQuote(file) + "; } 2>/dev/null\n" + p.tests
}

// What a script does before the tests, such as installing the package, runs code under test. If tests were in its
// reach, it could keep their right expectations and recognise the wrong ones later. So in a strict trial, the tests are
// written when this part and everything that it started have ended, and from outside of the sandbox, because a command
// inside, such as git, may have been replaced. Only services go on. They may be the patch's own and watch the files, so
// the tests are written just as they will run.

var (
	appliesPatch = env.Pattern(`^git apply(?: -[\w-]+)* -? *<<\s*(?:'(\w+)'|"(\w+)")\s*$`)
	changesDir   = env.Pattern(`(?m)^\s*cd\s+(\S+)\s*$`)
	// doesNothing matches commands that neither read tests nor run code of the repository.
	doesNothing = env.Pattern(`^\s*(?:#.*|:.*|set [+-]\w+( pipefail)?|(?:echo|cd|export) [\w '":=>./$-]*|` +
		`(?:source|\.) /[\w./-]+( \w+)?|conda activate [\w./-]+|git (?:status|diff|show)[\w ./-]*)?$`)
)

// withoutPatch takes the patch with the tests out of a first half that has git apply it in the directory dir, as
// SWE-bench's scripts do. What follows, such as a build, then runs without these tests. patch is nil if there is
// none.
func (p phases) withoutPatch(dir string) (rest phases, patch []byte) {
	before, after, found := strings.Cut(p.setup, "<<")
	begin := strings.LastIndexByte(before, '\n') + 1
	line, body, whole := strings.Cut(p.setup[begin:], "\n")
	match := appliesPatch().FindStringSubmatch(line)
	if !found || after == "" || !whole || match == nil {
		return p, nil
	}
	text, tail, ended := strings.Cut("\n"+body, "\n"+match[1]+match[2]+"\n")
	ended = ended && !strings.Contains(tail, "<<")
	if cd := changesDir().FindAllStringSubmatch(p.setup[:begin], -1); len(cd) > 0 {
		ended = ended && path.Clean(strings.Trim(cd[len(cd)-1][1], `"'`)) == path.Clean(dir)
	}
	if !ended || text == "" {
		return p, nil
	}
	rest = p
	rest.setup = p.setup[:begin] + tail
	return rest, []byte(text[1:] + "\n")
}

// applyTests applies the patch with the hidden tests to those that are to be installed. If git refuses it, nothing is
// changed, as in the script. ok is as in install.
func (t *trial) applyTests(ctx context.Context, patch []byte, tests map[string]file) (ok bool, err error) {
	var before []file
	for _, name := range patchedPaths(patch) {
		f, own := tests[t.at(name)]
		if f.name = name; !own {
			if f, err = readFile(ctx, t.sb, name); err != nil {
				return false, fmt.Errorf("apply the tests: %w", err)
			}
		}
		before = append(before, f)
	}
	changed, refusal, err := patched(ctx, patch, before)
	switch {
	case errors.Is(err, repo.ErrNoGit): // there is only the sandbox's
		if ok, err := t.installTests(ctx, tests); !ok {
			return false, err
		}
		clear(tests)
		return t.applyTestsInside(ctx, patch)
	case err != nil:
		return false, err
	case refusal != "":
		return true, nil
	}
	for _, f := range changed {
		tests[t.at(f.name)] = f
	}
	return true, nil
}

// applyTestsInside applies the patch with the sandbox's git.
func (t *trial) applyTestsInside(ctx context.Context, patch []byte) (ok bool, err error) {
	r, err := t.sb.Run(ctx, env.Command{Line: "git apply -", Stdin: patch, Timeout: applyTimeout, Env: trusting})
	if err != nil {
		return false, fmt.Errorf("apply the tests: %w", err)
	}
	if r.TimedOut {
		t.v.Status, t.v.Detail = TimedOut, fmt.Sprintf("applying the tests took longer than %s", applyTimeout)
	}
	return !r.TimedOut, nil
}
