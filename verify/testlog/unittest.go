package testlog

import (
	"fmt"
	"strings"
)

// djangoPasses are the endings of lines of tests that passed.
var djangoPasses = []string{" ... ok", " ... OK", " ...  OK"}

// djangoSplit matches results that other output has split: a test's name, something that the test printed, and the
// verdict on a line of its own.
var djangoSplit = []passage{
	{
		"Testing against Django installed in ",
		Pattern(`(?m)^(.*?)\s\.\.\.\sTesting against Django installed in (?s:.*?) silenced\)\.\nok$`),
	},
	{"Internal Server Error: /", Pattern(`(?m)^(.*?)\s\.\.\.\sInternal Server Error: /.*/\nok$`)},
	{
		"System check identified no issues (0 silenced)\nok",
		Pattern(`(?m)^(.*?)\s\.\.\.\sSystem check identified no issues \(0 silenced\)\nok$`),
	},
}

// django reads the verbose output of Django's runner: "test_x (module.Class) ... ok", or a docstring instead of the
// name, and "FAIL: test_x" in the report that follows.
func django(log string, _ Task) (*Results, error) {
	var r Results
	running, isRunning := "", false
	for line := range lines(log) {
		line = strip(line)
		// This test prints its own name over several lines.
		if versionTest := "--version is equivalent to version"; strings.Contains(line, versionTest) {
			r.set(versionTest, Passed)
		}
		if name, _, ok := strings.Cut(line, " ... "); ok {
			running, isRunning = name, true
		}
		line = djangoPass(&r, line)
		if name, _, ok := strings.Cut(line, " ... skipped"); ok {
			r.set(name, Skipped)
		}
		for _, bad := range []struct {
			suffix, prefix string
			status         Status
		}{{" ... FAIL", "FAIL:", Failed}, {" ... ERROR", "ERROR:", Errored}} {
			if strings.HasSuffix(line, bad.suffix) {
				name, _, _ := strings.Cut(line, bad.suffix)
				r.set(name, bad.status)
			}
			if strings.HasPrefix(line, bad.prefix) {
				_, rest := word(line)
				name, _ := word(rest)
				if name == "" {
					return nil, fmt.Errorf("%q names no test: %w", line, ErrMalformed)
				}
				r.set(name, bad.status)
			}
		}
		// The verdict of a test that printed something is on a later line.
		if isRunning && strings.HasPrefix(line, "ok") {
			r.set(running, Passed)
		}
	}
	record(&r, log, Passed, strings.Clone, djangoSplit...)
	return &r, nil
}

// djangoPass records a test whose line ends with a pass, and returns the line. It cuts off what one migration
// prints before the test's name without a line feed.
func djangoPass(r *Results, line string) string {
	for _, suffix := range djangoPasses {
		if !strings.HasSuffix(line, suffix) {
			continue
		}
		if strings.HasPrefix(line, "Applying sites.0002_alter_domain_unique...test_no_migrations") {
			_, line, _ = strings.Cut(line, "...")
			line = strip(line)
		}
		r.set(untilLast(line, suffix), Passed)
		break
	}
	return line
}

// sympyMarks are printed by SymPy's runner after the name of a test.
var sympyMarks = []struct {
	suffix string
	status Status
}{{" E", Errored}, {" F", Failed}, {" ok", Passed}}

// sympy reads the format of SymPy's own runner: failures as rules of underscores around "path/test_x.py:test_y",
// and "test_y ok" for each test. Failures come first in the results, wherever they are in the log.
func sympy(log string, _ Task) (*Results, error) {
	var r Results
	for line := range lines(log) {
		if left, right := strings.IndexByte(line, ' '), strings.LastIndexByte(line, ' '); left < right {
			if name := line[left+1 : right]; strings.Contains(name, ".py:") {
				r.set(name, Failed)
			}
		}
	}
	for line := range lines(log) {
		line = strip(line)
		if !strings.HasPrefix(line, "test_") {
			continue
		}
		for _, m := range sympyMarks {
			if strings.HasSuffix(line, m.suffix) {
				name, _ := word(line)
				r.set(name, m.status)
			}
		}
	}
	return &r, nil
}
