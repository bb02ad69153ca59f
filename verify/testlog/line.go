package testlog

import (
	"fmt"
	"strings"
)

// lineFormat describes runners that print one line per test with a mark for its status.
type lineFormat struct {
	// expr is tried on each line; it has the groups "mark" and "name".
	expr Expression
	// needs is a text without which a line need not be tried.
	needs string
	// raw keeps the white space around a line, which is trimmed otherwise.
	raw bool
	// statuses translates marks. A mark that is missing here says nothing about the test.
	statuses map[string]Status
	// rename, when set, makes the test's name from the one in the line.
	rename func(name string, s Status) string
}

// parse is the format's Parser.
func (f lineFormat) parse(log string, _ Task) (*Results, error) {
	var r Results
	mark, name := f.expr().SubexpIndex("mark"), f.expr().SubexpIndex("name")
	for line := range lines(log) {
		if !strings.Contains(line, f.needs) {
			continue
		}
		if !f.raw {
			line = strip(line)
		}
		m := f.expr().FindStringSubmatchIndex(line)
		if m == nil {
			continue
		}
		s, ok := f.statuses[line[m[2*mark]:m[2*mark+1]]]
		if !ok {
			continue
		}
		test := line[m[2*name]:m[2*name+1]]
		if f.rename != nil {
			test = f.rename(test, s)
		}
		r.set(test, s)
	}
	return &r, nil
}

var (
	// jest prints describe blocks as headings, which are not part of the name here: equal names collapse.
	jest = lineFormat{
		expr:     Pattern(`^(?P<mark>[✓✕○])\s(?P<name>.+?)(?:\s\(\d+\s*m?s\))?$`),
		statuses: map[string]Status{"✓": Passed, "✕": Failed, "○": Skipped},
		rename:   func(name string, _ Status) string { return strip(name) },
	}
	// jestTransformed is Jest's JSON report after a filter has made lines with full names of it.
	jestTransformed = lineFormat{
		expr:     Pattern(`^\[(?P<mark>PASSED|FAILED)\]\s(?P<name>.+)$`),
		statuses: map[string]Status{"PASSED": Passed, "FAILED": Failed},
	}
	vitest = lineFormat{
		expr:     Pattern(`^(?P<mark>[✓×↓])\s(?P<name>.+?)(?:\s(?:\d+\s*m?s?|\[skipped\]))?$`),
		statuses: map[string]Status{"✓": Passed, "×": Failed, "↓": Skipped},
	}
	tap = lineFormat{
		expr:     Pattern(`^(?P<mark>ok|not ok) \d+ (?P<name>.+)$`),
		statuses: map[string]Status{"ok": Passed, "not ok": Failed},
	}
	// marked's runner is Jasmine, which numbers what failed and is silent about the rest.
	marked = lineFormat{
		expr:     Pattern(`^\d+(?P<mark>\))\s(?P<name>.*)`),
		raw:      true,
		statuses: map[string]Status{")": Failed},
		rename:   func(name string, _ Status) string { return strip(name) },
	}

	goTest = lineFormat{
		expr:     Pattern(`^--- (?P<mark>PASS|FAIL|SKIP): (?P<name>.+) \(.+\)$`),
		statuses: map[string]Status{"PASS": Passed, "FAIL": Failed, "SKIP": Skipped},
	}

	redis = lineFormat{
		expr:     Pattern(`^\[(?P<mark>ok|err|skip|ignore)\]:\s(?P<name>.+?)(?:\s\(\d+\s*m?s\))?$`),
		statuses: map[string]Status{"ok": Passed, "err": Failed, "skip": Skipped, "ignore": Skipped},
		rename: func(name string, s Status) string {
			if s != Failed {
				return name
			}
			return redisFile().ReplaceAllLiteralString(name, "")
		},
	}
	redisFile = Pattern(`\s+in\s+\S+$`)

	jq = lineFormat{
		expr:     Pattern(`^(?P<mark>PASS|FAIL):\s(?P<name>.+)$`),
		statuses: map[string]Status{"PASS": Passed, "FAIL": Failed},
	}
	micropython = lineFormat{
		expr:     Pattern(`^(?P<mark>pass|FAIL|skip)\s+(?P<name>.+)$`),
		statuses: map[string]Status{"pass": Passed, "FAIL": Failed, "skip": Skipped},
	}
	googleTest = lineFormat{
		needs:    "]",
		expr:     Pattern(`^.*\[\s*(?P<mark>OK|FAILED)\s*\]\s(?P<name>.*)\s\(.*\)$`),
		statuses: map[string]Status{"OK": Passed, "FAILED": Failed},
	}

	ant = lineFormat{
		expr:     Pattern(`^\[junit\]\s+\[(?P<mark>PASS|FAIL|ERR)\]\s+(?P<name>.*)$`),
		statuses: map[string]Status{"PASS": Passed, "FAIL": Failed, "ERR": Failed},
	}

	minitest = lineFormat{
		needs:    "=",
		expr:     Pattern(`^(?P<name>.+)\. .*=.*(?P<mark>[.FE])`),
		statuses: map[string]Status{".": Passed, "F": Failed, "E": Failed},
	}
	cucumber = lineFormat{
		needs:    " .",
		expr:     Pattern(`^(?P<name>.*) \.+(?P<mark>[.F])`),
		statuses: map[string]Status{".": Passed, "F": Failed},
	}
	rspec = lineFormat{
		needs:    " - ",
		expr:     Pattern(`^(?P<name>.+) - (?P<mark>passed|failed)`),
		statuses: map[string]Status{"passed": Passed, "failed": Failed},
	}
)

