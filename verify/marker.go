package verify

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"deepswe/env"
	"deepswe/verify/testlog"
)

// The markers that the harness's evaluation script prints around the tests, and those that make a log void.
const (
	startMarker   = ">>>>> Start Test Output"
	endMarker     = ">>>>> End Test Output"
	exitMarker    = ">>>>> Test Exit Code"
	patchFailed   = ">>>>> Patch Apply Failed"
	resetFailed   = ">>>>> Reset Failed"
	testsErrored  = ">>>>> Tests Errored"
	testsTimedOut = ">>>>> Tests Timed Out"
)

// markedLog is a log with the positions of its markers. They all have the same prefix, so that a long log is searched
// only once.
type markedLog struct {
	text   string
	starts []int
	ends   []int
	// codes are the exit codes in the log, in order.
	codes []string
	// void is set if a marker shows that no tests ran.
	void bool
}

func mark(text string) markedLog {
	const head = ">>>>> "
	m := markedLog{text: text}
	for at := 0; ; at++ {
		i := strings.Index(text[at:], head)
		if i < 0 {
			return m
		}
		at += i
		switch rest := text[at:]; {
		case strings.HasPrefix(rest, startMarker):
			m.starts = append(m.starts, at)
		case strings.HasPrefix(rest, endMarker):
			m.ends = append(m.ends, at)
		case strings.HasPrefix(rest, exitMarker):
			if code := exitCode().FindStringSubmatch(rest); code != nil {
				m.codes = append(m.codes, code[1])
			}
		case strings.HasPrefix(rest, patchFailed), strings.HasPrefix(rest, resetFailed),
			strings.HasPrefix(rest, testsErrored), strings.HasPrefix(rest, testsTimedOut):
			m.void = true
		}
	}
}

// output returns what follows the first start marker, up to the next marker of either kind.
func (m markedLog) output() string {
	from := m.starts[0] + len(startMarker)
	output, _, _ := strings.Cut(m.text[from:], startMarker)
	output, _, _ = strings.Cut(output, endMarker)
	return output
}

// exitCode is matched only at a marker.
var exitCode = testlog.Pattern(`^` + exitMarker + `:\s*(-?\d+)`)

// maxDigits is the maximum number of digits of an integer that Python parses.
const maxDigits = 4300

// failedExit reports whether an exit code is not 0. Like Python, it accepts the decimal digits of every script.
func failedExit(code string) (bool, error) {
	digits := []rune(strings.TrimPrefix(code, "-"))
	if len(digits) > maxDigits {
		return false, fmt.Errorf("%w: %d digits", errExitCode, len(digits))
	}
	return slices.ContainsFunc(digits, func(d rune) bool { return !isZero(d) }), nil
}

// isZero reports whether a decimal digit is a zero. In Unicode, digits come in ranges of ten, from zero to nine.
func isZero(digit rune) bool {
	below := digit
	for unicode.IsDigit(below - 1) {
		below--
	}
	return (digit-below)%10 == 0
}

// suiteCounts match what runners print if they have run at least one test. Each is tried only on logs that contain
// the text needs.
var suiteCounts = []struct {
	needs string
	expr  testlog.Expression
}{
	{"Executed ", testlog.Pattern(`Executed [1-9]\d* of \d`)},
	{"TOTAL: ", testlog.Pattern(`TOTAL: [1-9]\d* (?:SUCCESS|FAILED)`)},
	{" passing", testlog.Pattern(`[1-9]\d* passing`)},
	{"Tests:", testlog.Pattern(`Tests:\s+[1-9]`)},
	{"Test Suites:", testlog.Pattern(`Test Suites:\s+(?:\d+ \w+, )*[1-9]\d* total`)},
	{"# tests ", testlog.Pattern(`(?m)^# tests [1-9]`)},
	{" failure", testlog.Pattern(`[1-9]\d* specs?, \d+ failure`)},
	{"': ok", testlog.Pattern(`(?m)': ok$`)},
}

// suiteRan reports whether a log without results shows that tests ran. For a successful run, runners that print only
// failures print nothing but such a count. A count of zero does not suffice.
func suiteRan(text string) bool {
	for _, c := range suiteCounts {
		if strings.Contains(text, c.needs) && c.expr().MatchString(text) {
			return true
		}
	}
	return false
}

// readResults parses the text between the markers; ok is false if the log does not show that tests ran.
func readResults(t env.Task, e Evidence, log markedLog) (r *testlog.Results, ok bool, err error) {
	parse, err := e.parser(t.Tests.Parser)
	if err != nil {
		return nil, false, err
	}
	if log.void || len(log.starts) == 0 || len(log.ends) == 0 {
		return nil, false, nil
	}
	about := testlog.Task{ID: t.ID, Version: t.Tests.Version}
	r, err = parse(log.output(), about)
	if err == nil && r.Len() == 0 {
		r, err = parse(log.text, about) // some runners print outside of the markers
	}
	if err != nil || r.Len() == 0 && !suiteRan(log.text) {
		return nil, false, err
	}
	if len(log.codes) == 0 {
		return r, true, nil
	}
	bad, err := failedExit(log.codes[0])
	if err != nil {
		return nil, false, err
	}
	if bad && r.Len() > 0 && !r.Any(testlog.Failed, testlog.Errored) {
		return nil, false, nil // the log does not show the run that failed
	}
	return r, true, nil
}
