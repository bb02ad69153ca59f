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

// Kind says in which way a twin fails.
type Kind string

// The kinds of twins.
const (
	// Outright is a test with its original's body and one more check that cannot hold.
	Outright Kind = "outright"
	// Expectation is a test with its original's body, in which one expectation is wrong: it runs the code under test, and
	// a result that claims to equal anything satisfies it.
	Expectation Kind = "expectation"
)

// Twin is a test that must fail.
type Twin struct {
	// Name is unique: a test whose reported name has it as a word is this twin.
	Name string
	// Original is the name, in its source, of the test that the twin is made of, and Test that test's id.
	Original string
	Test     string
	File     string
	Kind     Kind
	// Site is what was changed, and the same whenever twins of the same source are made.
	Site string
}

// Reports reports whether a name in a test report is that of the twin.
func (t Twin) Reports(name string) bool { return hasWord(name, t.Name) }

// Counterpart returns the name that the twin's original has where a report calls the twin by name.
func (t Twin) Counterpart(name string) string { return strings.Replace(name, t.Name, t.Original, 1) }

// hasWord reports whether text holds the word, which no letter, digit or underscore precedes. What follows it may be
// the case of a generated test ("test_sum_0").
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

// Order is what to make twins of.
type Order struct {
	// Tests are the ids of the tests, those first that matter most.
	Tests []string
	// Sources are the files that may hold them.
	Sources []Source
	// Most is how many tests get twins at most.
	Most int
	// Spoilt are the sites that are not used.
	Spoilt map[string]bool
	// KeepNames leaves every test its own name.
	KeepNames bool
	// Rand chooses names and places.
	Rand *rand.Rand
}

// Planting is the outcome: the files that have twins now, and the twins.
type Planting struct {
	Files []Source
	Twins []Twin
	// Exchanges are the tests whose names twins have, while they have those of the twins. Twins are described as if there
	// were none: see [Planting.Restore].
	Exchanges []Exchange
	// Without says of tests why they have no twin.
	Without map[string]string
}

// The reasons why there are no twins.
var (
	// ErrNoWriter says that there is no way to write tests for the runner.
	ErrNoWriter = errors.New("no tests can be written for this runner")
	// ErrNoTwin says that none of the tests could be given a twin.
	ErrNoTwin = errors.New("none of the tests can be given a twin")
)

// Writer writes twins in one language.
type Writer interface {
	// Holds reports whether a file of that name may hold tests.
	Holds(name string) bool
	// Address splits the id of a test into the file that it names, if any, and a word to look for in files.
	Address(id string) (file, word string)
	// rename gives a reported test another name, if its own name is from; what is around the name stays.
	rename(reported, from, to string) (string, bool)
	// parse finds the tests of a file. The error says why it cannot be read.
	parse(s Source) (suite, error)
}

// suite is the tests of one file.
type suite interface {
	// find returns the test of that id.
	find(id string) (test, bool)
	// ids are ids of all tests, as find takes them.
	ids(file string) []string
	// named returns all tests of a name. ok is false where something else may refer to the name.
	named(name string) (same []test, ok bool)
}

// generator is a suite with tests whose names are not in the file.
type generator interface {
	// generates returns a test that may have the id, under the name that it has there.
	generates(id string) (test, bool)
}

// test is a test in its file.
type test interface {
	// name is its name in the source.
	name() string
	// titled is where in the file the name is, and how another one is written there. ok is false where the test may
	// depend on its name.
	titled(name string) (from, to int, text string, ok bool)
	// places are the offsets at which a twin may be inserted.
	places() []int
	// sites are the ways to make a twin of it, the best first. Each of them fails where the original passes. What is
	// expected instead is left to chance.
	sites(r *rand.Rand) []site
}

// site is one way to make a twin.
type site struct {
	kind Kind
	key  string
	// twin is the text of a twin of that name, as it is inserted at one of the places.
	twin func(name string) string
}

// perTest is how many twins a test gets at most: of each kind one, and one more wrong expectation.
const perTest = 3

// List returns the ids of the tests in a file, none where it cannot be read.
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