// cargo reads "test path::name ... ok". More than four words make another kind of line, such as a benchmark's.
func cargo(log string, _ Task) (*Results, error) {
	var r Results
	for line := range lines(log) {
		line = strip(line)
		if !strings.HasPrefix(line, "test") {
			continue
		}
		f := fields(line)
		if len(f) != 4 || f[0] != "test" || f[2] != "..." {
			continue
		}
		switch f[3] {
		case "ok":
			r.set(f[1], Passed)
		case "FAILED":
			r.set(f[1], Failed)
		}
	}
	return &r, nil
}

// rubyUnit reads test-unit's verbose output, "test: name: ." with a dot or a letter that ends a word.
func rubyUnit(log string, _ Task) (*Results, error) {
	statuses := map[byte]Status{'.': Passed, 'E': Failed, 'F': Failed, 'O': Skipped}
	var r Results
	for line := range lines(log) {
		if !strings.Contains(line, ":") {
			continue
		}
		if m := rubyUnitTest().FindStringSubmatch(strip(line)); m != nil {
			r.set(m[1], statuses[m[2][0]])
		}
	}
	return &r, nil
}

var rubyUnitTest = Pattern(`^(?:test: )?(.+):\s+(\.|[EFO](?:[^\p{L}\p{N}_]|$))`)

// jekyll's tasks use one of two runners, by the number of their pull request.
func jekyll(log string, t Task) (*Results, error) {
	_, rest, _ := strings.Cut(t.ID, "-")
	number, _, _ := strings.Cut(rest, "-")
	switch number {
	case "9141", "8047", "8167":
		return minitest.parse(log, t)
	case "8761", "8771":
		return cucumber.parse(log, t)
	}
	return nil, fmt.Errorf("no runner is known for task %q: %w", t.ID, ErrUnsuitable)
}

// phpunit reads the output of --testdox: a suite's name with its class in brackets, then its tests below.
func phpunit(log string, _ Task) (*Results, error) {
	statuses := map[string]Status{"✔": Passed, "✘": Failed, "↩": Skipped}
	suite := "None" // tests before the first suite get this name in the harness's reports
	var r Results
	for line := range lines(log) {
		if m := testdoxSuite().FindStringSubmatch(line); m != nil {
			suite = m[1]
			continue
		}
		if m := testdoxTest().FindStringSubmatch(line); m != nil {
			r.set(suite+" > "+m[2], statuses[m[1]])
		}
	}
	return &r, nil
}

var (
	testdoxSuite = Pattern(`^(\w.+) \(.+\)$`)
	testdoxTest  = Pattern(`^\s*([✔✘↩])\s*(.*)$`)
)
