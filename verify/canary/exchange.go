package canary

import (
	"regexp"
	"slices"
	"strings"
)

// A patch may be written for the names of the real tests, which are public in many projects. So names are shuffled:
// some tests swap names with one of their twins.

// Exchange is a swap of names: the test is reported under the name of the twin, and the twin under the test's. All
// tests that share the name take part.
type Exchange struct {
	Test string
	Twin string
	// Files are the files in which the names were swapped; nil means all. In another file, a test named Test may be an
	// unrelated one.
	Files []string
	// cases matches the reported names of the test's cases, which contain Test; nil if the test has no cases.
	cases *regexp.Regexp
}

// parameterized is a test whose cases may be reported under names of their own.
type parameterized interface {
	// casesOf returns a pattern for the reported names of the cases; nil if the test is reported under its own name.
	casesOf() *regexp.Regexp
}

// Restore returns the name that a reported test would have if no names had been swapped.
func (p Result) Restore(w Writer, reported string) string {
	file, _ := w.Address(reported)
	for _, e := range p.Exchanges {
		switch {
		case e.cases != nil && hasWord(reported, e.Twin):
			return strings.ReplaceAll(reported, e.Twin, e.Test)
		case e.cases != nil && p.reportsOther(e, reported):
			continue
		case e.cases != nil:
			if m := e.cases.FindStringIndex(reported); m != nil && e.knows(file) {
				return reported[:m[0]] + strings.ReplaceAll(reported[m[0]:], e.Test, e.Twin)
			}
			continue
		}
		if name, ok := w.rename(reported, e.Twin, e.Test); ok {
			return name
		}
		if name, ok := w.rename(reported, e.Test, e.Twin); ok && e.knows(file) {
			return name
		}
	}
	return reported
}

// reportsOther reports whether a test is another twin of the same original, whose name the pattern for the cases of the
// original may match as well.
func (p Result) reportsOther(e Exchange, reported string) bool {
	return slices.ContainsFunc(p.Twins, func(t Twin) bool {
		return t.Original == e.Test && t.Name != e.Twin && t.Reports(reported)
	})
}

// knows reports whether the names in a file were swapped. A report without a file name may be about any file.
func (e Exchange) knows(file string) bool {
	return file == "" || e.Files == nil || slices.ContainsFunc(e.Files, func(f string) bool { return sameFile(f, file) })
}

// mix shuffles what there is to tell a test from its twins: its name, and its place in the file. It returns the names
// under which the twins must be written, and the edits that must be applied to them.
func (p *planter) mix(at int, t test, names []string, chosen []mutation) (written []string, bodies [][]insertion) {
	written = slices.Clone(names)
	for _, m := range chosen {
		bodies = append(bodies, m.edits[0])
	}
	exchanged, moved := p.options.Rand.IntN(len(chosen)), p.options.Rand.IntN(len(chosen)+1)
	if !p.exchange(t, names[exchanged]) {
		return written, bodies
	}
	written[exchanged] = t.name()
	if moved < len(chosen) && p.move(at, t, names[exchanged], written[moved], bodies[moved]) {
		written[moved], bodies[moved] = names[exchanged], nil
	}
	return written, bodies
}

// move writes a twin in the place of a test that was renamed. It reports whether the test must be written in the place
// of the twin.
func (p *planter) move(at int, t test, renamed, written string, edits []insertion) bool {
	if f, ok := t.(fixed); ok && f.stays() {
		return false
	}
	from, to, text, _ := t.titled(renamed)
	title := slices.Index(p.insertions[at], insertion{at: from, end: to, text: text})
	if title < 0 {
		return false
	}
	_, _, p.insertions[at][title].text, _ = t.titled(written)
	for _, e := range edits {
		e.own = true
		p.insertions[at] = append(p.insertions[at], e)
	}
	return true
}

// fixed is a test that may have to stay where it is.
type fixed interface {
	// stays reports whether none of its twins can be written in its place.
	stays() bool
}

// exchange gives a test the name of its twin that is about to be written. It reports whether the twin must take the
// test's name in return: not if something else may depend on that name. Because a test has several twins, and one of
// them gets its name, names do not show which one is the real test. Other tests with the same name are renamed as well,
// because a report may not distinguish them.
func (p *planter) exchange(t test, name string) bool {
	if p.options.KeepNames || strings.HasSuffix(name, t.name()) || p.exchanged[t.name()] {
		return false
	}
	edits, files := map[int][]insertion{}, []string{}
	for i, s := range p.options.Sources {
		files = append(files, s.Name)
		f := p.suite(i)
		if f == nil {
			if hasWord(string(s.Data), t.name()) {
				return false
			}
			continue
		}
		same, ok := f.named(t.name())
		if !ok {
			return false
		}
		for _, other := range same {
			from, to, text, ok := other.titled(name)
			if !ok {
				return false
			}
			edits[i] = append(edits[i], insertion{at: from, end: to, text: text})
		}
	}
	if len(edits) == 0 { // its name is computed
		return false
	}
	for i := range edits {
		p.insertions[i] = append(p.insertions[i], edits[i]...)
	}
	p.exchanged[t.name()] = true
	e := Exchange{Test: t.name(), Twin: name, Files: files}
	if s, ok := t.(parameterized); ok {
		e.cases = s.casesOf()
	}
	p.out.Exchanges = append(p.out.Exchanges, e)
	return true
}

// uses counts how often a text contains a word.
func uses(text []byte, word string) int {
	return len(regexp.MustCompile(`(^|\W)`+regexp.QuoteMeta(word)+`\b`).FindAllIndex(text, -1))
}

// quoted reports whether a text contains a string that is exactly the word.
func quoted(text []byte, word string) bool {
	return regexp.MustCompile("[\"'`]" + regexp.QuoteMeta(word) + "[\"'`]").Match(text)
}
