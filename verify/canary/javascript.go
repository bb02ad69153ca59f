package canary

import (
	"path"
	"strings"

	"deepswe/env"
)

// JavaScript changes tests for Jest, Vitest, Mocha and Node's own runner, in JavaScript and TypeScript.
type JavaScript struct{}

var _ Writer = JavaScript{}

// Holds reports whether a file with this name may contain tests.
func (JavaScript) Holds(name string) bool {
	switch path.Ext(name) {
	case ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx":
		return true
	}
	return false
}

// Address splits the id of a test. That is its title, which some reports put after the file and the titles of its
// suites.
func (w JavaScript) Address(id string) (file, word string) {
	if first, _, ok := strings.Cut(id, " > "); ok && w.Holds(first) {
		file = jsProject().ReplaceAllString(first, "")
	}
	id = strings.TrimPrefix(strings.TrimSpace(id), "- ")
	for _, separator := range []string{" > ", " › ", " - ", ": "} {
		if i := strings.LastIndex(id, separator); i >= 0 {
			id = id[i+len(separator):]
		}
	}
	return file, id
}

// jsProject matches the name of a project, which Vitest puts before the file: |node| test/a.test.ts.
var jsProject = env.Pattern(`^\|[^|]*\| `)

func (f *jsFile) ids(string) (ids []string) {
	for _, t := range f.tests {
		if !t.computed {
			ids = append(ids, t.called)
		}
	}
	return ids
}

func (t *jsTest) name() string { return t.called }

func (t *jsTest) extent() (from, to int) {
	return t.file.tokens[t.first].From, t.file.tokens[t.last].To
}
