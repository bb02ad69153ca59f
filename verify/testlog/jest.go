package testlog

import (
	"fmt"
	"strings"
)

// jestFiles reads Jest's default output, which has a line per file: "PASS src/a.test.js (5.3 s)".
func jestFiles(log string, _ Task) (*Results, error) {
	var r Results
	for line := range lines(log) {
		status := jestVerdict(line)
		if status == "" {
			continue
		}
		m := jestFile().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := m[1]
		for _, timing := range jestTimings {
			if i := timing().FindStringSubmatchIndex(name); i != nil {
				name = name[:i[3]]
				break
			}
		}
		r.set(name, status)
	}
	return &r, nil
}

var (
	jestFile = Pattern(`^(?:PASS|FAIL)\s(.*)`)
	// jestTimings are tried in this order, each from the right; what follows a timing goes with it.
	jestTimings = []Expression{
		Pattern(`^(.*)\s\([\p{Nd}.]+ms\)`),
		Pattern(`^(.*)\s\([\p{Nd}.]+\ss\)`),
		Pattern(`^(.*)\s\([\p{Nd}.]+s\)`),
	}
)

func jestVerdict(line string) Status {
	switch {
	case strings.HasPrefix(line, "PASS"):
		return Passed
	case strings.HasPrefix(line, "FAIL"):
		return Failed
	}
	return ""
}

// grommet reads the same lines with failures first, and with a file's name on the line after its verdict.
func grommet(log string, _ Task) (*Results, error) {
	var r Results
	for _, v := range []struct {
		word   string
		expr   Expression
		status Status
	}{{"FAIL", grommetFail, Failed}, {"PASS", grommetPass, Passed}} {
		if !strings.Contains(log, v.word) {
			continue
		}
		for _, m := range v.expr().FindAllStringSubmatch(log, -1) {
			r.set(grommetTiming().ReplaceAllLiteralString(strip(m[1]), ""), v.status)
		}
	}
	return &r, nil
}

var (
	grommetFail   = Pattern(`(?m)^FAIL\s(.*)`)
	grommetPass   = Pattern(`(?m)^PASS\s(.*)`)
	grommetTiming = Pattern(`\s\([\p{Nd}.]+\s?(?:ms|s)\)$`)
)

// calypso reads Jest's verbose output: suites by indentation, tests with a mark. Each command starts a new report,
// which ends with the details of failures or with the counts.
func calypso(log string, _ Task) (*Results, error) {
	var r Results
	var suites outline
	for _, report := range afterFirsts(log, " ./node_modules/.bin/jest ") {
		for line := range lines(report) {
			if hasAnyPrefix(line, "Test Suites", "  ● ") {
				break
			}
			status := calypsoMark(line)
			if status == "" {
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
			r.set(strip(suites.join()+" - "+m[1]), status)
		}
	}
	return &r, nil
}

var (
	calypsoTest   = Pattern(`^\s+[✓✕]\s(.*)`)
	calypsoTimed  = Pattern(`^\s+[✓✕]\s(.*)\(\d+ms\)$`)
	calypsoTiming = Pattern(`\(\d+ms\)`)
)

func calypsoMark(line string) Status {
	switch line = lstrip(line); {
	case strings.HasPrefix(line, "✓"):
		return Passed
	case strings.HasPrefix(line, "✕"):
		return Failed
	}
	return ""
}

// immutableJS's tasks use one of two reporters, by the number of their pull request.
func immutableJS(log string, t Task) (*Results, error) {
	switch lastPart(t.ID, "-") {
	case "2006":
		return jest.parse(log, t)
	case "2005":
		return jestTransformed.parse(log, t)
	}
	return nil, fmt.Errorf("no reporter is known for task %q: %w", t.ID, ErrUnsuitable)
}
