package canary

import (
	"regexp"
	"slices"
	"strings"
)

// A patch may know the names of the tests that count: of a public project, or from the tests' own files. So names are
// shuffled: some tests get the name of one of their twins, which has theirs.

// Exchange is a test that is reported under the name of its twin, which is reported under the test's. Where several
// tests have one name, all of them are.
type Exchange struct {
	Test string
	Twin string
	// Files are those that are known: of any other file, a test may have the name Test by itself. None stands for all.
	Files []string
	// cases matches what the cases of the test are reported as, where it has several. Their names only contain Test.
	cases *regexp.Regexp
}

// several is a test that has several cases under names of their own.
type several interface {
	// casesOf matches the reported names of a test's cases; nil where it has one, under its own name.
	casesOf() *regexp.Regexp
}

// Restore returns the name that a reported test would have without exchanges.
func (p Planting) Restore(w Writer, reported string) string {
	file, _ := w.Address(reported)
	for _, e := range p.Exchanges {
		switch {
		case e.cases != nil && hasWord(reported, e.Twin):
			return strings.ReplaceAll(reported, e.Twin, e.Test)
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

// knows reports whether all tests of that name in a file have another one. A name without a file may be of any.
func (e Exchange) knows(file string) bool {
	return file == "" || e.Files == nil || slices.ContainsFunc(e.Files, func(f string) bool { return sameFile(f, file) })
}

// exchange gives a test the name of a twin that is about to be written, and reports whether the twin is to have the
// test's: unless something else may depend on the name. Each test has several twins, and one of them has the test's
// name: so a name does not tell which of them is the test. Other tests of the same name are renamed as well, because a
// report may not tell them apart.
func (p *planter) exchange(t test, name string) bool {
	if p.order.KeepNames || strings.HasSuffix(name, t.name()) || p.exchanged[t.name()] {
		return false
	}
	edits, files := map[int][]insertion{}, []string{}
	for i, s := range p.order.Sources {
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
			edits[i] = append(edits[i], insertion{from, to, text})
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
	if s, ok := t.(several); ok {
		e.cases = s.casesOf()
	}
	p.out.Exchanges = append(p.out.Exchanges, e)
	return true
}

// uses counts the places at which a text has a word.
func uses(text []byte, word string) int {
	return len(regexp.MustCompile(`(^|\W)`+regexp.QuoteMeta(word)+`\b`).FindAllIndex(text, -1))
}

// quoted reports whether a text has a word alone in quotes.
func quoted(text []byte, word string) bool {
	return regexp.MustCompile("[\"'`]" + regexp.QuoteMeta(word) + "[\"'`]").Match(text)
}
