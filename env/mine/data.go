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
// directory above the data that has any.
func (c *Candidate) findReaders(ctx context.Context, dir string) error {
	data := c.data()
	if len(data) == 0 {
		return nil
	}
	tree, err := repo.Read(ctx, dir, "ls-tree", "-r", "--name-only", "-z", c.Base)
	if err != nil {
		return err
	}
	var tests []string
	runner := runnerOf(c.Language())
	for name := range strings.SplitSeq(string(tree), "\x00") {
		if runnerOf(languageOf(name)) == runner && runs(name) && kindOf(name) == Test {
			tests = append(tests, name)
		}
	}
	reads := map[string]bool{}
	for _, name := range data {
		for _, test := range near(name, tests) {
			reads[test] = true
		}
	}
	c.readers = slices.DeleteFunc(tests, func(test string) bool { return !reads[test] })
	return nil
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

// near returns the test files that are nearest to a file of test data.
func near(data string, tests []string) []string {
	for at := path.Dir(data); ; at = path.Dir(at) {
		var below, named []string
		for _, test := range tests {
			if at == "." || strings.HasPrefix(test, at+"/") {
				below = append(below, test)
				if strings.HasPrefix(path.Base(data), path.Base(test)) {
					named = append(named, test)
				}
			}
		}
		switch {
		case len(named) > 0:
			return named
		case len(below) > 0 || at == ".":
			return below
		}
	}
}
