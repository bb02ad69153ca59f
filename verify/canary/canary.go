package canary

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"regexp"
	"slices"
)

// Source is a file that may contain tests, or what they come with.
type Source struct {
	Name string
	Data []byte
}

// Kind is the way in which a canary changes its test.
type Kind string

// The kinds of canaries.
const (
	// Outright is a test with an additional check that cannot hold. It shows whether failures are reported.
	Outright Kind = "outright"
	// Expectation is a test with one wrong expectation. It fails because of what the code under test returns, so that it
	// also shows objects that claim to be equal to everything.
	Expectation Kind = "expectation"
	// Withheld is a test that writes down what the code under test returns, instead of comparing it with a literal, which
	// is taken out. It must pass, and what it has written must be the literals.
	Withheld Kind = "withheld"
	// Telling is a wrong expectation that shows less: its form is one that few tests have, so that it can be recognised,
	// or it may be in a check that passes without a fix, so that code that forges all other checks fails it as it
	// should.
	Telling Kind = "telling"
	// Variant is a test with other values, which must pass.
	Variant Kind = "variant"
)

// Canary is a change of a test that makes it fail although the code under test is right. With [Withheld] and
// [Variant], it must pass.
type Canary struct {
	// Tests are the ids, among those asked for, under which the test is reported.
	Tests []string
	// May are ids of which it is not known whether they are the test's, because its name is computed.
	May []string
	// Name is the name that the test has in its source.
	Name string
	File string
	Kind Kind
	// Mutation identifies the change. The same source always has the same mutations.
	Mutation string
	// Values are the literals that a withheld test must have written, by the number that it writes before each. A canary
	// of another kind has one at most: the value that the right test expects.
	Values map[int]Literal
	// Group is the same for tests that expect the same. They must be wrong together, because code that reads the file
	// could take for right what most of them expect.
	Group string

	source int
	edits  []edit
}

// Reports reports whether a name from a report is about the test, or about one of its cases. Those of generated tests
// have suffixes ("test_sum_0"), which begin with a digit.
func (c Canary) Reports(name string) bool {
	return regexp.MustCompile(`(?:^|[^\w\x80-\x{10ffff}])` + regexp.QuoteMeta(c.Name) +
		`(?:_*[0-9]|[^\w\x80-\x{10ffff}]|$)`).MatchString(name)
}

// Options say which tests to change.
type Options struct {
	// Tests are the ids of the tests, the most important first. The first Fixes of them are known to fail without a fix;
	// if Fixes is negative, any of them may, and nothing is withheld.
	Tests []string
	Fixes int
	// Cases are the ids of further tests, which are changed only if they are cases of the same functions.
	Cases []string
	// Thorough is the number of tests after the fixes that get the strongest canary they can have. All tests after those
	// get an [Outright] one. 0 means that all tests get the strongest.
	Thorough int
	// Sources are the files that may contain the tests.
	Sources []Source
	// Hidden are the names of the sources that come with the task's tests: whoever wrote the patch has not seen them.
	Hidden []string
	// Most is the maximum number of tests that are changed; 0 means all.
	Most int
	// Earlier are the versions of sources that the repository has: whoever wrote the patch has seen these.
	Earlier []Source
	// Before is the log of a run without a fix, which tells where tests failed; empty if there was none.
	Before []byte
	// Excluded are mutations that must not be used.
	Excluded map[string]bool
	// Record is the path of the file to which tests write the values of withheld literals. If it is empty, none is
	// withheld.
	Record string
	// Only is the only kind of canaries that is used; empty means all.
	Only Kind
	// Variants asks for nothing but tests with other values. Whether these are right is not known.
	Variants bool
	// Rand is used to choose expectations and wrong values. The same sources and the same random numbers give the same
	// canaries.
	Rand *rand.Rand
}

// Set is a set of tests that can be made to fail, at most one canary for each function.
type Set struct {
	Canaries []Canary
	// Skipped maps the ids of tests without a canary to the reason.
	Skipped map[string]string

	sources []Source
	hidden  []string
	// helpers has the helper of each source in which something is withheld, by the source's index: a text that is
	// appended to the source or, if it has a name, a file beside it.
	helpers map[int]Source
}

// The reasons why there are no canaries.
var (
	// ErrNoWriter means that this package cannot write tests for the runner.
	ErrNoWriter = errors.New("no tests can be written for this runner")
	// ErrNone means that no test can be made to fail.
	ErrNone = errors.New("none of the tests can be made to fail")
)

// Writer finds and changes tests in one language.
type Writer interface {
	// Holds reports whether a file with this name may contain tests.
	Holds(name string) bool
	// Address returns the file that a test's id names, if any, and a word that the test's source must contain.
	Address(id string) (file, word string)
	// parse finds the tests in a file. The error says why the file cannot be parsed.
	parse(s Source) (suite, error)
}

// suite is the set of tests in one file.
type suite interface {
	// find returns the test with the id.
	find(id string) (test, bool)
	// ids returns the ids of all tests, in the form that find takes.
	ids(file string) []string
}

// generator is a suite that may have tests whose names are only computed when the file is loaded.
type generator interface {
	// generates returns the test that may have generated the one with the id.
	generates(id string) (test, bool)
}

// test is a test in its file.
type test interface {
	// name is its name in the source.
	name() string
	// extent is the range of the file that it is in, with its comments.
	extent() (from, to int)
	// mutations returns the ways to make the test fail whenever it passes as it is, the best first. The wrong values that
	// it then expects are random.
	mutations(r *chance) []mutation
	// checks returns what can make the test fail, apart from errors.
	checks() []check
}

// List returns the ids of the tests in a file; none if the file cannot be parsed.
func List(w Writer, s Source) []string {
	if !w.Holds(s.Name) {
		return nil
	}
	found, err := w.parse(s)
	if err != nil {
		return nil
	}
	return found.ids(s.Name)
}

// Files returns the files that have canaries, and the hidden ones, all without their comments. In them, the canaries
// with the given indices are wrong. All files are to be written, so that the time of a file does not show whether any
// of its tests is wrong.
func (s Set) Files(wrong []int) []Source {
	edits := map[int][]edit{}
	for i, c := range s.Canaries {
		var changes []edit
		if slices.Contains(wrong, i) {
			changes = c.edits
		}
		edits[c.source] = append(edits[c.source], changes...)
	}
	var files []Source
	for i, source := range s.sources {
		changed, ok := edits[i]
		if !ok && !slices.Contains(s.hidden, source.Name) {
			continue
		}
		data := apply(source.Data, changed)
		helper, needed := s.helpers[i]
		if needed && helper.Name == "" {
			data = append(append(data, "\n\n"...), helper.Data...)
		}
		files = append(files, Source{source.Name, data})
		same := func(f Source) bool { return f.Name == helper.Name }
		if needed && helper.Name != "" && !slices.ContainsFunc(files, same) {
			files = append(files, helper)
		}
	}
	return files
}

// Known reports whether a text contains the right version of all lines that a canary changes. It is false for
// [Outright].
func (s Set) Known(i int, text []byte) bool {
	c := s.Canaries[i]
	text, _, _ = short(Source{c.File, text}, c.Tests)
	source := s.sources[c.source].Data
	return c.Kind != Outright && !slices.ContainsFunc(c.edits, func(e edit) bool {
		from := bytes.LastIndexByte(source[:e.at], '\n') + 1
		line, _, _ := bytes.Cut(source[e.end:], []byte("\n"))
		return !bytes.Contains(text, source[from:e.end+len(line)])
	})
}
