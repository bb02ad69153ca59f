package verify

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/verify/allowlist"
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

// indicators returns the forgery indicators that came with the patch: neither the task's solution has them, nor the
// repository's own code did.
func (t *trial) indicators(ctx context.Context, changes []change) ([]string, error) {
	var before, after [][]byte
	own := map[string]bool{}
	for _, c := range changes {
		own[c.before.name] = true
		if !slices.ContainsFunc(t.v.Withheld, func(w Withheld) bool { return w.Path == c.before.name }) {
			before, after = append(before, c.before.data), append(after, c.after.data)
		}
	}
	has := func(files [][]byte, s string) bool {
		return slices.ContainsFunc(files, func(data []byte) bool { return bytes.Contains(data, []byte(s)) })
	}
	var found []string
	for _, s := range forgeryIndicators {
		if !has(after, s) || has(before, s) || strings.Contains(t.task.Tests.GoldPatch, s) {
			continue
		}
		known, err := t.uses(ctx, s, own)
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
func (t *trial) uses(ctx context.Context, s string, patched map[string]bool) (bool, error) {
	found, err := t.sb.Search(ctx, env.Query{Term: s})
	if err != nil {
		return false, fmt.Errorf("search the repository: %w", err)
	}
	for _, m := range found.Matches {
		name, err := filepath.Rel(t.sb.Dir(), m.Path)
		if err == nil && !patched[name] && allowlist.ByName(name) == "" {
			return true, nil
		}
	}
	return false, nil
}
