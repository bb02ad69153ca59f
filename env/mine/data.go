package mine

import (
	"context"
	"path"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/repo"
)

// Many tests read their cases from files: golden files, snapshots, pairs of a source and what a parser makes of it. A
// commit that only adds or changes such data changes its tests, too.

// aside matches files beside tests that are seldom test data.
var aside = env.Pattern(`(?i)(^|/)(readme[^/]*|cmakelists\.txt|makefile|dockerfile|\.[^/]*)$`)

// data returns the files of test data that the commit adds to.
func (c Commit) data() (names []string) {
	for _, ch := range c.Changes {
		if ch.Kind == Data && ch.Status != 'D' && (ch.Added > 0 || ch.Binary) && !aside().MatchString(ch.Path) {
			names = append(names, ch.Path)
		}
	}
	return names
}

// findReaders finds the test files that may read the data that the commit adds to. They are in the language of its
// sources. A snapshot is read by the test file that it is named after, other data by all test files below the nearest
// directory above the data that has any. If the commit also adds to tests that are not data, it finds none.
func (c *Candidate) findReaders(ctx context.Context, dir string) error {
	data, changed := c.data(), c.testsAddedTo()
	if len(data)+len(changed) == 0 || slices.ContainsFunc(changed, func(name string) bool { return !byFolder(name) }) {
		return nil
	}
	out, err := repo.Read(ctx, dir, "ls-tree", "-r", "--name-only", "-z", c.Base)
	if err != nil {
		return err
	}
	tree := strings.Split(string(out), "\x00")
	if slices.ContainsFunc(changed, func(name string) bool { return !isCase(name, tree) }) {
		return nil
	}
	var tests []string
	runner := runnerOf(c.Language())
	for _, name := range tree {
		if runnerOf(languageOf(name)) == runner && runs(name) && kindOf(name) == Test {
			tests = append(tests, name)
		}
	}
	reads := map[string]bool{}
	for _, name := range append(data, changed...) {
		for _, test := range near(name, tests) {
			reads[test] = true
		}
	}
	c.readers = slices.DeleteFunc(tests, func(test string) bool { return !reads[test] })
	return nil
}

// isCase reports whether a script that counts as a test for its folder alone is rather an input of a test, because most
// files beside it are not scripts.
func isCase(name string, tree []string) bool {
	scripts, others := 0, 0
	for _, beside := range tree {
		switch {
		case path.Dir(beside) != path.Dir(name):
		case runnerOf(languageOf(beside)) == "javascript":
			scripts++
		default:
			others++
		}
	}
	return others > scripts
}

// runnerOf returns the language whose test runners also run tests in the given language.
func runnerOf(language string) string {
	switch language {
	case "typescript":
		return "javascript"
	case "c++":
		return "c"
	}
	return language
}

// near returns the test files that are nearest to a file of test data, those with a test's name if there are any above
// it: a test folder may also have other scripts, and scripts among its data.
func near(data string, tests []string) []string {
	if named := below(data, slices.DeleteFunc(slices.Clone(tests), byFolder)); len(named) > 0 {
		return named
	}
	return below(data, tests)
}

// below returns the test files in and below the nearest directory above a file of test data that has any. If the data
// are named after some of these, it returns only them.
func below(data string, tests []string) []string {
	for at := path.Dir(data); ; at = path.Dir(at) {
		var all, named []string
		for _, test := range tests {
			if at == "." || strings.HasPrefix(test, at+"/") {
				all = append(all, test)
				if strings.HasPrefix(path.Base(data), path.Base(test)) {
					named = append(named, test)
				}
			}
		}
		switch {
		case len(named) > 0:
			return named
		case len(all) > 0 || at == ".":
			return all
		}
	}
}
