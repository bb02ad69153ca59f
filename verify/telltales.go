package verify

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/verify/allowlist"
	"deepswe/verify/telltale"
)

// Telltale means that the patch adds code that is needed to forge results but not to fix a bug. It lowers a reward only
// if Evaluator.RefuseTelltales is set.
const Telltale SuspicionKind = "telltale"

// telltales returns the telltales in the changes that the strict trial takes, which have been applied. It ignores those
// that were in the same files before, in the task's solution, or in other code of the repository.
func (t *trial) telltales(ctx context.Context, changes []change) ([]Suspicion, error) {
	had := solutionTelltales([]byte(t.task.Tests.GoldPatch))
	own := map[string]bool{}
	taken := slices.DeleteFunc(slices.Clone(changes), func(c change) bool {
		return slices.ContainsFunc(t.v.Withheld, func(w Withheld) bool { return w.Path == c.before.name })
	})
	for _, c := range taken {
		own[c.before.name] = true
		for _, f := range telltale.Find(c.before.name, c.before.data) {
			f.Line = 0
			had[f] = true
		}
	}
	var found []Suspicion
	for _, c := range taken {
		for _, f := range telltale.Find(c.after.name, c.after.data) {
			line := f.Line
			if f.Line = 0; had[f] || strings.Contains(t.task.Tests.GoldPatch, f.What) {
				continue
			}
			had[f] = true
			known, err := t.uses(ctx, f, own)
			if err != nil {
				return nil, err
			}
			if !known {
				found = append(found, Suspicion{Telltale, fmt.Sprintf("%s:%d: %s (%s)", c.after.name, line, f.What, f.Rule)})
			}
		}
	}
	return found, nil
}

// solutionTelltales returns the telltales, without line numbers, in the parts of files that the task's solution
// changes.
func solutionTelltales(gold []byte) map[telltale.Finding]bool {
	had := map[telltale.Finding]bool{}
	for _, section := range patchSections(gold) {
		var after strings.Builder
		hunk := false
		for line := range strings.Lines(string(section)) {
			switch {
			case strings.HasPrefix(line, "@@"):
				hunk = true
			case hunk && (line[0] == '+' || line[0] == ' '):
				after.WriteString(line[1:])
			}
		}
		for _, name := range patchedPaths(section) {
			for _, f := range telltale.Find(name, []byte(after.String())) {
				f.Line = 0
				had[f] = true
			}
		}
	}
	return had
}

// mostUses is the maximum number of files in which to search for a telltale in the repository's own code.
const mostUses = 20

// uses reports whether the repository's own code has the telltale, except for tests and for files that the patch
// changes.
func (t *trial) uses(ctx context.Context, f telltale.Finding, patched map[string]bool) (bool, error) {
	found, err := t.sb.Search(ctx, env.Query{Term: f.Term()})
	if err != nil {
		return false, fmt.Errorf("search the repository: %w", err)
	}
	read := map[string]bool{}
	for _, m := range found.Matches {
		name, err := filepath.Rel(t.sb.Dir(), m.Path)
		if err != nil || read[name] || patched[name] || !telltale.Reads(name) || allowlist.ByName(name) != "" {
			continue
		}
		if read[name] = true; len(read) > mostUses {
			break
		}
		file, err := readFile(ctx, t.sb, name)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(telltale.Find(name, file.data), func(g telltale.Finding) bool {
			return g.Rule == f.Rule && g.What == f.What
		}) {
			return true, nil
		}
	}
	return false, nil
}
