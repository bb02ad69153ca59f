package canary

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A wrong expectation shows something only where a fix is needed. Where a test checks several things, and the wrong one
// holds without a fix, code that forges all the others fails with the wrong test as it should.

// check is the range of a statement that can make a test fail, apart from errors. It repeats if it may run more than
// once, or if some runs of the test do not reach it.
type check struct {
	from, to int
	repeats  bool
}

// placed reports whether a change makes that wrong which fails without a fix: the only check of the test, or one at
// which the test failed. If it failed before, what failed there must be a part of what is checked.
func (m *maker) placed(at int, t test, e edit) bool {
	data := m.options.Sources[at].Data
	checks, failing := t.checks(), m.failing(at, t)
	within := func(lines []span, c check) bool {
		return slices.ContainsFunc(lines, func(l span) bool { return l.from < c.to && c.from < l.to })
	}
	checked := slices.ContainsFunc(checks, func(c check) bool { return within(failing, c) })
	inside := func(c check) bool { return c.from <= e.at && e.at < c.to }
	assigned := ""
	if !slices.ContainsFunc(checks, inside) {
		if assigned = assignee(lineAt(data, e.at)); assigned == "" {
			return false
		}
	}
	return slices.ContainsFunc(checks, func(c check) bool {
		text := data[c.from:c.to]
		switch {
		case c.repeats, assigned == "" && !inside(c), assigned != "" && !mentions(text, strings.Fields(assigned)):
			return false
		case len(checks) == 1:
			return true
		case checked:
			return within(failing, c)
		}
		return slices.ContainsFunc(failing, func(l span) bool {
			return l.from < c.from && mentions(text, m.given(at, t, string(data[l.from:l.to])))
		})
	})
}

// span is a range of a file.
type span struct{ from, to int }

// logged matches places in files, as runners print them.
var logged = regexp.MustCompile(`([\w./@+-]+\.\w+)(?:", line |:)(\d+)`)

// failing returns the lines of a test that the log of a run without a fix names or, without any, the lines of its file
// that import something.
func (m *maker) failing(at int, t test) (inside []span) {
	s := m.options.Sources[at]
	from, to := t.extent()
	var imports []span
	for _, found := range logged.FindAllSubmatch(m.options.Before, -1) {
		n, _ := strconv.Atoi(string(found[2]))
		start := 0
		for ; n > 1 && start >= 0; n-- {
			if next := bytes.IndexByte(s.Data[start:], '\n'); next >= 0 {
				start += next + 1
			} else {
				start = -1
			}
		}
		if start < 0 || !sameFile(s.Name, strings.TrimPrefix(string(found[1]), "/")) {
			continue
		}
		switch l := (span{start, start + len(lineAt(s.Data, start))}); {
		case from <= start && start < to:
			inside = append(inside, l)
		case bytes.Contains(s.Data[l.from:l.to], []byte("import")):
			imports = append(imports, l)
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

var assignment = regexp.MustCompile(`^\s*(?:if |for |const |let |var )?([\w, ]+?)\s*:?=[^=]`)

// assignee returns the names that a line gives values to.
func assignee(line string) string {
	if m := assignment.FindStringSubmatch(line); m != nil {
		return strings.ReplaceAll(m[1], ",", " ")
	}
	return ""
}

// given returns the names to which a line gives something: those that it assigns or, without any, those that it uses,
// and others that are assigned together with them.
func (m *maker) given(at int, t test, line string) []string {
	all := strings.Fields(assignee(line))
	if len(all) == 0 {
		for _, found := range used.FindAllStringSubmatch(line, -1) {
			all = append(all, found[1])
		}
	}
	from, to := t.extent()
	for one := range bytes.Lines(m.options.Sources[at].Data[from:to]) {
		if together := assignee(string(one)); mentions([]byte(together), all) {
			all = append(all, strings.Fields(together)...)
		}
	}
	return all
}

// used matches names that are not called.
var used = regexp.MustCompile(`\b([A-Za-z_]\w*)\b(?:[^\w(]|$)`)

// mentions reports whether a text contains one of the names.
func mentions(text []byte, any []string) bool {
	return slices.ContainsFunc(any, func(name string) bool {
		return name != "_" && regexp.MustCompile(`\b`+name+`\b`).Match(text)
	})
}
