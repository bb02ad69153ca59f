package verify

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
)

// ForgeryIndicator means that the patch adds code that forged results need, and that a fix has no use for.
const ForgeryIndicator SuspicionKind = "telltale"

// forgeryIndicators are strings in such code: what grading and runners print, what reaches into a runner from the code
// that it tests, and what ends a process before its runner can report. Code under test shares a process with its
// runner: a patch that builds these strings at run time can still forge results, but the easy way is closed.
var forgeryIndicators = []string{
	startMarker, endMarker, exitMarker, "short test summary info", "--- PASS: ", "# Subtest",
	"_pytest", "pytest_runtest", "PYTEST_CURRENT_TEST", "PYTEST_VERSION",
	"sys.modules[\"pytest\"]", "sys.modules['pytest']",
	"TestReport", "node:test", "testing.Testing", "JEST_WORKER_ID",
	"os._exit", "os.abort", "os.execv", "os.execl", "os.Exit(", "syscall.Exit(", "syscall.Exec(",
	"process.exit(", "process.reallyExit",
	"process.abort(", "System.exit(", "Runtime.getRuntime().halt",
}

// code reads the files that the patch changes, except those that are reverted anyway.
func (t *trial) code(ctx context.Context) (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, name := range patchedPaths(t.patch) {
		if slices.ContainsFunc(t.reverted, func(f file) bool { return f.name == name }) {
			continue
		}
		f, err := readFile(ctx, t.sb, name)
		if err != nil {
			return nil, err
		}
		all[name] = f.data
	}
	return all, nil
}

// indicators returns the forgery indicators that came with the patch, which has been applied by now: neither the task's
// solution has them, nor the repository's own code did. before is what code returned before.
func (t *trial) indicators(ctx context.Context, before map[string][]byte) ([]string, error) {
	if len(before) == 0 {
		return nil, nil
	}
	after, err := t.code(ctx)
	if err != nil {
		return nil, err
	}
	has := func(files map[string][]byte, s string) bool {
		for _, data := range files {
			if bytes.Contains(data, []byte(s)) {
				return true
			}
		}
		return false
	}
	var found []string
	for _, s := range forgeryIndicators {
		if !has(after, s) || has(before, s) || strings.Contains(t.task.Tests.GoldPatch, s) {
			continue
		}
		known, err := t.uses(ctx, s, before)
		if err != nil {
			return nil, err
		}
		if !known {
			found = append(found, s)
		}
	}
	return found, nil
}

// uses reports whether the code of the repository has the string, except in tests and in the files that the patch
// changes.
func (t *trial) uses(ctx context.Context, s string, patched map[string][]byte) (bool, error) {
	found, err := t.sb.Search(ctx, env.Query{Term: s})
	if err != nil {
		return false, fmt.Errorf("search the repository: %w", err)
	}
	for _, m := range found.Matches {
		name, err := filepath.Rel(t.sb.Dir(), m.Path)
		if _, ok := patched[name]; err == nil && !ok && !controlsTests(name) {
			return true, nil
		}
	}
	return false, nil
}
