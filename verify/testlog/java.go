package testlog

import "strings"

// maven pairs commands with verdicts. Because Maven does not name tests that pass, the tasks run each test in a
// separate command: the shell's trace shows "-Dtest=Name", and Maven reports how the build ended. The two streams
// are interleaved, so commands and verdicts are paired in order, even if a verdict precedes its command.
func maven(log string, _ Task) (*Results, error) {
	var r Results
	var tests []string
	var verdicts []Status
	for line := range lines(log) {
		line = strip(line)
		if strings.Contains(line, "-Dtest=") {
			if m := mavenTest().FindStringSubmatch(line); m != nil {
				tests = append(tests, m[1])
			}
		}
		verdict := Status("")
		if strings.HasSuffix(line, "BUILD SUCCESS") {
			verdict = Passed
		} else if strings.HasSuffix(line, "BUILD FAILURE") {
			verdict = Failed
		}
		switch {
		case verdict == "":
		case len(tests) == 0:
			verdicts = append(verdicts, verdict)
		default:
			r.set(tests[0], verdict)
			tests = tests[1:]
		}
	}
	for i := range min(len(tests), len(verdicts)) {
		r.set(tests[i], verdicts[i])
	}
	return &r, nil
}

// mavenTest matches the last -Dtest with a value in a line.
var mavenTest = Pattern(`^.*-Dtest=(\S+)`)

// gradle reads "Class > method PASSED", even if other output has moved the verdict to a line of its own. A line
// that starts with ">" is a prompt.
func gradle(log string, _ Task) (*Results, error) {
	var r Results
	pending := ""
	for line := range lines(log) {
		line = strip(line)
		if line == "PASSED" || line == "FAILED" {
			if pending != "" {
				r.set(pending, marks[line])
				pending = ""
			}
			continue
		}
		if strings.HasSuffix(line, "PASSED") || strings.HasSuffix(line, "FAILED") {
			if m := gradleTest().FindStringSubmatch(line); m != nil {
				r.set(m[1], marks[m[2]])
				pending = ""
				continue
			}
		}
		if f := fields(line); len(f) == 3 && f[1] == ">" && f[0][0] != '>' {
			pending = line
		}
	}
	return &r, nil
}

var gradleTest = Pattern(`^([^>].+)\s+(PASSED|FAILED)$`)
