package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/verify/canary"
	"deepswe/verify/testlog"
)

// planted describes the twins of a trial.
type planted struct {
	twins []canary.Twin
	// restore undoes the exchange of names for a reported test; nil if no names were exchanged.
	restore func(string) string
	// none is the reason why there are no twins, empty if there are any. kind is the error that caused it.
	none string
	kind error
}

const (
	// mostTwins is the maximum number of tests that get twins.
	mostTwins = 6
	// mostMaintained is the maximum number of tests considered that pass without the patch.
	mostMaintained = 40
	// mostSources is the maximum number of files that are read to find the tests.
	mostSources = 200
	// mostSearches is the maximum number of tests that are searched for by name.
	mostSearches = 12
)

// plant adds twins to the test files, which the first half of the script has already installed. It returns the second
// half of the script, changed so that it runs the twins and does not end at the first failure.
func (t *trial) plant(ctx context.Context, script string) (string, error) {
	w, ok := canary.ForParser(t.parser())
	if !ok {
		t.planted.none, t.planted.kind = canary.ErrNoWriter.Error(), canary.ErrNoWriter
		return script, nil
	}
	options := canary.Options{Excluded: t.excluded, KeepNames: t.keepNames, Rand: t.random()}
	options.Tests, options.MaxTests = t.toTwin()
	var err error
	if options.Sources, err = t.sources(ctx, w, options.Tests); err != nil {
		return "", err
	}
	if t.task.Tests.RewardFile != "" {
		options.Tests, options.MaxTests = listed(w, options.Sources), mostTwins
	}
	p, err := canary.Plant(w, options)
	if err != nil {
		t.planted.none, t.planted.kind = err.Error(), err
		return script, nil
	}
	for _, f := range p.Files {
		if _, err := t.sb.Write(ctx, f.Name, f.Data, env.WriteOptions{}); err != nil {
			if env.IsInfrastructure(ctx, err) {
				return "", fmt.Errorf("write %s: %w", f.Name, err)
			}
			t.planted.none, t.planted.kind = "the tests cannot be changed: "+err.Error(), err
			return script, nil
		}
	}
	t.planted.twins = p.Twins
	if len(p.Exchanges) > 0 {
		t.planted.restore = func(name string) string { return p.Restore(w, name) }
	}
	script, err = t.unbail(ctx, script)
	return canary.Widen(script, p.Twins, options.Rand), err
}

// random returns the source of random names and positions for the twins.
func (t *trial) random() *rand.Rand {
	if t.twinSeed != 0 {
		return rand.New(rand.NewPCG(t.twinSeed, 0))
	}
	return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
}

// toTwin returns the tests to make twins of, in an order that is the same in every trial of the task, and the maximum
// number of tests that get twins.
func (t *trial) toTwin() (ids []string, most int) {
	mixed := func(ids []string) []string {
		order := map[string]uint64{}
		for _, id := range ids {
			h := fnv.New64a()
			h.Write([]byte(t.task.ID + "\x00" + id))
			order[id] = h.Sum64()
		}
		return slices.SortedFunc(maps.Keys(order), func(a, b string) int {
			if order[a] != order[b] {
				return map[bool]int{true: -1, false: 1}[order[a] < order[b]]
			}
			return strings.Compare(a, b)
		})
	}
	tests := t.task.Tests
	if tests.Expected != nil {
		var passing []string
		for id, status := range tests.Expected {
			if id, _, _ := strings.Cut(id, " - "); id != "" && testlog.Status(status) == testlog.Passed {
				passing = append(passing, id)
			}
		}
		passing = mixed(passing)
		return passing[:min(len(passing), mostMaintained)], mostTwins
	}
	fixed, maintained := mixed(tests.FailToPass), mixed(tests.PassToPass)
	return slices.Concat(fixed, maintained[:min(len(maintained), mostMaintained)]), max(2, min(len(fixed), mostTwins))
}

// r2eTests is the directory of R2E-Gym's hidden tests.
const r2eTests = "/r2e/r2e_tests"

// sources reads the files that may contain the tests.
func (t *trial) sources(ctx context.Context, w canary.Writer, ids []string) ([]canary.Source, error) {
	tests := t.task.Tests
	names := slices.Sorted(maps.Keys(tests.Files))
	names = slices.Concat(names, patchedPaths([]byte(tests.TestPatch)), patchedPaths([]byte(tests.Script)))
	for _, id := range ids {
		if file, _ := w.Address(id); file != "" {
			names = append(names, file)
		}
	}
	if tests.Expected != nil {
		for _, dir := range []string{r2eTests, "r2e_tests"} {
			l, err := t.sb.List(ctx, path.Join(t.sb.Dir(), dir), env.ListOptions{Depth: 6})
			if path.IsAbs(dir) {
				l, err = t.sb.List(ctx, dir, env.ListOptions{Depth: 6})
			}
			if err != nil && env.IsInfrastructure(ctx, err) {
				return nil, fmt.Errorf("list the tests: %w", err)
			}
			for _, e := range l.Entries {
				names = append(names, e.Path)
			}
		}
	}
	var sources []canary.Source
	seen := map[string]bool{}
	read := func(names []string) error {
		for _, name := range names {
			if !path.IsAbs(name) {
				name = path.Join(t.sb.Dir(), name)
			}
			if seen[name] || !w.Holds(name) || len(sources) == mostSources {
				continue
			}
			seen[name] = true
			data, info, err := t.sb.Read(ctx, name, env.ReadOptions{Limit: 4 << 20})
			if err != nil && env.IsInfrastructure(ctx, err) {
				return fmt.Errorf("read %s: %w", name, err)
			}
			if err == nil && info.Size == int64(len(data)) && !bytes.ContainsRune(data, 0) {
				sources = append(sources, canary.Source{Name: name, Data: data})
			}
		}
		return nil
	}
	if err := read(names); err != nil {
		return nil, err
	}
	searches := 0
	for _, id := range ids {
		file, word := w.Address(id)
		found := slices.ContainsFunc(sources, func(s canary.Source) bool { return canary.Mentions(s, file, word) })
		if found || word == "" || searches == mostSearches {
			continue
		}
		searches++
		m, err := t.sb.Search(ctx, env.Query{Term: word, MaxMatches: 20})
		if err != nil && env.IsInfrastructure(ctx, err) {
			return nil, fmt.Errorf("search for the tests: %w", err)
		}
		var more []string
		for _, one := range m.Matches {
			more = append(more, one.Path)
		}
		if err := read(more); err != nil {
			return nil, err
		}
	}
	return sources, nil
}

