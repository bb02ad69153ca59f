package testlog

import "strings"

// tapGroups reads the Test Anything Protocol by its groups, unlike SWE-bench's parser, for which each point is a test.
// The name of a test includes those of the groups around it. Where a log has "# Subtest: name", the point of that name
// is a test, and the other points in its group are assertions; a group of tests is not a test itself, unless it has
// assertions as well. Elsewhere, as in Tape's output, a comment begins a test, which passes if all points up to the
// next comment do. A group in which the log breaks off has failed, even before its first point.
func tapGroups(log string, _ Task) (*Results, error) {
	var t tapReader
	t.nested = strings.Contains(log, tapSubtest)
	running := false // after a plan, comments are a summary
	for line := range lines(log) {
		line = rstrip(line)
		indent, text := len(line)-len(lstrip(line)), lstrip(line)
		switch m := tapPoint().FindStringSubmatch(text); {
		case m != nil:
			t.point(indent, m)
		case strings.HasPrefix(text, tapSubtest):
			t.open = append(t.open, tapGroup{name: tapName(text[len(tapSubtest):]), indent: indent})
		case t.nested:
		case strings.HasPrefix(line, "TAP version "):
			running = true
		case tapPlan().MatchString(line):
			t.open, running = nil, false
		case strings.HasPrefix(line, "# "):
			t.open = []tapGroup{{name: strip(line[2:])}}
		}
	}
	for i := range t.open {
		if name := tapPath(t.open[:i+1], ""); t.nested || running || t.known(name) {
			t.set(name, Failed)
		}
	}
	return &t.Results, nil
}

const tapSubtest = "# Subtest: "

var (
	tapPoint = Pattern(`^(?P<mark>ok|not ok)\b(?: \d+)?(?: -)?(?: (?P<name>.*?))??` +
		`(?:\s+# (?P<directive>(?i:skip|todo)\b|time=).*?)?(?P<block> \{)?$`)
	tapPlan = Pattern(`^1\.\.\d+`)
)

// tapReader is the state of [tapGroups]. open are the groups that a line belongs to, the outermost first.
type tapReader struct {
	Results
	nested bool
	open   []tapGroup
}

// tapGroup is a group of points. Its own point is not indented more than its beginning.
type tapGroup struct {
	name   string
	indent int
	// tests and asserts say which points it has.
	tests, asserts bool
}

func (t *tapReader) known(name string) bool {
	_, known := t.Status(name)
	return known
}

// point reads the parts of a point.
func (t *tapReader) point(indent int, m []string) {
	status, name := marks[m[1]], tapName(m[2])
	if directive := strings.ToLower(m[3]); directive == "skip" || directive == "todo" {
		status = Skipped
	}
	last := len(t.open) - 1
	if !t.nested || last < 0 {
		if last >= 0 {
			name = t.open[last].name
		}
		t.add(name, status)
		return
	}
	own := last
	for own >= 0 && (t.open[own].name != name || indent > t.open[own].indent) {
		own--
	}
	switch {
	case own >= 0:
		if g := t.open[own]; !g.tests || g.asserts {
			t.add(tapPath(t.open[:own+1], ""), status)
		}
		t.open = t.open[:own]
		if own > 0 {
			t.open[own-1].tests = true
		}
	case m[4] != "":
		t.add(tapPath(t.open, name), status)
		t.open[last].tests = true
	case status != Skipped: // a test that is left out has no group
		t.open[last].asserts = true
	}
}

// add records one result of a test that may have several: it passes if one of them does and no other one fails.
func (t *tapReader) add(name string, s Status) {
	if before, known := t.Status(name); name != "" && (!known || before == Skipped || s == Failed) {
		t.set(name, s)
	}
}

// tapName returns a name in which the protocol's own sign, #, is no longer escaped.
func tapName(escaped string) string { return strings.ReplaceAll(strip(escaped), `\#`, "#") }

// tapPath is the name of a test in groups; without a title of its own, it is the last group.
func tapPath(groups []tapGroup, title string) string {
	var path []string
	for _, g := range groups {
		path = append(path, g.name)
	}
	if title != "" {
		path = append(path, title)
	}
	return strings.Join(path, " > ")
}
