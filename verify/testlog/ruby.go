package testlog

import "strings"

// minitestVerbose reads the output of Minitest's -v. SWE-bench's parser for Minitest expects names with a dot, which
// Minitest itself does not print.
var minitestVerbose = lineFormat{
	needs: " s = ", expr: Pattern(`^(?P<name>\S.*#test_.*) = .*\d\.\d+ s = (?P<mark>[.FE])$`),
}

// testUnit reads what test-unit prints with --verbose=verbose: the names of classes, and below them those of tests.
// A test's own output is between its name and its mark, and what is said about a failure before the time alone. A test
// without the mark of success, or with another one before it, has failed, unless it was omitted.
func testUnit(log string, _ Task) (*Results, error) {
	var r Results
	var classes []string
	name, failed := "", false
	end := func(s Status) {
		if failed {
			s = Failed
		}
		if name != "" {
			r.set(name, s)
		}
		name, failed = "", false
	}
	for line := range lines(log) {
		line = rstrip(line)
		rest := line
		if m := unitTest().FindStringSubmatch(line); m != nil {
			end(Failed)
			classes = classes[:min(len(m[1])/2, len(classes))]
			name, rest = strings.Join(classes, "::")+"#"+m[2], m[3]+m[4]
		} else if m := unitClass().FindStringSubmatch(line); m != nil && name == "" {
			classes = append(classes[:min(len(m[1])/2, len(classes))], m[2])
		}
		switch {
		case unitPassed().MatchString(rest):
			end(Passed)
		case rest == "O" || rest == "P": // omitted or pending
			name = ""
		case unitTime().MatchString(rest):
			end(Failed)
		case rest == "F" || rest == "E":
			failed = true
		}
	}
	end(Failed)
	return &r, nil
}

var (
	unitClass  = Pattern(`^( *)(\S.*):$`)
	unitTest   = Pattern(`^( *)(\S.*?):(?:\t+(.*)|(\.: \(\d+\.\d+\)|[EFOP]))$`) // a long name has no tab after it
	unitPassed = Pattern(`\.: \(\d+\.\d+\)$`)
	unitTime   = Pattern(`^: \(\d+\.\d+\)$`)
)
