package testlog

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// passage describes how a runner prints one test; the first group of expr is its name. expr is matched against the
// whole log, because white space in it may include line feeds.
type passage struct {
	needs string // expr is tried only on logs that contain this text
	expr  Expression
}

// record sets the status of the tests that match the passages, one passage after the other.
func record(r *Results, log string, s Status, clean func(string) string, list ...passage) {
	for _, p := range list {
		if !strings.Contains(log, p.needs) {
			continue
		}
		for _, m := range p.expr().FindAllStringSubmatch(log, -1) {
			r.set(clean(m[1]), s)
		}
	}
}

// failures returns a parser for runners that print only failed tests.
func failures(clean func(string) string, list ...passage) Parser {
	return func(log string, _ Task) (*Results, error) {
		var r Results
		record(&r, log, Failed, clean, list...)
		return &r, nil
	}
}

var (
	// bpmn and chartJS keep the space before the word FAILED in the name.
	bpmn = failures(strings.Clone,
		passage{"2KPhantomJS", Pattern(`2KPhantomJS\s[\p{Nd}.]+\s\(Linux\s[\p{Nd}.]+\)\s(.*)FAILED\n`)},
		passage{"2KPhantomJS", Pattern(`2KPhantomJS\s[\p{Nd}.]+\s\(Linux\sx86_64\)\s(.*)FAILED\n`)},
		passage{"Chrome", Pattern(`Chrome\sHeadless\s.*\s\(Linux\sx86_64\)\s(.*)FAILED\n`)},
		passage{"HeadlessChrome", Pattern(`HeadlessChrome\s[\p{Nd}.]+\s\(Linux\s[\p{Nd}.]+\)\s(.*)FAILED\n`)},
	)
	openLayers = failures(collapse,
		passage{"Chrome", Pattern(`Chrome\sHeadless\s[\p{Nd}.]+\s\(Linux\s\S+\)\s(.*)\sFAILED\n`)},
		passage{"Chrome", Pattern(`Chrome\s[\p{Nd}.]+\s\(Linux\s\S+\)\s(.*)FAILED\n`)},
		passage{"Error:", Pattern(`(?m)^\s\s\d+\)((?s:.*?))Error:`)},
		passage{"mismatch", Pattern(`(?m)^case\s(.*):\smismatch`)},
	)
	// White space in chartFailures does not include line feeds, so that lines are not joined.
	chartFailures = failures(strings.Clone,
		passage{"FAILED", Pattern(`(?m)Chrome\s[\p{Nd}.]+` + blank + `\(.+?\)` + blank + `(.*)FAILED$`)},
	)
	// eslint uses Mocha's "min" reporter: a number, the title over one or more lines, and a line with the name of
	// an error.
	eslint = failures(collapse, passage{"Error", Pattern(`\s\s\d+\)((?s:.*?))\s+.*Error`)})
)

const blank = `[\t\v\f\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]`

func chartJS(log string, t Task) (*Results, error) { return chartFailures(stripEscapes(log), t) }

// karma reads Karma's "mocha" reporter, from the browser's start to the summary: suites by indentation, tests with
// a mark. A line with less indentation than the previous one closes a suite and is not itself a heading.
func karma(log string, _ Task) (*Results, error) {
	var r Results
	var suites []string
	last, started := -1, false
	for line := range lines(log) {
		if strings.HasPrefix(line, "SUMMARY:") {
			break
		}
		if strings.Contains(line, "Starting browser") {
			started = true
			continue
		}
		if !started {
			continue
		}
		m := karmaLine().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := m[3]
		if m[2] != "" {
			r.set(strings.Join(append(suites[:len(suites):len(suites)], name), " > "), marks[m[2]])
			continue
		}
		switch n := utf8.RuneCountInString(m[1]); {
		case n == 0:
		case n > last:
			last = n
			suites = append(suites, name)
		case n < last:
			last = n
			if len(suites) == 0 {
				return nil, fmt.Errorf("%q closes a suite that was never opened: %w", line, ErrMalformed)
			}
			suites = suites[:len(suites)-1]
		}
	}
	return &r, nil
}

var karmaLine = Pattern(`^(\s*)([✔✖])?\s(.*)$`)

// nextKarma reads the runs of Fusion Next, one per command in the shell's trace, from the browser's start to the
// totals. Suites are headings by indentation, and continue from one run to the next.
func nextKarma(log string, _ Task) (*Results, error) {
	log = nextAssertion().ReplaceAllLiteralString(stripEscapes(log), "")
	var r Results
	var suites outline
	for _, run := range afterFirsts(log, " xvfb-run ") {
		for line := range lines(lastPart(run, "Starting browser Chrome")) {
			if strings.HasPrefix(line, "TOTAL") {
				break
			}
			if anyPrefix(lstrip(line), "ERROR", "LOG", "WARN", "Check", "in") != "" {
				continue
			}
			if _, name, failed := strings.Cut(line, "✗"); failed {
				r.set(suites.join(lstrip(name)), Failed)
			} else if _, name, passed := strings.Cut(line, "✓"); passed {
				r.set(suites.join(lstrip(name)), Passed)
			} else {
				suites.heading(line)
			}
		}
	}
	return &r, nil
}

// nextAssertion matches the report of a failed accessibility check, which looks like headings.
var nextAssertion = Pattern(`AssertionError:\s+#(?s:.*?)\n\n`)
