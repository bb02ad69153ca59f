package verify

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"deepswe/env"
	"deepswe/env/repo"
)

// What a script does before the tests, such as installing the package, runs code under test. If tests were in its
// reach, it could keep their right expectations and recognise the wrong ones later. So in a strict trial, the tests are
// written when this part has ended and everything that it has started: from outside of the sandbox, because a command
// in there, such as git, may be another than before. Only services go on, which may be the patch's own, and watch the
// files: so the tests are as they are to run when they come.

var (
	appliesPatch = env.Pattern(`^git apply(?: -[\w-]+)* -? *<<\s*(?:'(\w+)'|"(\w+)")\s*$`)
	changesDir   = env.Pattern(`(?m)^\s*cd\s+(\S+)\s*$`)
	// doesNothing matches commands that neither read tests nor run code of the repository.
	doesNothing = env.Pattern(`^\s*(?:#.*|:.*|set [+-]\w+|(?:echo|cd|export) [\w '":=>./$-]*|` +
		`(?:source|\.) /[\w./-]+( \w+)?|conda activate [\w./-]+|git (?:status|diff|show)[\w ./-]*)?$`)
)

// withoutPatch removes the patch that a first half has, as those of SWE-bench do, and that git applies in the directory
// dir. What follows it, such as a build, runs without it. It returns no patch if there is none.
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
