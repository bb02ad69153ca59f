package verify

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/diff"
	"deepswe/env/repo"
	"deepswe/verify/allowlist"
)

// TestTampering means that the tests pass only with changes that the strict trial withholds.
const TestTampering SuspicionKind = "steering"

// A patch can pass tests by fixing the code, or by changing the tests or how they run. Changes of the second kind are
// no evidence of a fix, but they are not forbidden, because good patches come with tests. So the strict trial takes
// only what a fix consists of (see package allowlist), and checks whether the patch still passes. If the task's own
// solution changes a file of the second kind, that change is part of the task, and the solution's version of the file
// is used.

// Withheld is a change that the strict trial does not take from the patch.
type Withheld struct {
	Path   string           `json:"path"`
	Reason allowlist.Reason `json:"reason"`
	// Instead is what replaces the change in the strict trial.
	Instead Replacement `json:"instead"`
}

// Replacement is what the strict trial uses instead of a change.
type Replacement string

// The replacements.
const (
	Original Replacement = "original" // the file without the patch, if it exists
	Solution Replacement = "solution" // the solution's version
	Parts    Replacement = "parts"    // the patch's version without the parts that could affect the runner
)

// snapshot holds the files that the patch could change, as they are before it is applied.
type snapshot struct {
	list *allowlist.List
	// files are the files at the paths that the patch could write to, by path.
	files map[string]file
	// solution are the solution's versions of those files that the solution changes as well.
	solution map[string]file
}

// look takes the snapshot. It returns nil if a script gives the reward itself and calls no known test runner: then the
// task may ask for any file, and only the script can judge a patch.
func (t *trial) look(ctx context.Context) (*snapshot, error) {
	if t.task.Tests.RewardFile != "" && !runnerCalls().MatchString(shellText(t.task)) {
		return nil, nil
	}
	s := &snapshot{files: map[string]file{}}
	for _, name := range patchedPaths(t.patch) {
		f, err := readFile(ctx, t.sb, name)
		if err != nil {
			return nil, err
		}
		s.files[name] = f
	}
	if len(s.files) == 0 {
		return s, nil
	}
	listing, err := t.sb.List(ctx, t.sb.Dir(), env.ListOptions{Hidden: true, Depth: listedDepth, Limit: listedFiles})
	if err != nil {
		return nil, fmt.Errorf("list the repository: %w", err)
	}
	tests := t.task.Tests
	r := allowlist.Repository{
		Solution: patchedPaths([]byte(tests.GoldPatch)), Expected: slices.Concat(tests.FailToPass, tests.PassToPass),
		Hidden: slices.Concat(slices.Collect(maps.Keys(tests.Files)), patchedPaths([]byte(tests.TestPatch))),
		Script: tests.Script,
	}
	if tests.RewardFile != "" {
		r.Script = shellText(t.task) // the script of a Harbor task only calls a file of the tests
	}
	for _, e := range listing.Entries {
		if name, err := filepath.Rel(t.sb.Dir(), e.Path); err == nil && e.Kind != env.KindDir {
			r.Files = append(r.Files, name)
		}
	}
	if err := t.loaded(ctx, s.files, &r); err != nil {
		return nil, err
	}
	s.list = allowlist.New(r)
	s.solution, err = t.solve(ctx, s.files)
	return s, err
}

