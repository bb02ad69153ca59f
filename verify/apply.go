package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/repo"
)

// applyTimeout limits each command that applies or checks the patch.
const applyTimeout = 5 * time.Minute

// applyCommands are the commands that the harness tries, in this order.
var applyCommands = []string{
	"git apply --verbose", "git apply --verbose --3way", "git apply --verbose --reject",
	"patch --batch --forward --fuzz=5 -p1 -i",
}

// trusting makes git accept a repository of another user, without writing a configuration file in the sandbox.
var trusting = []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}

// apply tries the harness's commands until one applies the patch, and returns that command. If none does, command is
// empty, and words says why: the output of the first attempt, or the path in .git that the patch would write. If the
// image has no git, the host's git applies the patch.
func (t *trial) apply(ctx context.Context) (command, words string, err error) {
	if len(bytes.TrimSpace(t.patch)) == 0 {
		return "nothing to apply", "", nil
	}
	if name, ok := intoRepository(t.patch); ok {
		return "", fmt.Sprintf("the patch reaches into the repository itself: %s", name), nil
	}
	if _, err := t.sb.Write(ctx, t.patchPath, t.patch, env.WriteOptions{}); err != nil {
		return "", "", fmt.Errorf("write the patch: %w", err)
	}
	defer func() {
		_, rerr := t.sb.Run(ctx, env.Command{Line: "rm -f " + t.patchPath, Timeout: applyTimeout})
		if rerr != nil && err == nil {
			err = fmt.Errorf("remove the patch: %w", rerr)
		}
	}()
	for i, c := range applyCommands {
		if i > 0 {
			if err := t.clean(ctx); err != nil {
				return "", "", fmt.Errorf("clean the tree: %w", err)
			}
		}
		r, err := t.git(ctx, c+" "+t.patchPath)
		switch {
		case err != nil:
			return "", "", fmt.Errorf("apply the patch: %w", err)
		case r.ExitCode == 0:
			return c, "", nil
		case i == 0 && r.ExitCode == commandNotFound:
			return t.applyOnHost(ctx)
		case i == 0 && t.alone:
			return t.applyLoosely(ctx, output(r))
		case i == 0:
			words = output(r)
		}
	}
	// Together, the attempts may have applied all of the patch although each of them failed.
	r, err := t.git(ctx, "git apply --check --reverse "+t.patchPath)
	if err != nil {
		return "", "", fmt.Errorf("apply the patch: %w", err)
	}
	if r.ExitCode == 0 {
		return "verified as applied", "", nil
	}
	return "", words, nil
}

// commandNotFound is a shell's exit code for a program that does not exist.
const commandNotFound = 127

func (t *trial) git(ctx context.Context, line string) (env.Result, error) {
	r, err := t.sb.Run(ctx, env.Command{Line: line, Timeout: applyTimeout, Env: trusting})
	if err == nil && r.TimedOut {
		err = fmt.Errorf("%w: %s took longer than %s", env.ErrInfrastructure, line, applyTimeout)
	}
	return r, err
}

// clean undoes a failed attempt. For the harness's own tasks it does this as the harness does. In other images, git
// would remove files that the tests need, so a new sandbox is started instead.
func (t *trial) clean(ctx context.Context) error {
	if t.task.Source == swebench {
		_, err := t.git(ctx, "git checkout -- . ; git clean -fd")
		return err
	}
	if err := t.start(ctx); err != nil {
		return err
	}
	_, err := t.sb.Write(ctx, t.patchPath, t.patch, env.WriteOptions{})
	return err
}

// swebench is the Task.Source of the records that the harness itself grades.
const swebench = "swe-bench"

// intoRepository returns a path in the patch that is inside .git, where the next git command would obey a hook or a
// setting. Git refuses such patches, the patch command does not.
func intoRepository(patch []byte) (name string, found bool) {
	for _, name := range patchedPaths(patch) {
		for part := range strings.SplitSeq(name, "/") {
			if strings.EqualFold(part, ".git") {
				return name, true
			}
		}
	}
	return "", false
}

// applyOnHost applies the patch to copies of the files that it changes, and writes the result into the sandbox.
func (t *trial) applyOnHost(ctx context.Context) (command, words string, err error) {
	var before []file
	for _, name := range patchedPaths(t.patch) {
		f, err := readFile(ctx, t.sb, name)
		if err != nil {
			return "", "", fmt.Errorf("apply the patch: %w", err)
		}
		before = append(before, f)
	}
	changed, refusal, err := patched(ctx, t.patch, before)
	if err != nil || refusal != "" {
		return "", refusal, err
	}
	return "git apply on the host", "", writeFiles(ctx, t.sb, changed)
}

