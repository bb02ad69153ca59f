package testlog

import (
	"fmt"
	"strconv"
	"strings"
)

// jestFiles reads Jest's default output, with one line per file: "PASS src/a.test.js (5.3 s)".
var jestFiles = eachLine(func(line string) (string, Status) {
	if anyPrefix(line, "PASS", "FAIL") == "" {
		return "", ""
	}
	m := jestFile().FindStringSubmatch(line)
	if m == nil {
		return "", ""
	}
	name := m[2]
	for _, timing := range jestTimings {
		if t := timing().FindStringSubmatch(name); t != nil {
			name = t[1]
			break
		}
	}
	return name, marks[m[1]]
})

var (
	jestFile = Pattern(`^(PASS|FAIL)\s(.*)`)
	// jestTimings are tried in this order, each from the right; everything from the timing on is removed.
	jestTimings = []Expression{
		Pattern(`^(.*)\s\([\p{Nd}.]+ms\)`),
		Pattern(`^(.*)\s\([\p{Nd}.]+\ss\)`),
		Pattern(`^(.*)\s\([\p{Nd}.]+s\)`),
	}
)

// grommet reads the same lines, failures first, with a file's name on the line after its verdict.
func grommet(log string, _ Task) (*Results, error) {
	var r Results
	for _, expr := range grommetFiles {
		for _, m := range expr().FindAllStringSubmatch(log, -1) {
			r.set(grommetTiming().ReplaceAllLiteralString(strip(m[2]), ""), marks[m[1]])
		}
	}
	return &r, nil
}

var (
	grommetFiles  = []Expression{Pattern(`(?m)^(FAIL)\s(.*)`), Pattern(`(?m)^(PASS)\s(.*)`)}
	grommetTiming = Pattern(`\s\([\p{Nd}.]+\s?(?:ms|s)\)$`)
)

// calypso reads Jest's verbose output: suites by indentation, tests with a mark. Each command starts a new report,
// which ends at the details of failures or at the counts.
func calypso(log string, _ Task) (*Results, error) {
	var r Results
	var suites outline
	for _, report := range afterFirsts(log, " ./node_modules/.bin/jest ") {
		for line := range lines(report) {
			if anyPrefix(line, "Test Suites", "  ● ") != "" {
				break
			}
			mark := anyPrefix(lstrip(line), "✓", "✕")
			if mark == "" {
				suites.heading(line)
				continue
			}
			expr := calypsoTest
			if calypsoTiming().MatchString(line) {
				expr = calypsoTimed
			}
			m := expr().FindStringSubmatch(line)
			if m == nil {
				return nil, fmt.Errorf("%q is not a line of a test: %w", line, ErrMalformed)
			}
			r.set(strip(suites.join()+" - "+m[1]), marks[mark])
		}
	}
	return &r, nil
}

var (
	calypsoTest   = Pattern(`^\s+[✓✕]\s(.*)`)
	calypsoTimed  = Pattern(`^\s+[✓✕]\s(.*)\(\d+ms\)$`)
	calypsoTiming = Pattern(`\(\d+ms\)`)
)

// immutableJS selects one of two reporters by the number of the task's pull request.
func immutableJS(log string, t Task) (*Results, error) {
	switch lastPart(t.ID, "-") {
	case "2006":
		return jest.parse(log, t)
	case "2005":
		return jestTransformed.parse(log, t)
	}
	return nil, fmt.Errorf("no reporter is known for task %q: %w", t.ID, ErrUnsuitable)
}

// quarto reads the coloured output of Deno's test runner up to the list of failures. It numbers the names of
// temporary files in titles in order of appearance, so that titles are the same in every run. A title without a
// verdict failed.
func quarto(log string, _ Task) (*Results, error) {
	var r Results
	numbers := map[string]int{}
	for line := range lines(log) {
		if strings.Contains(line, "ERRORS") || strings.Contains(line, "failures:") {
			break
		}
		if !strings.Contains(line, "[smoke]") && !strings.Contains(line, "[unit]") {
			continue
		}
		for _, expr := range quartoTemporary {
			if file := expr().FindString(line); file != "" {
				if _, known := numbers[file]; !known {
					numbers[file] = len(numbers)
				}
				line = expr().ReplaceAllLiteralString(line, "/tmp/"+strconv.Itoa(numbers[file]))
			}
		}
		if quartoOther(line) {
			continue
		}
		name, _, _ := strings.Cut(line, "...")
		name = strip(name)
		if strings.Contains(line, "32mok") {
			r.set(name, Passed)
		} else if strings.Contains(line, "31mFAILED") {
			r.set(name, Failed)
		} else if _, known := r.Status(name); !known {
			r.set(name, Failed)
		}
	}
	return &r, nil
}

var quartoTemporary = []Expression{Pattern(`/tmp/\w+\.qmd`), Pattern(`/tmp/\w+/`)}

// quartoOther reports whether a line mentions tests without being a test's result.
func quartoOther(line string) bool {
	counts := strings.Contains(line, "passed") && strings.Contains(line, "failed") && strings.Contains(line, "steps")
	return counts || strings.HasPrefix(line, "test result:") || strings.Contains(line, "34mINFO")
}
