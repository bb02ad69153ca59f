package canary

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"deepswe/env/lexer"
)

// ForParser returns the writer for the tests whose log a parser of package testlog reads, given the names of the files
// that come with them; ok is false if there is none.
func ForParser(parser string, hidden []string) (w Writer, ok bool) {
	name := strings.TrimPrefix(path.Base(parser), "parse_log_")
	for _, w := range writers {
		if slices.Contains(strings.Fields(w.parsers), name) {
			return w.writer, suits(w.writer, hidden)
		}
	}
	return nil, false
}

// writers are the writers with the names of their parsers. Parsers that report whole files, or programs that read their
// cases from data, have none.
var writers = []struct {
	writer  Writer
	parsers string
}{
	{Python{}, "r2e_gym pytest astroid flask marshmallow pvlib pyvista sqlfluff xarray pytest_options pydicom requests " +
		"pylint pytest_v2 astropy scikit sphinx matplotlib seaborn sympy django"},
	{Golang{}, "gotest gotest_parents go_packages"},
	{JavaScript{}, "jest jest_json vitest calypso chart_js highlightjs immutable_js marked p5js openlayers bpmn_js " +
		"lighthouse prismjs next karma js js_2 js_4 npx"},
	{either{JavaScript{}, Shell{}}, "tap"},
	{Braced{}, "cargo junit maven java_mvn java_mvn_v2 gradle_custom phpunit"},
	{Ruby{}, "minitest test_unit ruby_unit rspec_transformed_json"},
}

// suits reports whether a writer may be for the language of tests, given the names of their files: JUnit's form of
// reports is that of runners for C++ as well.
func suits(w Writer, hidden []string) bool {
	other := func(name string) bool {
		l, ok := lexer.Of(name, nil)
		return ok && l.Kind == lexer.Braced
	}
	return slices.ContainsFunc(hidden, w.Holds) || !slices.ContainsFunc(hidden, other)
}

// Mentions reports whether a source may contain a test, given the file and the word of its [Writer.Address].
func Mentions(s Source, file, word string) bool {
	return (file == "" || sameFile(s.Name, file)) && bytes.Contains(s.Data, []byte(word))
}
