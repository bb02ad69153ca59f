package testlog

import (
	"fmt"
	"strings"
)

// proHeading precedes the report in the log of a task of SWE-bench Pro.
const proHeading = "===== tests of SWE-bench Pro =====\n"

// pro reads what the parser of a task of SWE-bench Pro has written after the last heading,
// {"tests": [{"name": "a", "status": "PASSED"}]}. Only what has passed or failed counts, and a test passes if one of
// the tests of its name has.
func pro(log string, _ Task) (*Results, error) {
	var r Results
	i := strings.LastIndex(log, proHeading)
	if i < 0 {
		return &r, nil
	}
	report := untilLast(log[i+len(proHeading):], "}") + "}"
	value, err := readJSON(report)
	if err != nil {
		return nil, err
	}
	fields, _ := value.(map[string]any)
	tests, ok := fields["tests"].([]any)
	if !ok {
		return nil, fmt.Errorf("the report of SWE-bench Pro's parser has no list of tests: %w", ErrMalformed)
	}
	for _, test := range tests {
		fields, _ := test.(map[string]any)
		name, named := fields["name"].(string)
		status, _ := fields["status"].(string)
		if !named {
			return nil, fmt.Errorf("a test in the report of SWE-bench Pro's parser has no name: %w", ErrMalformed)
		}
		s := Status(status)
		if before, _ := r.Status(name); before != Passed && (s == Passed || s.fails()) {
			r.set(name, s)
		}
	}
	return &r, nil
}
