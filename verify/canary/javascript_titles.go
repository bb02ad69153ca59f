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
	// lacking counts the suites of the test that the id does not name; it is 1 where the id names others.
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

// find returns the test with the id. Of tests with the same literal title in the same suites, that is the last one,
// because what a report says of it replaces what it says of the others. There is none if the id has a file, and only a
// test whose title is computed is in the suites that it names.
func (f *jsFile) find(id string) (test, bool) {
	found, most := f.best(id, (*jsTest).fit)
	if jsNamed(id) && most.lacking > 0 {
		if may, computed := f.best(id, (*jsTest).mayFit); len(may) > 0 && computed.lacking == 0 {
			return nil, false
		}
	}
	switch {
	case len(found) == 0:
		return nil, false
	case len(found) > 1 && found[0].cases != nil:
		return jsTied(found), true
	}
	return found[len(found)-1], true
}

// generates returns a test whose title is computed: it may or may not be the one with the id.
func (f *jsFile) generates(id string) (test, bool) {
	_, word := JavaScript{}.Address(id)
	found, _ := f.best(id, (*jsTest).mayFit)
	if len(found) == 0 || word == "" {
		return nil, false
	}
	named := *found[0]
	named.called = word
	if found[0] = &named; len(found) > 1 {
		return jsTied(found), true
	}
	return &named, true
}

// best returns the tests that fit an id best, and how well: several, if the id does not tell them apart.
func (f *jsFile) best(id string, fit func(t *jsTest, id string) jsFit) (found []*jsTest, most jsFit) {
	for _, t := range f.tests {
		one := fit(t, id)
		if !one.fits {
			continue
		}
		f.place(t, id, &one)
		order := one.compare(most)
		if order > 0 {
			found, most = nil, one
		}
		if order >= 0 {
			found = append(found, t)
		}
	}
	return found, most
}

// place notes how well the suites of a test fit an id.
func (f *jsFile) place(t *jsTest, id string, fit *jsFit) {
	prefix, literal := "", t.cases == nil
	for _, s := range f.suites {
		if s.first > t.first || s.last < t.last {
			continue
		}
		prefix, literal = prefix+s.called+" > ", literal && s.cases == nil
		if title := strings.TrimSpace(s.called); strings.Contains(id, title) {
			fit.suites += len(title)
		} else {
			fit.lacking++
		}
	}
	// An id that begins with the file has the titles of all suites, and nothing else.
	if _, rest, _ := strings.Cut(id, " > "); literal && jsNamed(id) && fit.lacking == 0 {
		title, ok := strings.CutPrefix(rest, prefix)
		if !ok || strings.TrimSpace(title) != strings.TrimSpace(t.called) {
			fit.lacking++
		}
	}
}

// fit compares the title of a test with an id.
func (t *jsTest) fit(id string) jsFit {
	_, word := JavaScript{}.Address(id)
	title := strings.TrimSpace(t.called)
	fit := jsFit{length: max(len(title), t.known)}
	switch {
	case t.computed || title == "":
	case t.cases != nil:
		fit.fits = t.matches(id) || t.called == id
	case title == strings.TrimSpace(word) || title == id || strings.HasSuffix(id, " > "+title):
		fit.fits, fit.exact = true, true
	default: // some reports put the titles of suites before it, with spaces
		fit.fits = !jsNamed(id) && strings.HasSuffix(id, title)
	}
	return fit
}

// mayFit does what fit does for a test whose title is computed.
func (t *jsTest) mayFit(id string) jsFit {
	return jsFit{fits: t.computed, exact: t.computed && t.matches(id), length: t.known}
}

// matches reports whether the test may have a case with the id. A value at the end of a title may be missing in
// reports.
func (t *jsTest) matches(id string) bool {
	return slices.ContainsFunc([]string{id, id + " "}, t.cases.MatchString)
}

// jsNamed reports whether an id begins with the name of its file.
func jsNamed(id string) bool {
	file, _ := JavaScript{}.Address(id)
	return file != ""
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

// jsTied are several tests of which an id may mean any, such as those of two loops with computed titles in one suite.
// All of them are wrong together.
type jsTied []*jsTest

func (t jsTied) name() string { return t[0].name() }

func (t jsTied) extent() (from, to int) {
	from, _ = t[0].extent()
	_, to = t[len(t)-1].extent()
	return from, to
}

func (t jsTied) mutations(r *chance) []mutation {
	all := mutation{kind: Outright, key: "all", plain: true, ways: [][]edit{nil}}
	for _, one := range t {
		found := one.mutations(r)
		if len(found) == 0 {
			return nil
		}
		all.ways[0] = append(all.ways[0], found[len(found)-1].ways[0]...) // that which surely fails, if there is one
	}
	return []mutation{all}
}

func (t jsTied) checks() (all []check) {
	for _, one := range t {
		all = append(all, one.checks()...)
	}
	return all
}
