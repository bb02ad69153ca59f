package testlog

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// highlightJS reads Mocha's "spec" reporter up to its counts, because the list of failures after them looks much
// the same. An indented line names the suite of the tests that follow.
func highlightJS(log string, _ Task) (*Results, error) {
	if m := mochaCounts().FindStringIndex(log); m != nil {
		log = log[:m[0]]
	}
	var r Results
	suite := ""
	for line := range lines(log) {
		mark := anyPrefix(lstrip(line), "✓", "✔")
		if mark == "" && mochaNumber().MatchString(lstrip(line)) {
			mark = ")"
		}
		switch {
		case mark != "":
			_, name, _ := strings.Cut(line, mark)
			r.set(suite+strip(mochaTiming().ReplaceAllLiteralString(name, "")), marks[mark])
		case strings.HasPrefix(line, "  "):
			suite = strip(line) + "."
		}
	}
	return &r, nil
}

var (
	mochaCounts = Pattern(`\n[ \t]*\d+ passing`)
	mochaTiming = Pattern(`\(\d+ms\)`)
	mochaNumber = Pattern(`^\d+\)`)
)

// p5js reads the failures after Mocha's counts, after removing JSON and markup that the tests printed. In a title
// of several lines, each is indented more than the previous one.
func p5js(log string, _ Task) (*Results, error) {
	log = withoutElements(withoutJSON(stripEscapes(log)))
	var r Results
	for _, m := range p5jsFailure().FindAllStringSubmatch(log, -1) {
		var title []string
		last, valid := 0, true
		for line := range lines(m[1]) {
			n := indent(line)
			valid = valid && n > last
			last = n
			title = append(title, strip(line))
		}
		if valid {
			r.set(strings.Join(title, ":"), Failed)
		}
	}
	return &r, nil
}

var p5jsFailure = Pattern(`(?ms)^\s*\d+\)(.{0,1000}?):`)

// lighthouse has used three runners. The oldest prints Mocha's JSON report, in which only the titles are searched.
func lighthouse(log string, t Task) (*Results, error) {
	switch t.Version {
	case "9.5", "10.0", "10.2":
		return mochaSpec(log, t)
	}
	version, err := strconv.ParseFloat(strip(t.Version), 64)
	if err != nil {
		return nil, fmt.Errorf("version %q is not a number: %w", t.Version, ErrUnsuitable)
	}
	if version >= 3 {
		return jestFiles(log, t)
	}
	var r Results
	for _, report := range afterFirsts(log, "./node_modules/.bin/mocha --reporter json") {
		for _, list := range []struct {
			start, end string
			status     Status
		}{{`"passes": [`, "]", Passed}, {`"failures": [`, "],", Failed}} {
			part := untilLast(lastPart(report, list.start), list.end)
			for _, m := range fullTitle().FindAllStringSubmatch(part, -1) {
				r.set(m[1], list.status)
			}
		}
	}
	return &r, nil
}

var fullTitle = Pattern(`"fullTitle":\s"(.*)",\n`)

// mochaSpec reads runs of Mocha's "spec" reporter, each up to its counts. A test's name includes the path of its
// suites.
func mochaSpec(log string, _ Task) (*Results, error) {
	var r Results
	for _, run := range mochaRun().Split(log, -1)[1:] {
		if m := mochaPassing().FindStringIndex(run); m != nil {
			run = run[:m[0]]
		}
		var suites outline
		for line := range lines(strip(run)) {
			m := mochaTest().FindStringSubmatch(strip(line))
			if m == nil {
				suites.heading(line)
				continue
			}
			name, status := m[2], marks[m[1]] // Passed, or empty if the mark is a number
			if timed := mochaTimed().FindStringSubmatch(name); timed != nil {
				name = timed[1]
			}
			r.set(suites.join(name), cmp.Or(status, Failed))
		}
	}
	return &r, nil
}

var (
	mochaRun     = Pattern(`running\s\d+\stest\sfiles`)
	mochaPassing = Pattern(`\d+\spassing`)
	mochaTest    = Pattern(`^(✔|\d+\))\s(.*)`)
	mochaTimed   = Pattern(`^(.*)\s\(\d+m+s\)`)
)

// next has used two runners.
func next(log string, t Task) (*Results, error) {
	if t.Version == "1.27" {
		return cypress(log, t)
	}
	return nextKarma(log, t)
}