// loaded notes what the repository's own sources, as they are without the patch, load although it is named like
// tests: files that the patch changes, data that it adds, and directories that it adds files to.
func (t *trial) loaded(ctx context.Context, files map[string]file, r *allowlist.Repository) error {
	searches := 0
	search := func(term string, names []string, loads func(source, line string) bool) ([]string, error) {
		if searches == mostSearches {
			return nil, nil
		}
		searches++
		return t.sourcesWith(ctx, env.Query{Term: term, Regexp: true, Names: names}, loads)
	}
	loads := func(name string, targets ...string) (bool, error) {
		term, names, ok := allowlist.Loaders(name)
		if !ok {
			return false, nil
		}
		sources, err := search(term, names, func(source, line string) bool {
			return allowlist.Loads(source, line, targets...)
		})
		return len(sources) > 0, err
	}
	r.Named = map[string][]string{}
	asked := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		dir, isProduct := allowlist.Product(name)
		index := dir + "/index" + path.Ext(name)
		var ok bool
		var err error
		switch {
		case f.kind == env.KindFile && allowlist.ByName(name) == allowlist.Tests && !allowlist.DeclaresTests(f.data):
			if ok, err = loads(name, name); ok {
				r.Loaded = append(r.Loaded, name)
			}
		case f.kind == "" && allowlist.MayBeData(name):
			term, names := allowlist.Mentions(name)
			r.Named[name], err = search(term, names, func(source, line string) bool {
				return allowlist.ByName(source) == "" && allowlist.Names(source, line, name, false)
			})
		case f.kind == "" && !isProduct && allowlist.MayBeListed(name) && !allowlist.DeclaresTests(f.data):
			term, names := allowlist.Listings(name)
			r.Named[name], err = search(term, names, func(source, line string) bool {
				return allowlist.MayList(source, line, name)
			})
		case f.kind == "" && isProduct && !asked[index] && !slices.Contains(r.Products, dir):
			asked[index] = true
			below := slices.DeleteFunc(slices.Clone(r.Files), func(one string) bool { return !strings.HasPrefix(one, dir+"/") })
			if ok, err = loads(index, below...); ok {
				r.Products = append(r.Products, dir)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sourcesWith returns the files of the repository with a line that matches the query and that loads accepts.
func (t *trial) sourcesWith(
	ctx context.Context, q env.Query, loads func(source, line string) bool,
) (sources []string, err error) {
	found, err := t.sb.Search(ctx, q)
	if env.IsInfrastructure(ctx, err) {
		return nil, fmt.Errorf("search the repository: %w", err)
	}
	for _, m := range found.Matches {
		if source, err := filepath.Rel(t.sb.Dir(), m.Path); err == nil && loads(source, string(m.Text)) {
			sources = append(sources, source)
		}
	}
	return sources, nil
}

// listedDepth and listedFiles limit the listing of a repository, which must show packages and languages, but not every
// file.
const (
	listedDepth = 8
	listedFiles = 50_000
)

// solve returns the solution's versions of the files that both the patch and the solution change. If the solution's
// changes to these files do not apply on their own, it returns none.
func (t *trial) solve(ctx context.Context, files map[string]file) (map[string]file, error) {
	var part []byte
	before := map[string]file{}
	for _, section := range diff.Files(strings.TrimSuffix(t.task.Tests.GoldPatch, "\n") + "\n") {
		names := patchedPaths([]byte(section.Text))
		if !slices.ContainsFunc(names, func(name string) bool { _, ok := files[name]; return ok }) {
			continue
		}
		part = append(part, section.Text...)
		for _, name := range names {
			f, err := readFile(ctx, t.sb, name)
			if err != nil {
				return nil, err
			}
			before[name] = f
		}
	}
	if len(part) == 0 {
		return nil, nil
	}
	after, refusal, err := patched(ctx, part, slices.Collect(maps.Values(before)))
	if refusal != "" || errors.Is(err, repo.ErrNoGit) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	solution := map[string]file{}
	for _, f := range after {
		solution[f.name] = f
	}
	return solution, nil
}

// change is a path that the patch has changed.
type change struct{ before, after file }

// changes compares the repository with the snapshot after the patch was applied.
func (t *trial) changes(ctx context.Context, s *snapshot) ([]change, error) {
	if s == nil {
		return nil, nil
	}
	var all []change
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		after, err := readFile(ctx, t.sb, name)
		if err != nil {
			return nil, err
		}
		if c := (change{s.files[name], after}); !after.equal(c.before) || after.kind == env.KindOther {
			all = append(all, c)
		}
	}
	return all, nil
}

// withhold decides which changes the strict trial takes, and what it uses instead of the others. Only changes for which
// reaches is true are withheld.
func (s *snapshot) withhold(
	changes []change, reaches func(change, allowlist.Reason) bool,
) (withheld []Withheld, instead []file) {
	verdicts := s.judge(changes)
	for i, c := range changes {
		v := verdicts[i]
		if v.Reason == "" || !reaches(c, v.Reason) {
			continue
		}
		w, f := Withheld{c.before.name, v.Reason, Original}, c.before
		if solution, ok := s.solution[c.before.name]; ok {
			w.Instead, f = Solution, solution
		} else if v.Instead != nil {
			w.Instead, f = Parts, c.after
			f.data = v.Instead
		}
		if !f.equal(c.after) {
			withheld, instead = append(withheld, w), append(instead, f)
		}
	}
	return withheld, instead
}

// judge returns what the list says about changes.
func (s *snapshot) judge(changes []change) (verdicts []allowlist.Verdict) {
	all := make([]allowlist.Change, len(changes))
	for i, c := range changes {
		all[i] = allowlist.Change{Path: c.before.name, Before: c.before.version(), After: c.after.version()}
	}
	s.list.Adopt(all)
	for _, c := range all {
		verdicts = append(verdicts, s.list.Judge(c))
	}
	return verdicts
}

func (f file) version() allowlist.Version {
	return allowlist.Version{Kind: f.kind, Data: f.data, Target: f.target}
}

// vendorDir is the directory that `go mod vendor` writes.
const vendorDir = "vendor/"

// takeVendored takes those withheld changes below vendor that `go mod vendor` also makes from the go.mod of the
// strict trial: go.mod alone decides them, and Go would refuse to build with anything else. ok is as in install.
func (t *trial) takeVendored(ctx context.Context, changes []change) (ok bool, err error) {
	isVendored := func(w Withheld) bool {
		return w.Reason == allowlist.ThirdParty && w.Instead == Original && strings.HasPrefix(w.Path, vendorDir)
	}
	if !slices.ContainsFunc(t.v.Withheld, isVendored) {
		return true, nil
	}
	dir := "/tmp/deepswe-" + rand.Text()
	r, err := t.sb.Run(ctx, env.Command{
		Line:    "PATH=$PATH:/usr/local/go/bin go mod vendor -o " + dir,
		Timeout: applyTimeout, Env: []string{"GOFLAGS=", "GOPROXY=off", "GOTOOLCHAIN=local", "GOWORK=off"},
	})
	if err != nil {
		return false, fmt.Errorf("vendor again: %w", err)
	}
	if r.TimedOut || r.ExitCode != 0 { // there is no such tool, or the machine does not have the modules
		return true, nil
	}
	outside, err := filepath.Rel(t.sb.Dir(), dir)
	if err != nil {
		return false, fmt.Errorf("vendor again: %w", err)
	}
	var taken []file
	for _, c := range changes {
		rest, ok := strings.CutPrefix(c.after.name, vendorDir)
		if !ok || c.after.kind != env.KindFile && c.after.kind != "" {
			continue
		}
		written, err := readFile(ctx, t.sb, path.Join(outside, rest))
		if err != nil {
			return false, err
		}
		if written.kind == c.after.kind && string(written.data) == string(c.after.data) {
			taken = append(taken, c.after)
		}
	}
	t.v.Withheld = slices.DeleteFunc(t.v.Withheld, func(w Withheld) bool {
		return isVendored(w) && slices.ContainsFunc(taken, func(f file) bool { return f.name == w.Path })
	})
	if _, err := t.sb.Run(ctx, env.Command{Line: "rm -rf " + dir, Timeout: applyTimeout}); err != nil {
		return false, fmt.Errorf("remove what was vendored: %w", err)
	}
	return t.install(ctx, taken)
}

// reaches reports whether a change that could affect a runner must be withheld in this task. If a script gives the
// reward itself, the task may ask for any file, so that only files without any other use are withheld, and none that
// the task mentions.
func (t *trial) reaches(c change, why allowlist.Reason) bool {
	if t.task.Tests.RewardFile == "" {
		return true
	}
	base := path.Base(c.before.name)
	if strings.Contains(t.task.Statement, base) {
		return false
	}
	switch why {
	case allowlist.Metadata, allowlist.Shadow, allowlist.ThirdParty:
		return true
	case allowlist.Compiled:
		return path.Ext(base) == ".pyc" || path.Ext(base) == ".pyo"
	case allowlist.Configuration, allowlist.Build:
		return runnersOwn().MatchString(base) || changesRunner(c.before.data, c.after.data)
	case allowlist.Tests:
		return path.Ext(base) == ".go" && bytes.Contains(c.after.data, []byte("func TestMain("))
	}
	return false
}

// changesRunner reports whether a settings file has a new line about a test runner.
func changesRunner(before, after []byte) bool {
	known := map[string]bool{}
	for line := range bytes.Lines(before) {
		known[string(bytes.TrimSpace(line))] = true
	}
	for line := range bytes.Lines(after) {
		if !known[string(bytes.TrimSpace(line))] && runnersPart().Match(line) {
			return true
		}
	}
	return false
}

// takePatch applies the patch and, in a strict trial, takes back what no fix needs. It returns the telltales. ok is
// false if there is nothing to test: v or the error says why.
func (t *trial) takePatch(ctx context.Context) (telltales []Suspicion, ok bool, err error) {
	before, changes, err := t.applied(ctx)
	if err != nil || t.v.Applied == "" {
		return nil, false, err
	}
	var instead []file
	if len(changes) > 0 {
		t.v.Withheld, instead = before.withhold(changes, t.reaches)
	}
	telltales = t.telltales(changes)
	if !t.strict {
		return telltales, true, nil
	}
	if ok, err := t.install(ctx, instead); !ok {
		return nil, false, err
	}
	ok, err = t.takeVendored(ctx, changes)
	return telltales, ok, err
}

// applied applies the patch, and returns the repository before it and what it has changed. If it does not apply, v says
// so.
func (t *trial) applied(ctx context.Context) (before *snapshot, changes []change, err error) {
	if before, err = t.look(ctx); err != nil {
		return nil, nil, err
	}
	command, failure, err := t.apply(ctx)
	if err != nil {
		return nil, nil, err
	}
	if t.v.Applied = command; command == "" {
		t.v.Status, t.v.Detail = PatchFailed, failure
		return nil, nil, t.needRoom(ctx)
	}
	changes, err = t.changes(ctx, before)
	return before, changes, err
}
