package verify

import (
	"strings"

	"deepswe/verify/testlog"
)

// ReadTests parses the output of any common test runner, and returns for each test whether it passed. If several
// formats match, it uses the one that finds the most tests. Skipped tests are left out.
func ReadTests(log []byte) map[string]bool {
	text := testlog.Decode(log)
	best := map[string]bool{}
	for _, name := range []string{
		"parse_log_pytest", "parse_log_gotest", "parse_log_cargo", "parse_log_jest", "parse_log_vitest", "parse_log_tap",
		"parse_log_marked", "parse_log_maven", "parse_log_minitest", "minitest", "test_unit",
		"parse_log_phpunit", "parse_log_django",
	} {
		parse, err := testlog.Lookup(name)
		if err != nil {
			continue // an error in the list above, which TestReadTests would find
		}
		results, err := parse(text, testlog.Task{})
		if err != nil {
			continue
		}
		found := make(map[string]bool, results.Len())
		for test, status := range results.All() {
			if strings.HasPrefix(test, "(") { // unittest's summary, in pytest's format: FAILED (failures=1)
				continue
			}
			switch status {
			case testlog.Passed, testlog.XFailed:
				found[test] = true
			case testlog.Failed, testlog.Errored:
				found[test] = false
			}
		}
		if len(found) > len(best) {
			best = found
		}
	}
	if ids := pytestIDs(text); len(ids) > len(best) {
		best = ids
	}
	for test := range best {
		if short, _, ok := strings.Cut(test, " ("); ok {
			delete(best, short) // unittest names failing tests twice: test_a (t.T.test_a) ... FAIL, and FAIL: test_a
		}
	}
	return best
}

// pytestIDs reads pytest's summary as the official parsers do, but with the whole ID of a test: they end it at the
// first space, so that parameters with spaces make one test of several.
func pytestIDs(text string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		status, id, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
		var passed bool
		switch testlog.Status(status) {
		case testlog.Passed, testlog.XFailed:
			passed = true
		case testlog.Failed, testlog.Errored:
		default:
			continue
		}
		name, _, dashed := strings.Cut(id, " - ")
		if dashed && strings.Contains(name, "[") {
			if name, _, dashed = strings.Cut(id, "] - "); dashed {
				name += "]"
			}
		}
		id = name
		if file, _, _ := strings.Cut(id, "::"); id == "" || id[0] == '(' || strings.Contains(file, " ") {
			continue // other programs print such words as well
		}
		found[id] = passed
	}
	return found
}
