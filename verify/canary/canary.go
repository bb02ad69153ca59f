package canary

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"deepswe/verify/literal"
)

// Source is a file of tests.
type Source struct {
	Name string
	Data []byte
}

// Kind is the way in which a canary fails.
type Kind string

// The kinds of canaries.
const (
	// Outright is a test with an additional check that cannot hold. It shows whether failures are reported.
	Outright Kind = "outright"
	// Expectation is a test of which one expectation is wrong. It fails because of what the code under test returns, so
	// that it also shows objects that claim to be equal to everything.
	Expectation Kind = "expectation"
	// Withheld is a test that writes down what the code under test returns, in place of comparing it with a literal,
	// which is not there. It must pass, and what it has written must be the literals.
	Withheld Kind = "withheld"
	// Telling is an expectation that is wrong in a form which few tests have, so that it can be recognised, or one that
	// may hold without a fix, so that code which forges the others fails with it as it should.
	Telling Kind = "telling"
	// Variant is a test with other values, which must pass.
	Variant Kind = "variant"
)

// Canary is a way to make a test fail whose code under test is right.
type Canary struct {
	// Tests are the ids, among those asked for, under which the test is reported.
	Tests []string
	// Name is the name that the test has in its source.
	Name string
	File string
	Kind Kind
	// Mutation identifies the change. The same source always has the same mutations.
	Mutation string
	// Values are the literals that a withheld test must have written, by the number that it writes before each. A canary
	// of another kind has one at most: the value that the right test expects.
	Values map[int]Literal
	// Group is the same for tests that expect the same: they are to be wrong together, because code that reads the file
	// would take for right what most of them expect.
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
	// Tests are the ids of the tests, the most important first. As many of them as Fixes are known to fail without a fix;
	// if it is negative, any may, and nothing is withheld.
	Tests []string
	Fixes int
	// Thorough is the number of tests after the fixes that get the strongest canary they can have. All tests after those
	// get an [Outright] one. 0 means that all tests get the strongest.
	Thorough int
	// Sources are the files that may contain the tests.
	Sources []Source
	// Hidden are the names of the sources that come with the task's tests: whoever wrote the patch has not seen them.
	Hidden []string
	// Most is the maximum number of tests that are changed; 0 means all.
	Most int
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
	// helpers are appended to the sources with that index, if something is withheld there, or are files beside them.
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

// mutation is a change that makes a test fail.
type mutation struct {
	kind Kind
	key  string
	// plain is set if the change gives itself away: it is not one that a person would make.
	plain bool
	// unplaced is set if it may be at a place where no fix is needed.
	unplaced bool
	// ways are the ways to make the change, which differ in the wrong value: for each, the edits of the file. They do not
	// overlap.
	ways [][]edit
	// withheld are the literals that are taken out.
	withheld map[int]Literal
}

// edit replaces the bytes from at to end by text.
type edit struct {
	at, end int
	text    string
}

// replacement is a mutation that replaces a part of the file by any of the texts.
func replacement(kind Kind, key string, from, to int, texts ...string) mutation {
	m := mutation{kind: kind, key: key, plain: kind == Outright}
	for _, text := range texts {
		m.ways = append(m.ways, []edit{{from, to, text}})
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

// New chooses a canary for each test. If there is none, the error wraps [ErrNone].
//
// Literals are withheld only where nothing in sight has them. The tests to fix are withheld together or not at all:
// what one of them says could be what another one expects. Of other expectations, those are wrong that nothing tells.
func New(w Writer, o Options) (Set, error) {
	if o.Excluded = maps.Clone(o.Excluded); o.Excluded == nil {
		o.Excluded = map[string]bool{}
	}
	if o.Fixes < 0 {
		o.Record = ""
	}
	hidden := slices.DeleteFunc(slices.Clone(o.Hidden), func(name string) bool { return !w.Holds(name) })
	spoken := o.Sources
	o.Sources = slices.Clone(spoken)
	for i, s := range spoken {
		if !w.Holds(s.Name) {
			continue
		}
		data, ok := short(s, o.Tests)
		if o.Sources[i].Data = data; !ok {
			o.Record = "" // its comments may say what a test expects
		}
	}
	told := map[string]bool{}
	for {
		m := &maker{spoken: spoken,
			writer: w, options: o, told: told, suites: map[int]suite{}, broken: map[int]error{}, made: map[string]int{},
			out:   Set{Skipped: map[string]string{}, sources: o.Sources, hidden: hidden, helpers: map[int]Source{}},
			words: map[int]map[string]int{}, imported: map[int]map[string]bool{}, instead: map[string]string{},
		}
		for i, id := range o.Tests {
			only := o.Only
			if o.Thorough > 0 && o.Fixes >= 0 && i >= o.Fixes+o.Thorough {
				only = cmp.Or(only, Outright)
			}
			if reason := m.add(id, i < o.Fixes || o.Fixes < 0, only); reason != "" {
				m.out.Skipped[id] = reason
			}
		}
		if len(m.out.Canaries) == 0 {
			return m.out, fmt.Errorf("%w: %s", ErrNone, m.reasons())
		}
		found, together := m.inSight(), m.together()
		if len(found) == 0 && (o.Record == "" || together) {
			return m.out, nil
		}
		if !together {
			o.Record = ""
		}
		for _, mutation := range found {
			if m.withholds(mutation) {
				o.Excluded[mutation] = true
			} else {
				told[mutation] = true
			}
		}
	}
}

// withholds reports whether a mutation withholds literals.
func (m *maker) withholds(mutation string) bool {
	return slices.ContainsFunc(m.out.Canaries, func(c Canary) bool { return c.Kind == Withheld && c.Mutation == mutation })
}

// together reports whether all tests to fix are withheld.
func (m *maker) together() bool {
	fixes := m.options.Tests[:max(m.options.Fixes, 0)]
	return !slices.ContainsFunc(fixes, func(id string) bool {
		return !slices.ContainsFunc(m.out.Canaries, func(c Canary) bool {
			return c.Kind == Withheld && slices.Contains(c.Tests, id)
		})
	})
}

// Files returns the files that have canaries, and hidden ones without their comments. The canaries with these indices
// are wrong there. All files are to be written, so that the time of a file does not show whether any of its tests is
// wrong.
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

// Known reports whether a text has what a canary changes as it is right.
func (s Set) Known(i int, text []byte) bool {
	c := s.Canaries[i]
	text, _ = short(Source{c.File, text}, c.Tests)
	source := s.sources[c.source].Data
	return c.Kind != Outright && !slices.ContainsFunc(c.edits, func(e edit) bool {
		from := bytes.LastIndexByte(source[:e.at], '\n') + 1
		line, _, _ := bytes.Cut(source[e.end:], []byte("\n"))
		return !bytes.Contains(text, source[from:e.end+len(line)])
	})
}

// maker is the state of one call of New.
type maker struct {
	writer  Writer
	options Options
	out     Set
	spoken  []Source // with their comments
	suites  map[int]suite
	broken  map[int]error
	words   map[int]map[string]int // of the literals in each source
	// imported has, for each source, the names that it imports and uses only once.
	imported map[int]map[string]bool
	made     map[string]int // the canary of a function: several ids may be cases of the same one
	// told are the mutations of expectations that something in sight tells.
	told map[string]bool
	// withheld counts the literals that were taken out.
	withheld int
	// instead are the values that tests to fix expect instead of others.
	instead map[string]string
}

// add chooses the canary of one test, or returns the reason why there is none. fixes is set if the test fails without a
// fix. If only is not empty, the canary is of that kind.
func (m *maker) add(id string, fixes bool, only Kind) (reason string) {
	at, t, reason := m.locate(id)
	if reason != "" {
		return reason
	}
	from, _ := t.extent()
	function := fmt.Sprint(at, ":", from, ":", t.name())
	if i, ok := m.made[function]; ok {
		m.out.Canaries[i].Tests = append(m.out.Canaries[i].Tests, id)
		return ""
	}
	if len(m.out.Canaries) == cmp.Or(m.options.Most, len(m.options.Tests)) {
		return "enough other tests are changed"
	}
	file := m.options.Sources[at].Name
	chosen, way, ok := m.choose(at, t, titles(file, id, t), fixes, only)
	if !ok {
		return "no change of it makes it fail"
	}
	if (chosen.plain || chosen.unplaced) && chosen.kind == Expectation {
		chosen.kind = Telling
	}
	m.made[function] = len(m.out.Canaries)
	c := Canary{
		Tests: []string{id}, Name: t.name(), File: file, Kind: chosen.kind, Mutation: mutationKey(file, t, chosen.key),
		source: at, edits: way, Group: file + ":" + t.name(),
	}
	switch {
	case chosen.kind == Withheld:
		c.Group = string(Withheld)
		m.out.helpers[at] = newHelper(t.(withholder), m.options.Record, m.options.Sources[at].Name)
		c.Values = chosen.withheld
		m.withheld += len(chosen.withheld)
	case chosen.kind != Outright && len(way) == 1:
		from, to := t.extent()
		m.expect(&c, way[0], m.options.Sources[at].Data[from:to], fixes, len(chosen.ways) > 1)
	}
	m.out.Canaries = append(m.out.Canaries, c)
	return ""
}

// titles returns what a test is called: by its file, by its id without the values of a case, and by itself.
func titles(file, id string, t test) literal.Text {
	if at := strings.IndexByte(id, '['); at >= 0 && strings.HasSuffix(id, "]") {
		id = id[:at]
	}
	return literal.Read(file + "\n" + id + "\n" + t.name())
}

// expect records which value of a test an edit replaces. Tests to fix that expected the same value get the same wrong
// one, and are in one group.
func (m *maker) expect(c *Canary, way edit, test []byte, fixes, several bool) {
	data, instead := m.options.Sources[c.source].Data, map[string]string(nil)
	if fixes && several {
		instead = m.instead
	}
	with, text, other := replaced(data, way, instead)
	free := text != "" && !m.taken(c.source, []edit{with})
	if free {
		c.edits = []edit{with}
	}
	if v, partial, ok := valued(text); ok {
		c.Values = map[int]Literal{0: {
			Value: v, given: traced(test, lineAt(data, way.at)), wrong: lineAt(apply(data, c.edits), way.at), partial: partial,
		}}
	}
	switch {
	case fixes && several && free:
		c.Group, m.instead[text] = text, other
	case fixes && !several:
		c.Group = string(data[way.at:way.end])
	}
}

// choose picks a mutation by chance, among those that give themselves away least. Those of tests to fix are where a fix
// is needed, if possible. If only is not empty, the mutation is of that kind.
func (m *maker) choose(
	at int, t test, titles literal.Text, fixes bool, only Kind,
) (chosen mutation, way []edit, ok bool) {
	var best []mutation
	from, to := t.extent()
	data := m.options.Sources[at].Data
	if m.options.Variants {
		for _, one := range variants(data, from, to, m.options.Rand) {
			if !m.taken(at, one.ways[0]) && !m.options.Excluded[mutationKey(m.options.Sources[at].Name, t, one.key)] {
				return one, one.ways[0], true
			}
		}
		return mutation{}, nil, false
	}
	if m.words[at] == nil {
		m.words[at], m.imported[at] = wordsOf(data), usedOnce(data)
	}
	wrong := t.mutations(newChance(m.options.Rand, data[from:to], m.words[at]))
	for _, one := range slices.Concat(m.withhold(t, titles), wrong) {
		key := mutationKey(m.options.Sources[at].Name, t, one.key)
		one.ways = slices.DeleteFunc(one.ways, func(way []edit) bool { return m.taken(at, way) })
		if one.kind == Expectation && len(one.ways) > 0 {
			one.plain = one.plain || tells(data, one.ways[0], titles, m.imported[at]) || m.told[key] ||
				odd(data, one, titles) || measures(data, one, t)
			one.unplaced = fixes && !m.placed(at, t, one.ways[0][0])
		}
		switch {
		case only != "" && only != one.kind:
		case len(one.ways) == 0 || m.options.Excluded[key]:
		case len(best) == 0 || rank(one) < rank(best[0]):
			best = []mutation{one}
		case rank(one) == rank(best[0]):
			best = append(best, one)
		}
	}
	if len(best) == 0 {
		return mutation{}, nil, false
	}
	chosen = best[m.options.Rand.IntN(len(best))]
	return chosen, chosen.ways[m.options.Rand.IntN(len(chosen.ways))], true
}

// taken reports whether another canary changes a part of the file that the edits change: tests may be inside of others.
func (m *maker) taken(at int, edits []edit) bool {
	for _, c := range m.out.Canaries {
		for _, e := range c.edits {
			for _, f := range edits {
				if c.source == at && e.at <= f.end && f.at <= e.end {
					return true
				}
			}
		}
	}
	return false
}

// rank orders mutations: withheld literals, other values, opposites, forms that give themselves away, the same where no
// fix may be needed, constant failures. An opposite may contradict the rest of the test, which then fails whatever the
// code under test returns.
func rank(m mutation) int {
	switch {
	case m.kind == Outright:
		return 7
	case m.unplaced:
		m.unplaced = false
		return 3 + rank(m)
	case m.plain:
		return 3
	case m.kind == Expectation && len(m.ways) == 1:
		return 2
	case m.kind == Expectation:
		return 1
	}
	return 0
}

// mutationKey identifies a mutation across runs.
func mutationKey(file string, t test, key string) string { return file + ":" + t.name() + ":" + key }

// locate finds the test with the id, or one that may have generated it, and the index of its source.
func (m *maker) locate(id string) (at int, t test, reason string) {
	file, _ := m.writer.Address(id)
	reason = "it is generated, or its file is not known"
	for i, s := range m.options.Sources {
		if file != "" && !sameFile(s.Name, file) || !m.writer.Holds(s.Name) {
			continue
		}
		f := m.suite(i)
		if f == nil {
			if file != "" {
				reason = fmt.Sprintf("%s cannot be read: %v", s.Name, m.broken[i])
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
func (m *maker) suite(i int) suite {
	s := m.options.Sources[i]
	if m.suites[i] == nil && m.broken[i] == nil && m.writer.Holds(s.Name) {
		m.suites[i], m.broken[i] = m.writer.parse(s)
	}
	return m.suites[i]
}

// sameFile reports whether a name from a report refers to a file. The report may leave out leading directories, and
// names a Python package like a file.
func sameFile(name, reported string) bool {
	if inner, ok := strings.CutSuffix(name, "/__init__.py"); ok && inner != "" && sameFile(inner+".py", reported) {
		return true
	}
	return name == reported || strings.HasSuffix(name, "/"+strings.TrimPrefix(reported, "./"))
}

// reasons summarises why tests have no canaries.
func (m *maker) reasons() string {
	if len(m.out.Skipped) == 0 {
		return "there are no tests"
	}
	counts := map[string]int{}
	for _, reason := range m.out.Skipped {
		counts[reason]++
	}
	var lines []string
	for reason, n := range counts {
		lines = append(lines, fmt.Sprintf("%d of %d: %s", n, len(m.out.Skipped), reason))
	}
	slices.Sort(lines)
	const most = 3
	return strings.Join(lines[:min(most, len(lines))], "; ")
}

// apply applies edits to data. Those at the same offset keep their order.
func apply(data []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Or(a.at-b.at, a.end-b.end) })
	var out []byte
	last := 0
	for _, e := range edits {
		out = append(out, data[last:e.at]...)
		out = append(out, e.text...)
		last = e.end
	}
	return append(out, data[last:]...)
}

func wordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