// cypress reads one spec after the other: a heading with the spec's title, followed by its tests, failures first.
func cypress(log string, _ Task) (*Results, error) {
	var r Results
	specs := cypressSpec().FindAllStringSubmatchIndex(log, -1)
	for i, m := range specs {
		title, end := log[m[2]:m[3]], len(log)
		if i+1 < len(specs) {
			end = specs[i+1][0]
		}
		tests := log[m[1]:end]
		for _, t := range cypressFailed().FindAllStringSubmatch(tests, -1) {
			r.set(title+": "+strip(t[1]), Failed)
		}
		for _, t := range cypressPassed().FindAllStringSubmatch(tests, -1) {
			r.set(title+": "+strip(t[1]), Passed)
		}
	}
	return &r, nil
}

var (
	cypressSpec   = Pattern(`Running:.*\)\n\n\n\s\s(.*)\n`)
	cypressFailed = Pattern(`(?m)^\s{4}\d+\)\s(.*)`)
	cypressPassed = Pattern(`(?m)^\s{4}✓\s(.*)\(`)
)

// outline is the path of headings above a test, in reports that show nesting by indentation.
type outline struct {
	headings []heading
}

type heading struct {
	text   string
	indent int
}

// heading adds an indented line as a heading, and closes headings with at least the same indentation. Other lines
// are ignored.
func (o *outline) heading(line string) {
	n := indent(line)
	if n == 0 {
		return
	}
	for len(o.headings) > 0 && o.headings[len(o.headings)-1].indent >= n {
		o.headings = o.headings[:len(o.headings)-1]
	}
	o.headings = append(o.headings, heading{strip(line), n})
}

// join joins the headings, and the test if given, with dashes.
func (o *outline) join(test ...string) string {
	var path []string
	for _, h := range o.headings {
		path = append(path, h.text)
	}
	return strings.Join(slices.Concat(path, test), " - ")
}

// Functions that remove what p5.js's tests print, before searching for their failures.

// withoutJSON removes lines that look like a JSON value, and everything from a line that opens one to the line that
// closes it. Objects and lists are tracked separately, without depth.
func withoutJSON(log string) string {
	var kept []string
	object, list := false, false
	for line := range lines(log) {
		text := rstrip(line)
		switch {
		case strings.HasSuffix(text, "{"):
			object = true
		case strings.HasSuffix(text, "["):
			list = true
		case text == "}" && object:
			object = false
		case text == "]" && list:
			list = false
		case object || list:
		case strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}"):
		case strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]"):
		default:
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

var (
	openingTag = Pattern(`<(\w+)>`)
	tornTag    = Pattern(`</?\w*$`)
	mendedTag  = Pattern(`^</?\w+>`)
)

// withoutElements removes markup from "<tag>" to the next "</tag>", starting with the first such pair, until there
// is none. An opening tag of the same name inside a pair stays in place and may be paired with a later "</tag>".
func withoutElements(log string) string {
	var done strings.Builder // contains no opening tag that rest could close
	unclosed := map[string]bool{}
	rest := log
	for {
		m := openingTag().FindStringSubmatchIndex(rest)
		if m == nil {
			done.WriteString(rest)
			return done.String()
		}
		name, tag := rest[m[2]:m[3]], rest[m[0]:m[1]]
		closing := "</" + name + ">"
		if unclosed[name] || !strings.Contains(rest[m[1]:], closing) {
			unclosed[name] = true
			done.WriteString(rest[:m[1]])
			rest = rest[m[1]:]
			continue
		}
		done.WriteString(rest[:m[0]])
		rest = rest[m[1]:]
		open := 1
		for open > 0 {
			inner, after, closed := strings.Cut(rest, closing)
			if !closed {
				unclosed[name] = true
				break
			}
			open += strings.Count(inner, tag) - 1
			rest = after
		}
		for range open {
			done.WriteString(tag)
		}
		if open > 0 {
			continue
		}
		// Joining what was around the pair may have formed a new tag.
		text := done.String()
		last := lastPart(text, "\n")
		if torn := tornTag().FindStringIndex(last); torn != nil {
			at := len(text) - len(last) + torn[0]
			if mendedTag().MatchString(text[at:] + rest) {
				rest = text + rest
				done.Reset()
				clear(unclosed)
			}
		}
	}
}