// Plant makes twins of tests, in the same files. The error is one of those above, wrapped.
func Plant(w Writer, o Order) (Planting, error) {
	p := &planter{
		writer: w, order: o, out: Planting{Without: map[string]string{}}, names: newNames(o), suites: map[int]suite{},
		broken: map[int]error{}, insertions: map[int][]insertion{}, done: map[string]bool{}, exchanged: map[string]bool{},
	}
	planted := 0
	for _, id := range o.Tests {
		if planted == cmp.Or(o.Most, len(o.Tests)) {
			break
		}
		before := len(p.out.Twins)
		if reason := p.plant(id); reason != "" {
			p.out.Without[id] = reason
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

// planter is one Plant under way.
type planter struct {
	writer     Writer
	order      Order
	out        Planting
	names      *names
	suites     map[int]suite
	broken     map[int]error
	insertions map[int][]insertion
	done       map[string]bool // functions that have twins: several ids may be cases of one
	exchanged  map[string]bool // names that tests have exchanged
}

// insertion puts a text in the place of what is from at to end.
type insertion struct {
	at, end int
	text    string
}

// plant gives a test its twins, or says why it has none.
func (p *planter) plant(id string) (reason string) {
	at, t, reason := p.locate(id)
	if reason != "" {
		return reason
	}
	function := fmt.Sprint(at, ":", t.places()[0], ":", t.name())
	if p.done[function] {
		return ""
	}
	file := p.order.Sources[at].Name
	chosen := p.choose(t, file)
	if len(chosen) == 0 {
		return "every way to make it fail is known not to work"
	}
	exchanged := p.order.Rand.IntN(len(chosen))
	for i, s := range chosen {
		name := p.names.like(t.name())
		written := name
		if i == exchanged && p.exchange(t, name) {
			written = t.name()
		}
		places := t.places()
		place := places[p.order.Rand.IntN(len(places))]
		p.insertions[at] = append(p.insertions[at], insertion{place, place, s.twin(written)})
		p.out.Twins = append(p.out.Twins, Twin{
			Name: name, Original: t.name(), Test: id, File: file, Kind: s.kind, Site: siteKey(file, t, s.key),
		})
	}
	p.done[function] = true
	return ""
}

// choose returns the ways in which twins of a test are made.
func (p *planter) choose(t test, file string) (chosen []site) {
	made := map[Kind]int{}
	for _, s := range t.sites(p.order.Rand) {
		if p.order.Spoilt[siteKey(file, t, s.key)] || made[s.kind] == perTest-1 || s.kind == Outright && made[s.kind] == 1 {
			continue
		}
		made[s.kind]++
		chosen = append(chosen, s)
	}
	if len(chosen) == 1 {
		chosen = append(chosen, chosen[0]) // see exchange
	}
	return chosen
}

// siteKey identifies something that can be done to a test.
func siteKey(file string, t test, key string) string { return file + ":" + t.name() + ":" + key }

// locate finds the test of an id, or one that may have generated it.
func (p *planter) locate(id string) (at int, t test, reason string) {
	file, _ := p.writer.Address(id)
	reason = "it is generated, or in no file that is known"
	for i, s := range p.order.Sources {
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

// suite returns the tests of a source, nil where there are none to be read.
func (p *planter) suite(i int) suite {
	s := p.order.Sources[i]
	if p.suites[i] == nil && p.broken[i] == nil && p.writer.Holds(s.Name) {
		p.suites[i], p.broken[i] = p.writer.parse(s)
	}
	return p.suites[i]
}

// sameFile reports whether a name of a report is that of a file, whose name may be longer at its beginning. A package
// of Python is reported like a file.
func sameFile(name, reported string) bool {
	if inner, ok := strings.CutSuffix(name, "/__init__.py"); ok && inner != "" && sameFile(inner+".py", reported) {
		return true
	}
	return name == reported || strings.HasSuffix(name, "/"+strings.TrimPrefix(reported, "./"))
}

// reasons sums up why tests have no twins.
func (p *planter) reasons() string {
	if len(p.out.Without) == 0 {
		return "there are no tests"
	}
	counts := map[string]int{}
	for _, reason := range p.out.Without {
		counts[reason]++
	}
	var lines []string
	for reason, n := range counts {
		lines = append(lines, fmt.Sprintf("%d of %d: %s", n, len(p.out.Without), reason))
	}
	slices.Sort(lines)
	const most = 3
	return strings.Join(lines[:min(most, len(lines))], "; ")
}

// insert puts texts into data. Texts at the same place stay in their order, before what replaces something there.
func insert(data []byte, in []insertion) []byte {
	slices.SortStableFunc(in, func(a, b insertion) int { return cmp.Or(a.at-b.at, a.end-b.end) })
	var out []byte
	last := 0
	for _, one := range in {
		out = append(out, data[last:one.at]...)
		out = append(out, one.text...)
		last = one.end
	}
	return append(out, data[last:]...)
}
