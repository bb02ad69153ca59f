package testlog

import (
	"fmt"
	"strings"
)

// prismCommand precedes each JSON report in the shell's trace.
const prismCommand = "./node_modules/.bin/mocha tests/run.js --reporter json"

// prism reads the JSON reports of Mocha, from the first brace behind each command to the last one.
func prism(log string, _ Task) (*Results, error) {
	var r Results
	for _, report := range afterFirsts(log, prismCommand) {
		if _, body, ok := strings.Cut(report, "{"); ok {
			report = body
		}
		value, err := readJSON("{" + untilLast(report, "}") + "}")
		if err != nil {
			return nil, err
		}
		lists := value.(map[string]any)
		for _, list := range []struct {
			key    string
			status Status
		}{{"failures", Failed}, {"passes", Passed}} {
			tests, ok := asList(lists[list.key])
			if !ok {
				return nil, fmt.Errorf("%s is not a list of tests: %w", list.key, ErrMalformed)
			}
			for _, test := range tests {
				fields, _ := test.(map[string]any)
				title, ok := asKey(fields["fullTitle"])
				if _, given := fields["fullTitle"]; !given || !ok {
					return nil, fmt.Errorf("a test in %s has no full title: %w", list.key, ErrMalformed)
				}
				r.set(title, list.status)
			}
		}
	}
	return &r, nil
}

// asList returns what Python would iterate over; of other values than lists that are the empty ones only, because the
// elements of the others are no tests.
func asList(v any) (list []any, ok bool) {
	switch v := v.(type) {
	case []any:
		return v, true
	case map[string]any:
		return nil, len(v) == 0
	case string:
		return nil, v == ""
	}
	return nil, false
}

// asKey returns a test's name. Other values than strings that Python takes as a key become names that are not text;
// true and 1 are the same key.
func asKey(v any) (name string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case nil:
		return notText + "null", true
	case bool:
		if v {
			return asKey(1.0)
		}
		return asKey(0.0)
	case float64:
		return fmt.Sprint(notText, v), true
	}
	return "", false
}
