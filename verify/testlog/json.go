package testlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"deepswe/env"
)

// prismCommand precedes each JSON report in the shell's trace.
const prismCommand = "./node_modules/.bin/mocha tests/run.js --reporter json"

// prism reads Mocha's JSON reports, each from the first brace after a command to the last one.
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

// asList returns the elements that Python would iterate over. Besides lists, it accepts only an empty object and an
// empty string, because the elements of others are not tests.
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

// asKey returns a test's name. Values other than strings that Python accepts as keys become names that are not
// text; true and 1 are the same key.
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

// readJSON decodes JSON. Python's json.dumps, and what imitates it, writes NaN and infinities as words; they become
// empty strings, because no reader of a report looks at such a number.
func readJSON(text string) (any, error) {
	text = jsonWord().ReplaceAllStringFunc(text, func(token string) string {
		if token[0] == '"' {
			return token
		}
		return fmt.Sprintf("%-*s", len(token), `""`) // as long, so that positions stay
	})
	d := json.NewDecoder(strings.NewReader(text))
	var v any
	err := d.Decode(&v)
	at := d.InputOffset()
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = syntax.Offset - 1
	} else if err != nil {
		at = int64(len(text))
	}
	if err != nil || strings.Trim(text[at:], " \t\r\n") != "" {
		return nil, fmt.Errorf("JSON breaks off at byte %d: %w", at, ErrMalformed)
	}
	return v, nil
}

// jsonWord matches a string, or a number that only Python knows.
var jsonWord = env.Pattern(`"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)`)
