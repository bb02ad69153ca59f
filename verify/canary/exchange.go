package canary

import (
	"regexp"
	"strings"
)

// A patch may know the names of the tests that count: of a public project, or from the tests' own files. So names are
// shuffled: some tests get the name of one of their twins, which has theirs.

// Exchange is a test that is reported under the name of its twin, which is reported under the test's.
type Exchange struct {
	Test string
	Twin string
}

// Restore returns the name that a reported test would have without exchanges.
func (p Planting) Restore(w Writer, reported string) string {
	for _, e := range p.Exchanges {
		if name, ok := w.rename(reported, e.Twin, e.Test); ok {
			return name
		}
		if name, ok := w.rename(reported, e.Test, e.Twin); ok {
			return name
		}
	}
	return reported
}

// exchange gives a test the name of a twin that is about to be written, and reports whether the twin is to have the
// test's: unless something else has the name, or may depend on it. Each test has several twins, and one of them has
// the test's name: so a name does not tell which of them is the test.
func (p *planter) exchange(at int, t test, name string) bool {
	from, to, text, ok := t.titled(name)
	if !ok || p.order.KeepNames || strings.HasSuffix(name, t.name()) {
		return false
	}
	word := regexp.MustCompile(`(^|\W)` + regexp.QuoteMeta(t.name()) + `($|\W)`)
	uses := 0
	for _, s := range p.order.Sources {
		uses += len(word.FindAllIndex(s.Data, -1))
	}
	if uses != 1 {
		return false
	}
	p.insertions[at] = append(p.insertions[at], insertion{from, to, text})
	p.out.Exchanges = append(p.out.Exchanges, Exchange{Test: t.name(), Twin: name})
	return true
}