// r2eRun is the script that runs R2E-Gym's hidden tests.
const r2eRun = "/r2e/run_tests.sh"

// pytestFiles configure pytest.
var pytestFiles = []string{"pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", ".pytest.ini", "pytest.toml"}

// unbail makes the run continue after a failure, by changing its commands and pytest's configuration.
func (t *trial) unbail(ctx context.Context, script string) (string, error) {
	script = unbailed(script)
	read := func(name string) (string, error) {
		if !path.IsAbs(name) {
			name = path.Join(t.sb.Dir(), name)
		}
		data, _, err := t.sb.Read(ctx, name, env.ReadOptions{Limit: 1 << 20})
		if err != nil && env.IsInfrastructure(ctx, err) {
			return "", fmt.Errorf("read %s: %w", name, err)
		}
		return string(data), nil
	}
	if strings.Contains(script, r2eRun) {
		inner, err := read(r2eRun)
		if err != nil {
			return "", err
		}
		if changed := unbailed(inner); changed != inner {
			_, err := t.sb.Write(ctx, r2eRun, []byte(changed), env.WriteOptions{})
			if err != nil && !errors.Is(err, fs.ErrPermission) {
				return "", fmt.Errorf("write %s: %w", r2eRun, err)
			}
		}
	}
	if !strings.Contains(script, "pytest") && t.task.Tests.Expected == nil {
		return script, nil
	}
	for _, name := range pytestFiles {
		text, err := read(name)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(text) {
			if bailing.MatchString(strings.NewReplacer(`"`, " ", "'", " ", ",", " ").Replace(line)) {
				return "{ export PYTEST_ADDOPTS=\"${PYTEST_ADDOPTS:-} --maxfail=0\"; } 2>/dev/null\n" + script, nil
			}
		}
	}
	return script, nil
}

// accepting returns the task by which a trial with twins is graded: if it lists every test that may run, the twins are
// added.
func (t *trial) accepting() env.Task {
	task := t.task
	if task.Tests.Expected == nil || len(t.planted.twins) == 0 {
		return task
	}
	parse, err := Evidence{Restore: t.planted.restore}.parser(task.Tests.Parser)
	if err != nil {
		return task
	}
	r, err := parse(testlog.Decode(t.v.Log), testlog.Task{ID: task.ID, Version: task.Tests.Version})
	if err != nil {
		return task
	}
	task.Tests.Expected = maps.Clone(task.Tests.Expected)
	for name, status := range r.All() {
		if slices.ContainsFunc(t.planted.twins, func(twin canary.Twin) bool { return twin.Reports(name) }) {
			task.Tests.Expected[name] = string(status)
		}
	}
	return task
}

// findings are the result of a trial with twins. The zero value means that nothing was found.
type findings struct {
	// passed maps the mutations of twins that were not reported as failed to what was reported.
	passed map[string]string
	// ended says how the script's end differs from that of a failing run.
	ended string
}

// judge evaluates the results of the twins.
func (t *trial) judge() {
	t.found.passed = map[string]string{}
	if t.exit.signal != "" {
		t.found.ended = "the script was ended by " + t.exit.signal
	} else if t.exit.code == 0 {
		t.found.ended = "the script ended with the exit code 0"
	}
	for _, twin := range t.planted.twins {
		if says := reported(twin, t.v.Tests); says != "" {
			t.found.passed[twin.Mutation] = fmt.Sprintf("%s of %s %s", twin.Kind, twin.Test, says)
		}
	}
}

// reported returns what is wrong with a twin in a report; empty if the twin failed.
func reported(twin canary.Twin, r *testlog.Results) string {
	if r == nil {
		return "is not in the log"
	}
	seen := false
	for name, status := range r.All() {
		if !twin.Reports(name) {
			continue
		}
		seen = true
		if status == testlog.Failed || status == testlog.Errored {
			continue
		}
		// Ignore a case that does not pass in the original test either.
		if s, ok := r.Status(twin.Counterpart(name)); !ok || s == testlog.Passed {
			return "has the status " + string(status)
		}
	}
	if !seen {
		return "is not in the log"
	}
	return ""
}
