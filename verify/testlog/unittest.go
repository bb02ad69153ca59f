package testlog

import (
	"fmt"
	"strings"
)

// djangoPasses are the words that end a line of a test that passed.
var djangoPasses = []string{" ... ok", " ... OK", " ...  OK"}

// djangoSplit are results that other output tore apart: a test's name, something printed by the test, and on a line of
// its own the verdict.
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

// django reads the verbose output of Django's runner: "test_x (module.Class) ... ok", a docstring in the place of the
// name where there is one, and "FAIL: test_x" in the report that follows.
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
		// The verdict of a test that printed something comes on a later line.
		if isRunning && strings.HasPrefix(line, "ok") {
			r.set(running, Passed)
		}
	}
	record(&r, log, Passed, strings.Clone, djangoSplit...)
	return &r, nil
}

// djangoPass records a test whose line ends with a pass, and returns the line. One migration prints in front of the
// test's name without a line feed, and that part is cut off.
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

// sympyMarks are what SymPy's runner prints behind the name of a test.
var sympyMarks = []struct {
	suffix string
	status Status
}{{" E", Errored}, {" F", Failed}, {" ok", Passed}}

// sympy reads the runner's own format: failures as rules of underscores around "path/test_x.py:test_y", and
// "test_y ok" for each test. The former come first, wherever they are.
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