// patched applies a patch to copies of files on this machine, and returns the files that it changes. refusal is git's
// message if the patch does not apply.
func patched(ctx context.Context, patch []byte, before []file) (changed []file, refusal string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("apply the patch: %w", err)
		}
	}()
	dir, err := os.MkdirTemp("", "deepswe-grade-")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(dir)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", err
	}
	defer root.Close()
	// A minimal repository, because git would otherwise use one that contains dir.
	err = errors.Join(root.MkdirAll(".git/objects", 0o755), root.MkdirAll(".git/refs", 0o755),
		root.WriteFile(".git/HEAD", []byte("ref: refs/heads/main\n"), 0o644))
	if err != nil {
		return nil, "", err
	}
	for _, f := range before {
		if err := f.store(root); err != nil {
			return nil, "", err
		}
	}
	if err := repo.Apply(ctx, dir, patch); err != nil {
		if ctx.Err() != nil || errors.Is(err, repo.ErrNoGit) {
			return nil, "", err
		}
		return nil, err.Error(), nil
	}
	for _, was := range before {
		f, err := stored(root, was.name)
		if err != nil {
			return nil, "", err
		}
		if !f.equal(was) {
			changed = append(changed, f)
		}
	}
	return changed, "", nil
}

// applyLoosely applies a patch that git refuses, if the patch command applies all of it. Neither git nor the dry run
// changes anything if it fails, so that one sandbox is enough. words is git's output.
func (t *trial) applyLoosely(ctx context.Context, words string) (command, why string, err error) {
	const loosely = "patch --batch --forward --fuzz=5 -p1"
	for _, dry := range []string{" --dry-run", ""} {
		r, err := t.git(ctx, loosely+dry+" -i "+t.patchPath)
		if err != nil {
			return "", "", fmt.Errorf("apply the patch: %w", err)
		}
		if r.ExitCode != 0 {
			return "", words, nil
		}
	}
	return loosely, "", nil
}

// patchedPaths returns every path that a patch could write to, sorted and relative to the repository's root. It
// includes everything that git or the patch command might take for a file name, also in lines that only look like
// headers: an additional name does no harm, but a missing one would be a way around package allowlist.
func patchedPaths(patch []byte) []string {
	names := map[string]bool{}
	add := func(name string) {
		if name = path.Clean(unquoted(strings.TrimSpace(name))); filepath.IsLocal(name) && name != "." {
			names[name] = true
		}
	}
	for line := range bytes.Lines(patch) {
		// The patch command also accepts patches that are indented or quoted in a mail ("- " before dashes).
		text := strings.TrimLeft(strings.TrimRight(string(line), "\r\n"), " \tX")
		for strings.HasPrefix(text, "- -") {
			text = text[2:]
		}
		for _, header := range []string{"--- ", "+++ ", "*** ", "Index: "} {
			if rest, ok := strings.CutPrefix(text, header); ok {
				add(stripped(rest))
			}
		}
		for _, header := range []string{"rename from ", "rename to ", "copy from ", "copy to "} {
			if rest, ok := strings.CutPrefix(text, header); ok {
				add(rest)
			}
		}
		if rest, ok := strings.CutPrefix(text, "diff --git "); ok {
			for _, name := range gitNames(rest) {
				add(name)
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// stripped returns the name in a header without its time stamp and, as with -p1, without its first directory.
func stripped(name string) string {
	if !strings.HasPrefix(name, `"`) {
		name, _, _ = strings.Cut(name, "\t")
	}
	name = unquoted(strings.TrimSpace(name))
	if name == "/dev/null" {
		return ""
	}
	_, rest, found := strings.Cut(name, "/")
	if !found {
		return name
	}
	return strings.TrimLeft(rest, "/")
}

// gitNames parses "a/x b/y". If the names contain spaces, it returns every way to split the line.
func gitNames(rest string) []string {
	var names []string
	quoted := strings.HasPrefix(rest, `"`) || strings.HasSuffix(rest, `"`)
	for i := range len(rest) {
		if rest[i] != ' ' {
			continue
		}
		if left, right := stripped(rest[:i]), stripped(rest[i+1:]); quoted || left == right {
			names = append(names, left, right)
		}
	}
	return names
}

// unquoted decodes a name that git has quoted like a C string. A name without valid quotes is returned as it is.
func unquoted(name string) string {
	if text, err := strconv.Unquote(name[:strings.LastIndexByte(name, '"')+1]); err == nil {
		return text
	}
	return name
}
