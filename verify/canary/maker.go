package canary

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"deepswe/verify/literal"
)

// New chooses a canary for each test. If there is none, the error wraps [ErrNone].
//
// Literals are withheld only where nothing in sight has them. The tests to fix are withheld together or not at all:
// what one of them says could be what another one expects. Other expectations are made wrong only if nothing in sight
// reveals them. If only constant failures are asked for, comments and messages stay, because they reveal nothing.
func New(w Writer, o Options) (Set, error) {
	if o.Excluded = maps.Clone(o.Excluded); o.Excluded == nil {
		o.Excluded = map[string]bool{}
	}
	if o.Fixes < 0 {
		o.Record = ""
	}
	hidden := slices.DeleteFunc(slices.Clone(o.Hidden), func(name string) bool { return !w.Holds(name) })
	spoken, removed := o.Sources, map[int][]int{}
	o.Sources = slices.Clone(spoken)
	for i, s := range spoken {
		if !w.Holds(s.Name) || o.Only == Outright {
			continue
		}
		data, lines, ok := short(s, o.Tests)
		removed[i] = lines
		if o.Sources[i].Data = data; !ok {
			o.Record = "" // its comments may say what a test expects
		}
	}
	told := map[string]bool{}
	for {
		m := &maker{
			spoken: spoken, removed: removed,
			writer: w, options: o, told: told, suites: map[int]suite{}, broken: map[int]error{}, made: map[string]int{},
			out:          Set{Skipped: map[string]string{}, sources: o.Sources, hidden: hidden, helpers: map[int]Source{}},
			vocabularies: map[int]vocabulary{}, instead: map[string]string{},
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
		m.addCases()
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
		for _, c := range found {
			if c.Kind == Withheld {
				o.Excluded[c.Mutation] = true
			} else {
				told[c.Mutation] = true
			}
		}
	}
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

// maker is the state of one call of New.
type maker struct {
	writer  Writer
	options Options
	out     Set
	spoken  []Source // with their comments
	// removed are the numbers of the lines that these have and the sources of options lack, by source.
	removed map[int][]int
	suites  map[int]suite
	broken  map[int]error
	// vocabularies caches the vocabularies of sources.
	vocabularies map[int]vocabulary
	made         map[string]int // the canary of a function: several ids may be cases of the same one
	// told are the mutations whose right expectations something in sight reveals.
	told map[string]bool
	// withheld counts the literals that were taken out.
	withheld int
	// instead maps values that tests to fix expect to the wrong ones that replace them.
	instead map[string]string
}

// add chooses the canary of one test, or returns the reason why there is none. fixes is set if the test fails without a
// fix. If only is not empty, the canary is of that kind.
func (m *maker) add(id string, fixes bool, only Kind) (reason string) {
	at, t, reason := m.locate(id)
	if reason != "" {
		return reason
	}
	function := functionKey(at, t)
	if i, ok := m.made[function]; ok {
		if !m.out.Canaries[i].addID(id, t, fixes) {
			return "another test that may be the same is changed"
		}
		return ""
	}
	if len(m.out.Canaries) == cmp.Or(m.options.Most, len(m.options.Tests)) {
		return "enough other tests are changed"
	}
	file := m.options.Sources[at].Name
	chosen, way, ok := m.choose(at, t, id, fixes, only)
	if !ok {
		return "no change is known that makes it fail"
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
		m.out.helpers[at] = newHelper(t.(withholder), m.options.Record, file)
		c.Values = chosen.withheld
		m.withheld += len(chosen.withheld)
	case chosen.kind != Outright && len(way) == 1:
		from, to := t.extent()
		m.expect(&c, way[0], m.options.Sources[at].Data[from:to], fixes, len(chosen.ways) > 1)
	}
	m.out.Canaries = append(m.out.Canaries, c)
	return ""
}

// functionKey identifies the function of a test by its place, given the index of its source.
func functionKey(at int, t test) string {
	from, to := t.extent()
	return fmt.Sprint(at, ":", from, "-", to)
}

// addID adds the id of a test in the same place. If the names differ because they are computed, the id may be another
// test's: then it counts only as one that may fail, and addID returns false, unless it is of a test to fix.
func (c *Canary) addID(id string, t test, fixes bool) bool {
	if c.Name != t.name() && !fixes {
		c.May = append(c.May, id)
		return false
	}
	c.Tests = append(c.Tests, id)
	return true
}

// addCases adds further tests to the canaries of their functions: they fail as well if these are wrong.
func (m *maker) addCases() {
	for _, id := range m.options.Cases {
		at, t, reason := m.locate(id)
		if reason != "" {
			continue
		}
		if i, ok := m.made[functionKey(at, t)]; ok {
			m.out.Canaries[i].addID(id, t, false)
		}
	}
}

// titles returns what a test is called: its file, its id without the values of a case, and its name in the source.
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

// choose picks a mutation by chance, among those that give themselves away least. In tests to fix, it prefers those
// where a fix is needed. If only is not empty, the mutation is of that kind.
func (m *maker) choose(at int, t test, id string, fixes bool, only Kind) (chosen mutation, way []edit, ok bool) {
	var best []mutation
	file, data := m.options.Sources[at].Name, m.options.Sources[at].Data
	titles := titles(file, id, t)
	from, to := t.extent()
	if m.options.Variants {
		for _, one := range variants(data, from, to, m.options.Rand) {
			if !m.taken(at, one.ways[0]) && !m.options.Excluded[mutationKey(file, t, one.key)] {
				return one, one.ways[0], true
			}
		}
		return mutation{}, nil, false
	}
	known, ok := m.vocabularies[at]
	if !ok {
		known = vocabularyOf(data)
		m.vocabularies[at] = known
	}
	r := newChance(m.options.Rand, data[from:to], known)
	r.earlier = m.earlier(at, id, data[from:to])
	withheld := m.withhold(t, titles)
	for draw := range mostDraws {
		all := t.mutations(r)
		if only == "" && m.spoilt(file, t, all) >= mostSpoilt {
			only = Outright
		}
		found := m.best(at, t, slices.Concat(withheld, all), r, titles, fixes, only)
		if draw == 0 || len(found) > 0 && rank(found[0]) < rank(best[0]) {
			best = found
		}
		if !fixes || len(best) == 0 || rank(best[0]) != givenAway {
			break
		}
	}
	if len(best) == 0 {
		return mutation{}, nil, false
	}
	chosen = best[m.options.Rand.IntN(len(best))]
	return chosen, chosen.ways[m.options.Rand.IntN(len(chosen.ways))], true
}

// mostDraws is how often wrong values are drawn for a test to fix if those that were drawn give themselves away. Where
// that is not enough for a reward, only the other draws count anyway, so nothing is learned from this choice.
const mostDraws = 8

// best returns the mutations of the lowest rank.
func (m *maker) best(
	at int, t test, all []mutation, r *chance, titles literal.Text, fixes bool, only Kind,
) (best []mutation) {
	file, data := m.options.Sources[at].Name, m.options.Sources[at].Data
	for _, one := range all {
		key := mutationKey(file, t, one.key)
		one.ways = slices.DeleteFunc(slices.Clone(one.ways), func(way []edit) bool { return m.taken(at, way) })
		if one.kind == Expectation && len(one.ways) > 0 {
			one.plain = one.plain || tells(data, one.ways[0], titles, m.vocabularies[at].imported) || m.told[key] ||
				odd(data, one, titles) || measures(data, one, t) || disagrees(data, one, t) || !r.fits(data, one.ways[0])
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
	return best
}

// mostSpoilt is the number of spoilt mutations after which a test gets an [Outright] one. Where some cases of a test do
// not reach one of its checks, they seldom reach the others.
const mostSpoilt = 2

// spoilt counts the mutations that must not be used.
func (m *maker) spoilt(file string, t test, all []mutation) (n int) {
	for _, one := range all {
		if m.options.Excluded[mutationKey(file, t, one.key)] {
			n++
		}
	}
	return n
}

// earlier counts the words and numbers in the literals of the repository's version of the test, if that differs:
// whoever wrote the patch knows that these are right. If both are the same, all of the test is known, and nothing is
// counted.
func (m *maker) earlier(at int, id string, test []byte) map[string]int {
	name := m.options.Sources[at].Name
	i := slices.IndexFunc(m.options.Earlier, func(s Source) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	data, _, _ := short(m.options.Earlier[i], m.options.Tests)
	found, err := m.writer.parse(Source{name, data})
	if err != nil {
		return nil
	}
	t, ok := found.find(id)
	if !ok {
		return nil
	}
	from, to := t.extent()
	if bytes.Equal(data[from:to], test) {
		return nil
	}
	return wordsOf(data[from:to])
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

// locate finds the test with the id, or one that may have generated it, and the index of its source.
func (m *maker) locate(id string) (at int, t test, reason string) {
	file, _ := m.writer.Address(id)
	pkg := packageOf(m.writer, id) // other packages may have a test of the same name
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
		if found, ok := f.find(id); ok && pkg == "" {
			return i, found, ""
		} else if ok && (t == nil || nearer(pkg, s.Name, m.options.Sources[at].Name)) {
			at, t = i, found
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
