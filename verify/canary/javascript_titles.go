package canary

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Several tests of a file may have the same title, in different suites, or titles of which little is known until they
// run. Which of them an id is about is told by the titles of their suites, which most reports put before it.

// jsFit says how well a test fits an id. The zero value means that it does not.
type jsFit struct {
	fits bool
	// exact is set if the title is a literal, and the last one of the id.
	exact bool
	// lacking counts the suites of the test that the id does not name.
	lacking int
	// length is the number of bytes of the title that are known, suites that of the titles of suites in the id.
	length, suites int
}

// compare returns a positive number if a fits better than b.
func (a jsFit) compare(b jsFit) int {
	number := func(yes bool) int {
		if yes {
			return 1
		}
		return 0
	}
	return cmp.Or(number(a.fits)-number(b.fits), number(a.exact)-number(b.exact), b.lacking-a.lacking,
		a.length-b.length, a.suites-b.suites)
}

// find returns the test with the id. Of tests with the same title in the same suites, that is the last one, because
// what a report says of it replaces what it says of the others.
func (f *jsFile) find(id string) (test, bool) {
	if t := f.best(id, (*jsTest).fit); t != nil {
		return t, true
	}
	return nil, false
}

// generates returns a test whose title is computed: it may or may not be the one with the id.
func (f *jsFile) generates(id string) (test, bool) {
	_, word := JavaScript{}.Address(id)
	t := f.best(id, (*jsTest).mayFit)
	if t == nil || word == "" {
		return nil, false
	}
	named := *t
	named.called = word
	return &named, true
}

// best returns the last of the tests that fit an id best; nil if none does.
func (f *jsFile) best(id string, fit func(t *jsTest, id string) jsFit) (best *jsTest) {
	var most jsFit
	for _, t := range f.tests {
		one := fit(t, id)
		for _, s := range f.suites {
			if s.first > t.first || s.last < t.last || s.called == "" {
				continue
			}
			if title := strings.TrimSpace(s.called); strings.Contains(id, title) {
				one.suites += len(title)
			} else {
				one.lacking++
			}
		}
		if one.fits && one.compare(most) >= 0 {
			best, most = t, one
		}
	}
	return best
}

// fit compares the title of a test with an id.
func (t *jsTest) fit(id string) jsFit {
	file, word := JavaScript{}.Address(id)
	title := strings.TrimSpace(t.called)
	fit := jsFit{length: len(title)}
	switch {
	case t.computed || title == "":
	case t.cases != nil:
		fit.fits = t.matches(id) || t.called == id
	case title == word || title == id || strings.HasSuffix(id, " > "+title):
		fit.fits, fit.exact = true, true
	default: // some reports put the titles of suites before it, with spaces
		fit.fits = file == "" && strings.HasSuffix(id, title)
	}
	return fit
}

// mayFit does what fit does for a test whose title is computed.
func (t *jsTest) mayFit(id string) jsFit {
	return jsFit{fits: t.computed, exact: t.computed && t.matches(id)}
}

// matches reports whether the test may have a case with the id. A value at the end of a title may be missing in
// reports.
func (t *jsTest) matches(id string) bool {
	return slices.ContainsFunc([]string{id, id + " "}, t.cases.MatchString)
}

// twins returns a word that differs between tests with the same title; empty for the first of them.
func (f *jsFile) twins(t *jsTest) string {
	n := 0
	for _, other := range f.tests {
		if other.first < t.first && other.called == t.called {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n) + "/"
}
