package canary

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"deepswe/env"
	"deepswe/verify/literal"
)

// A wrong expectation shows something only in a check that needs the fix. If a test has several checks, and the wrong
// one is among those that pass without a fix, code that forges all others fails the wrong test as it should.

// check is a statement that can make a test fail, apart from errors.
type check struct {
	from, to int
	// repeats is set if it may run more than once, or if some runs of the test do not reach it.
	repeats bool
	// given is the expression that the check compares with the literal wanted; empty if the check is anything else.
	given  string
	wanted literal.Value
}

// placed reports whether a change makes wrong what fails without a fix: the only check of the test, or one at which the
// test failed. If it failed elsewhere, what is checked must come from there.
func (m *maker) placed(at int, t test, e edit) bool {
	data, checks := m.options.Sources[at].Data, t.checks()
	from, to := t.extent()
	failing, line := m.failing(at, t), strings.TrimSpace(lineAt(data, e.at))
	within := func(c check) bool {
		return slices.ContainsFunc(failing, func(l int) bool { return l < c.to && c.from < l+len(lineAt(data, l)) })
	}
	checked := slices.ContainsFunc(checks, within)
	inside := func(c check) bool { return c.from <= e.at && e.at < c.to }
	own := slices.ContainsFunc(checks, inside)
	return slices.ContainsFunc(checks, func(c check) bool {
		if c.repeats || own && !inside(c) {
			return false
		}
		if own && (len(checks) == 1 || checked || len(failing) == 0) {
			return len(checks) == 1 || within(c)
		}
		pieces := traced(data[from:to], string(data[c.from:c.to]))
		comes := func(l int) bool {
			of := traced(data[from:to], lineAt(data, l))
			shared := func(piece string) bool { return slices.Contains(pieces, piece) }
			_, imports, _ := strings.Cut(of[0], "import")
			imported := func(name string) bool { return slices.Contains(names().FindAllString(pieces[0], -1), name) }
			of[0] = strings.TrimSpace(of[0])
			return slices.ContainsFunc(of, shared) || slices.ContainsFunc(names().FindAllString(imports, -1), imported)
		}
		switch {
		case !own && !slices.Contains(pieces[1:], line):
			return false
		case len(checks) == 1:
			return true
		case checked:
			return within(c)
		}
		return slices.ContainsFunc(failing, comes)
	})
}

// logged matches places in files, as runners print them.
var logged = env.Pattern(`([\w./@+-]+\.\w+)(?:", line |:)(\d+)`)

// failing returns the offsets of the lines of a test that the log of a run without a fix names or, if it names none,
// of those lines with imports in the test's file that it names.
func (m *maker) failing(at int, t test) (inside []int) {
	s := m.options.Sources[at]
	named := logged().FindAllSubmatch(m.options.Before, -1)
	if len(named) == 0 {
		return nil
	}
	from, to := t.extent()
	var imports []int
	lines := bytes.SplitAfter(s.Data, []byte("\n"))
	for _, found := range named {
		n, err := strconv.Atoi(string(found[2]))
		before, _ := slices.BinarySearch(m.removed[at], n)
		n -= before
		if err != nil || n < 1 || n > len(lines) || !sameFile(s.Name, strings.TrimLeft(string(found[1]), "/")) {
			continue
		}
		start := len(bytes.Join(lines[:n-1], nil))
		if from <= start+len(lines[n-1]) && start < to {
			inside = append(inside, start)
		} else if bytes.Contains(lines[n-1], []byte("import")) {
			imports = append(imports, start)
		}
	}
	if len(inside) == 0 {
		return imports
	}
	return inside
}

// lineAt returns the line around an offset.
func lineAt(data []byte, at int) string {
	from := bytes.LastIndexByte(data[:at], '\n') + 1
	line, _, _ := bytes.Cut(data[from:], []byte("\n"))
	return string(line)
}
