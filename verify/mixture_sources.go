package verify

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"unicode/utf8"

	"deepswe/env"
	"deepswe/verify/canary"
)

const (
	// mostSources is the maximum number of files that are read to find the tests.
	mostSources = 200
	// mostSearches is the maximum number of tests that are searched for by name.
	mostSearches = 40
)

// r2eTests is the directory of R2E-Gym's hidden tests.
const r2eTests = "/r2e/r2e_tests"

// testSources collects the files that may contain a trial's tests, and what comes with these, from those that are to
// be installed and those in the sandbox.
type testSources struct {
	trial  *trial
	writer canary.Writer
	own    map[string]file // are to be installed
	seen   map[string]bool
	found  []canary.Source
	// all is false if found lacks some of what the tests come with: there are too many files, or some are too long or
	// not text.
	all bool
}

// sources returns the files that may contain the tests with the given ids.
func (t *trial) sources(
	ctx context.Context, w canary.Writer, ids []string, own map[string]file,
) (sources []canary.Source, all bool, err error) {
	s := &testSources{trial: t, writer: w, own: own, seen: map[string]bool{}, all: true}
	names, err := s.named(ctx, ids)
	if err != nil {
		return nil, false, err
	}
	if err := s.read(ctx, names); err != nil {
		return nil, false, err
	}
	if err := s.search(ctx, ids); err != nil {
		return nil, false, err
	}
	return s.found, s.all, nil
}

// readEarlier reads the repository's tests that others will replace, before code of the patch can have changed them.
func (t *trial) readEarlier(ctx context.Context, patch []byte) error {
	w, ok := canary.ForParser(t.parser(), nil)
	if t.mixing == nil || !ok {
		return nil
	}
	for _, name := range slices.AppendSeq(patchedPaths(patch), maps.Keys(t.task.Tests.Files)) {
		if name = t.at(name); !w.Holds(name) {
			continue
		}
		data, _, err := t.sb.Read(ctx, name, env.ReadOptions{Limit: 4 << 20})
		if env.IsInfrastructure(ctx, err) {
			return fmt.Errorf("read %s: %w", name, err)
		}
		t.earlier = append(t.earlier, canary.Source{Name: name, Data: data})
	}
	return nil
}

// named returns the paths that the task names and, for R2E-Gym's tasks, those in the directories of hidden tests.
func (s *testSources) named(ctx context.Context, ids []string) ([]string, error) {
	tests := s.trial.task.Tests
	names := slices.Sorted(maps.Keys(s.own))
	for _, w := range s.trial.v.Withheld { // the solution's file may say more than what it replaces
		if w.Instead == Solution {
			names = append(names, w.Path)
		}
	}
	names = slices.Concat(names, patchedPaths([]byte(tests.TestPatch)), patchedPaths([]byte(tests.Script)))
	for _, id := range ids {
		if file, _ := s.writer.Address(id); file != "" {
			names = append(names, file)
		}
	}
	if tests.Expected == nil {
		return names, nil
	}
	for _, dir := range []string{r2eTests, "r2e_tests"} {
		l, err := s.trial.sb.List(ctx, s.trial.at(dir), env.ListOptions{Depth: 6})
		if env.IsInfrastructure(ctx, err) {
			return nil, fmt.Errorf("list the tests: %w", err)
		}
		for _, e := range l.Entries {
			names = append(names, e.Path)
		}
	}
	return names, nil
}

// read reads the files among the given ones that were not read before.
func (s *testSources) read(ctx context.Context, names []string) error {
	for _, name := range names {
		if name = s.trial.at(name); s.seen[name] {
			continue
		}
		s.seen[name] = true
		if f, ok := s.own[name]; ok {
			s.add(name, f.data, f.kind == env.KindFile)
			continue
		}
		if len(s.found) >= mostSources {
			s.all = false
			continue
		}
		data, info, err := s.trial.sb.Read(ctx, name, env.ReadOptions{Limit: 4 << 20})
		switch {
		case err == nil:
			s.add(name, data, true)
			s.all = s.all && info.Size == int64(len(data))
		case env.IsInfrastructure(ctx, err):
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
	return nil
}

// add adds a file. It leaves out what is not a regular file, what is no text, such as compressed data, and a source
// with zero bytes.
func (s *testSources) add(name string, data []byte, regular bool) {
	if !regular || !utf8.Valid(data) || s.writer.Holds(name) && bytes.ContainsRune(data, 0) {
		s.all = false
		return
	}
	s.found = append(s.found, canary.Source{Name: name, Data: data})
}

// search searches the sandbox for the tests that are in none of the files read so far. It searches only files with
// the same extensions as these: a patch could name a test in many other files, and use up the matches of a search.
func (s *testSources) search(ctx context.Context, ids []string) error {
	var kinds []string
	for _, f := range s.found {
		if kind := "*" + path.Ext(f.Name); s.writer.Holds(f.Name) && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	searches := 0
	for _, id := range ids {
		file, word := s.writer.Address(id)
		found := slices.ContainsFunc(s.found, func(f canary.Source) bool { return canary.Mentions(f, file, word) })
		if found || word == "" || searches == mostSearches {
			continue
		}
		searches++
		m, err := s.trial.sb.Search(ctx, env.Query{Term: word, Names: kinds})
		if env.IsInfrastructure(ctx, err) {
			return fmt.Errorf("search for the tests: %w", err)
		}
		var more []string
		for _, one := range m.Matches {
			if s.writer.Holds(one.Path) {
				more = append(more, one.Path)
			}
		}
		if err := s.read(ctx, more); err != nil {
			return err
		}
	}
	return nil
}
