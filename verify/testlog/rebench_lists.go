package testlog

import (
	"slices"
	"strings"
)

// listed returns a parser of lists, one test a line. A status other than a pass replaces what was recorded before; a
// pass does not.
func listed(read func(line string) (name string, s Status)) Parser {
	return func(log string, _ Task) (*Results, error) {
		var r Results
		for line := range splitLines(log) {
			name, s := read(line)
			if name == "" || s == "" {
				continue
			}
			if _, known := r.Status(name); !known || s != Passed {
				r.set(name, s)
			}
		}
		return &r, nil
	}
}

// mochaList returns a parser of Mocha's lists: "✔ name", "- name" for a skipped test, and a number for a failed one.
// With headers, a number before a name counts only if a colon follows the name, or "[W]" precedes the number.
func mochaList(failed string, headers bool) Parser {
	failure := Pattern(failed)
	return listed(func(line string) (string, Status) {
		line = strip(line)
		if m := mochaSkipped().FindStringSubmatch(line); m != nil {
			return untimedTitle(m[1]), Skipped
		}
		if m := failure().FindStringSubmatch(line); m != nil {
			name := m[1]
			if headers && !strings.HasPrefix(line, "[W]") {
				name = strings.TrimSuffix(name, ":")
				if name == m[1] {
					return "", ""
				}
			}
			return untimedTitle(name), Failed
		}
		if m := mochaPassed().FindStringSubmatch(line); m != nil {
			return untimedTitle(m[1]), Passed
		}
		return "", ""
	})
}

var (
	mochaSkipped = Pattern(`^-\s+(.*)$`)
	mochaPassed  = Pattern(`^✔\s+(.*)$`)
	titleEnd     = Pattern(`(?i)\s*(?:\(\s*)?\d+(?:\.\d+)?\s*(?:ms|s)\s*(?:\))?\s*$`)
)

// untimedTitle removes a duration from the end of a title, with or without brackets.
func untimedTitle(name string) string { return strip(titleEnd().ReplaceAllLiteralString(name, "")) }

// symbols reads lines that start with one of many symbols for a status, or contain a word for a skipped test.
var symbols = listed(func(line string) (string, Status) {
	line = strip(line)
	for _, s := range []struct {
		marks  string
		status Status
	}{{"✔✓", Passed}, {"✘✖×", Failed}, {"○◌◦⚪", Skipped}} {
		for _, mark := range s.marks {
			if title, ok := strings.CutPrefix(line, string(mark)); ok {
				return untimedTitle(untagged(strip(title))), s.status
			}
		}
	}
	lower := strings.ToLower(line)
	if !slices.ContainsFunc(skipMarkers, func(marker string) bool { return strings.Contains(lower, marker) }) {
		return "", ""
	}
	for _, marker := range skipMarkers {
		line = strings.ReplaceAll(line, marker, "")
	}
	return untimedTitle(line), Skipped
})

var skipMarkers = []string{"(skipped)", "[skip]", "[skipped]", "[pending]", "[todo]"}

// untagged removes "[tag]:" or ":" from the start of a title.
func untagged(title string) string {
	if strings.HasPrefix(title, "[") {
		if _, rest, ok := strings.Cut(title, "]:"); ok {
			title = strip(rest)
		}
	}
	if rest, ok := strings.CutPrefix(title, ":"); ok {
		title = strip(rest)
	}
	return title
}

// npx reads "✔ name" and "1) name"; of equal names, the last counts.
func npx(log string, _ Task) (*Results, error) {
	var r Results
	for line := range splitLines(log) {
		line = rstrip(line)
		if m := npxPassed().FindStringSubmatch(line); m != nil {
			r.set(strip(m[1]), Passed)
		} else if m := npxFailed().FindStringSubmatch(line); m != nil {
			r.set(npxModule().ReplaceAllLiteralString(strip(m[1]), ""), Failed)
		}
	}
	return &r, nil
}

var (
	npxPassed = Pattern(`^\s*✔\s+(.+?)(?:\s+\(\d+(?:ms)?\))?$`)
	npxFailed = Pattern(`^\s*\d+\)\s+(.+)$`)
	npxModule = Pattern(`\s+\([^)]+\)$`)
)

// exUnit reads Elixir's trace: "* test name (1.2ms) [L#3]", and "1) test name (Module)" for a failed test.
var exUnit = listed(func(line string) (string, Status) {
	line = strip(line)
	for _, form := range exUnitForms {
		if m := form.expr().FindStringSubmatch(line); m != nil {
			return m[1], form.status
		}
	}
	return "", ""
})

var exUnitForms = []struct {
	expr   Expression
	status Status
}{
	{Pattern(`^\*\s+test\s+(.*?)\s+\(skipped\)\s+\[L#\d+\]$`), Skipped},
	{Pattern(`^\d+\)\s+test\s+(.*?)\s+\([^)]+\)$`), Failed},
	{Pattern(`^\*\s+test\s+(.*?)\s+\([0-9]+(?:\.[0-9]+)?ms\)\s+\[L#\d+\]$`), Passed},
	{Pattern(`^\*\s+test\s+(.*?)\s+\[L#\d+\]$`), Passed},
}

// words reads "Test name   passed".
var words = listed(func(line string) (string, Status) {
	if m := wordsTest().FindStringSubmatch(strip(line)); m != nil {
		return m[1], map[string]Status{"passed": Passed, "failed": Failed, "skipped": Skipped}[m[2]]
	}
	return "", ""
})

var wordsTest = Pattern(`^Test\s+(.*?)\s+(passed|failed|skipped)$`)
