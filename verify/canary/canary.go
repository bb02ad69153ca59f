package canary

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Source is a file of tests.
type Source struct {
	Name string
	Data []byte
}

// Kind is the way in which a twin fails.
type Kind string

// The kinds of twins.
const (
	// Outright is a copy of the test with an additional check that cannot hold.
	Outright Kind = "outright"
	// Expectation is a copy of the test in which one expected value is wrong. It runs the code under test, and passes
	// if that returns an object that claims to be equal to everything.
	Expectation Kind = "expectation"
)

// Twin is a test that must fail.
type Twin struct {
	// Name is unique: a report is about this twin if the reported name contains Name as a word.
	Name string
	// Original is the name that the copied test has in its source, and Test is its id in reports.
	Original string
	Test     string
	File     string
	Kind     Kind
	// Mutation identifies the change. The same source always gives the same mutations.
	Mutation string
}

// Reports reports whether a name from a test report belongs to the twin.
func (t Twin) Reports(name string) bool { return hasWord(name, t.Name) }

// Counterpart takes the name under which a report lists the twin, and returns the one under which it lists the
// original.
func (t Twin) Counterpart(name string) string { return strings.Replace(name, t.Name, t.Original, 1) }

// hasWord reports whether text contains word without a letter, digit or underscore before it. Anything may follow,
// because generated tests have suffixes ("test_sum_0").
func hasWord(text, word string) bool {
	for at := 0; ; {
		i := strings.Index(text[at:], word)
		if i < 0 {
			return false
		}
		at += i
		if at == 0 || !wordByte(text[at-1]) {
			return true
		}
		at++
	}
}

func wordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

// Options say which twins to make.
type Options struct {
	// Tests are the ids of the tests, the most important first.
	Tests []string
	// Sources are the files that may contain the tests.
	Sources []Source
	// MaxTests is the maximum number of tests that get twins; 0 means all.
	MaxTests int
	// Excluded are mutations that must not be used.
	Excluded map[string]bool
	// KeepNames turns off the exchange of names between tests and twins.
	KeepNames bool
	// Rand is used to choose names and positions.
	Rand *rand.Rand
}

// Result is what Plant returns: the changed files, with the twins in them.
type Result struct {
	Files []Source
	Twins []Twin
	// Exchanges lists the tests that have swapped names with a twin. Twins has the names from before the swap; see
	// [Result.Restore].
	Exchanges []Exchange
	// Skipped maps the ids of tests without a twin to the reason.
	Skipped map[string]string
}

// The reasons why there are no twins.
var (
	// ErrNoWriter means that this package cannot write tests for the runner.
	ErrNoWriter = errors.New("no tests can be written for this runner")
	// ErrNoTwin means that no test could be given a twin.
	ErrNoTwin = errors.New("none of the tests can be given a twin")
)

// Writer writes twins in one language.
type Writer interface {
	// Holds reports whether a file with this name may contain tests.
	Holds(name string) bool
	// Address returns the file that a test's id names, if any, and a word that the test's source must contain.
	Address(id string) (file, word string)
	// rename replaces the name of a reported test by to if it is from. It keeps the file and the suites around the
	// name.
	rename(reported, from, to string) (string, bool)
	// parse finds the tests in a file. The error says why the file cannot be parsed.
	parse(s Source) (suite, error)
}

// suite is the set of tests in one file.
type suite interface {
	// find returns the test with the id.
	find(id string) (test, bool)
	// ids returns the ids of all tests, in the form that find takes.
	ids(file string) []string
	// named returns all tests with a name. ok is false if anything else in the file may refer to that name.
	named(name string) (same []test, ok bool)
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
	// titled returns the range of the name in the file, and the text that puts another name there. ok is false if the
	// test may depend on its name.
	titled(name string) (from, to int, text string, ok bool)
	// places returns the offsets at which a twin may be inserted.
	places() []int
	// mutations returns the ways to make a twin of the test, the best first. A twin fails whenever the original passes.
	// The wrong values that it expects are random.
	mutations(r *rand.Rand) []mutation
	// twin returns the source of a twin with the given name, with the edits applied.
	twin(name string, edits []insertion) string
}

// mutation is a change that turns a test into a twin.
type mutation struct {
	kind Kind
	key  string
	// edits are the ways to make the change, which differ in the wrong value: for each, the edits of the file that are
	// within the test. They do not overlap.
	edits [][]insertion
}

// replacement is a mutation that replaces a part of the file by any of the texts.
func replacement(kind Kind, key string, from, to int, texts ...string) mutation {
	m := mutation{kind: kind, key: key}
	for _, text := range texts {
		m.edits = append(m.edits, []insertion{{at: from, end: to, text: text}})
	}
	return m
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

// Plant adds twins to the files of the tests. If there is nothing to add, the error wraps [ErrNoTwin].
func Plant(w Writer, o Options) (Result, error) {
	p := &planter{
		writer: w, options: o, out: Result{Skipped: map[string]string{}}, names: newNames(o), suites: map[int]suite{},
		broken: map[int]error{}, insertions: map[int][]insertion{}, done: map[string]bool{}, exchanged: map[string]bool{},
	}
	p.width = width(p.functions())
	planted := 0
	for _, id := range o.Tests {
		if planted == cmp.Or(o.MaxTests, len(o.Tests)) {
			break
		}
		before := len(p.out.Twins)
		if reason := p.plant(id); reason != "" {
			p.out.Skipped[id] = reason
		}
		if len(p.out.Twins) > before {
			planted++
		}
	}
	if len(p.out.Twins) == 0 {
		return p.out, fmt.Errorf("%w: %s", ErrNoTwin, p.reasons())
	}
	for i, s := range o.Sources {
		o.Rand.Shuffle(len(p.insertions[i]), func(a, b int) {
			p.insertions[i][a], p.insertions[i][b] = p.insertions[i][b], p.insertions[i][a]
		})
		if in := p.insertions[i]; len(in) > 0 {
			p.out.Files = append(p.out.Files, Source{s.Name, insert(s.Data, in)})
		}
	}
	return p.out, nil
}

// planter is the state of one call of Plant.
type planter struct {
	writer     Writer
	options    Options
	out        Result
	names      *names
	suites     map[int]suite
	broken     map[int]error
	insertions map[int][]insertion
	done       map[string]bool // functions that already have twins: several ids may be cases of the same one
	exchanged  map[string]bool // names of tests that were swapped with a twin's
	width      int             // least number of each test and its twins
}

// insertion replaces the bytes from at to end by text.
type insertion struct {
	at, end int
	text    string
	// own is set if the text becomes part of a test that is there.
	own bool
}

// plant makes the twins of one test, or returns the reason why there are none.
func (p *planter) plant(id string) (reason string) {
	at, t, reason := p.locate(id)
	if reason != "" {
		return reason
	}
	function := functionKey(at, t)
	if p.done[function] {
		return ""
	}
	file := p.options.Sources[at].Name
	chosen := p.choose(t, file)
	if len(chosen) == 0 {
		return "none of its mutations makes it fail"
	}
	names := make([]string, len(chosen))
	for i := range chosen {
		names[i] = p.names.like(t.name())
	}
	written, bodies := p.mix(at, t, names, chosen)
	for i, s := range chosen {
		places := t.places()
		place := places[p.options.Rand.IntN(len(places))]
		p.insertions[at] = append(p.insertions[at], insertion{at: place, end: place, text: t.twin(written[i], bodies[i])})
		p.out.Twins = append(p.out.Twins, Twin{
			Name: names[i], Original: t.name(), Test: id, File: file, Kind: s.kind, Mutation: mutationKey(file, t, s.key),
		})
	}
	p.done[function] = true
	return ""
}

// functions returns the number of functions that get twins.
func (p *planter) functions() int {
	found := map[string]bool{}
	for _, id := range p.options.Tests {
		if at, t, reason := p.locate(id); reason == "" {
			found[functionKey(at, t)] = true
		}
	}
	return max(1, min(len(found), cmp.Or(p.options.MaxTests, len(found))))
}

// functionKey identifies a test in a source.
func functionKey(at int, t test) string { return fmt.Sprint(at, ":", t.places()[0], ":", t.name()) }

// mutationKey identifies a mutation across trials.
func mutationKey(file string, t test, key string) string { return file + ":" + t.name() + ":" + key }

// locate finds the test with the id, or one that may have generated it, and the index of its source.
func (p *planter) locate(id string) (at int, t test, reason string) {
	file, _ := p.writer.Address(id)
	reason = "it is generated, or its file is not known"
	for i, s := range p.options.Sources {
		if file != "" && !sameFile(s.Name, file) || !p.writer.Holds(s.Name) {
			continue
		}
		f := p.suite(i)
		if f == nil {
			if file != "" {
				reason = fmt.Sprintf("%s cannot be read: %v", s.Name, p.broken[i])
			}
			continue
		}
		if t, ok := f.find(id); ok {
			return i, t, ""
		}
		if g, ok := f.(generator); ok && t == nil {
			if made, ok := g.generates(id); ok {
				at, t = i, made
			}
		}
	}
	if t != nil {
		return at, t, ""
	}
	return 0, nil, reason
}

// suite returns the tests in a source; nil if it cannot be parsed.
func (p *planter) suite(i int) suite {
	s := p.options.Sources[i]
	if p.suites[i] == nil && p.broken[i] == nil && p.writer.Holds(s.Name) {
		p.suites[i], p.broken[i] = p.writer.parse(s)
	}
	return p.suites[i]
}

// sameFile reports whether a name from a report refers to a file. The report may leave out leading directories, and
// names a Python package like a file.
func sameFile(name, reported string) bool {
	if inner, ok := strings.CutSuffix(name, "/__init__.py"); ok && inner != "" && sameFile(inner+".py", reported) {
		return true
	}
	return name == reported || strings.HasSuffix(name, "/"+strings.TrimPrefix(reported, "./"))
}

// reasons summarises why tests have no twins.
func (p *planter) reasons() string {
	if len(p.out.Skipped) == 0 {
		return "there are no tests"
	}
	counts := map[string]int{}
	for _, reason := range p.out.Skipped {
		counts[reason]++
	}
	var lines []string
	for reason, n := range counts {
		lines = append(lines, fmt.Sprintf("%d of %d: %s", n, len(p.out.Skipped), reason))
	}
	slices.Sort(lines)
	const most = 3
	return strings.Join(lines[:min(most, len(lines))], "; ")
}

// spliced returns the bytes between two offsets, with those edits applied that are within.
func spliced(data []byte, from, to int, edits []insertion) string {
	var within []insertion
	for _, e := range edits {
		if e.at >= from && e.end <= to {
			within = append(within, insertion{at: e.at - from, end: e.end - from, text: e.text})
		}
	}
	return string(insert(data[from:to], within))
}

// insert applies insertions to data. Insertions at the same offset keep their order, those of their own test first, and
// come before a replacement there.
func insert(data []byte, in []insertion) []byte {
	slices.SortStableFunc(in, func(a, b insertion) int {
		if a.own != b.own && a.at == b.at && a.end == a.at && b.end == b.at {
			return map[bool]int{true: -1, false: 1}[a.own]
		}
		return cmp.Or(a.at-b.at, a.end-b.end)
	})
	var out []byte
	last := 0
	for _, one := range in {
		out = append(out, data[last:one.at]...)
		out = append(out, one.text...)
		last = one.end
	}
	return append(out, data[last:]...)
}
