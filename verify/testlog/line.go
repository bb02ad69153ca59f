package testlog

import (
	"fmt"
	"strings"
)

// marks are the words and signs that runners print for the status of a test. Which of them a runner uses is in its
// expression.
var marks = map[string]Status{
	"✓": Passed, "✔": Passed, ".": Passed, "ok": Passed, "OK": Passed, "pass": Passed, "passed": Passed,
	"PASS": Passed, "PASSED": Passed,

	"✕": Failed, "×": Failed, "✖": Failed, "✘": Failed, ")": Failed, "F": Failed, "E": Failed, "not ok": Failed,
	"err": Failed, "ERR": Failed, "failed": Failed, "FAIL": Failed, "FAILED": Failed,

	"○": Skipped, "↓": Skipped, "↩": Skipped, "O": Skipped, "skip": Skipped, "SKIP": Skipped, "ignore": Skipped,
}

// eachLine makes a parser of what a single line says about a test: nothing, where the status is empty.
func eachLine(read func(line string) (name string, s Status)) Parser {
	return func(log string, _ Task) (*Results, error) {
		var r Results
		for line := range lines(log) {
			if name, s := read(line); s != "" {
				r.set(name, s)
			}
		}
		return &r, nil
	}
}

// lineFormat describes runners that print one line per test with a mark for its status.
type lineFormat struct {
	// expr is tried on each line; it has the groups "mark" and "name".
	expr Expression
	// needs is a text that every line of a test contains: the expression is not tried on others.
	needs string
	// raw keeps the white space around a line, which is trimmed otherwise.
	raw bool
	// rename, when set, makes the test's name from the one in the line.
	rename func(name string, s Status) string
}

// parse is the format's Parser.
func (f lineFormat) parse(log string, t Task) (*Results, error) {
	expr := f.expr()
	mark, name := expr.SubexpIndex("mark"), expr.SubexpIndex("name")
	return eachLine(func(line string) (string, Status) {
		if !strings.Contains(line, f.needs) {
			return "", ""
		}
		if !f.raw {
			line = strip(line)
		}
		m := expr.FindStringSubmatch(line)
		if m == nil {
			return "", ""
		}
		test, s := m[name], marks[m[mark]]
		if f.rename != nil {
			test = f.rename(test, s)
		}
		return test, s
	})(log, t)
}

var (
	// jest prints describe blocks as headings, which are not part of the name here: equal names collapse.
	jest = lineFormat{
		expr:   Pattern(`^(?P<mark>[✓✕○])\s(?P<name>.+?)(?:\s\(\d+\s*m?s\))?$`),
		rename: func(name string, _ Status) string { return strip(name) },
	}
	// jestTransformed is Jest's JSON report after a filter has made lines with full names of it.
	jestTransformed = lineFormat{expr: Pattern(`^\[(?P<mark>PASSED|FAILED)\]\s(?P<name>.+)$`)}
	vitest          = lineFormat{expr: Pattern(`^(?P<mark>[✓×↓])\s(?P<name>.+?)(?:\s(?:\d+\s*m?s?|\[skipped\]))?$`)}
	tap             = lineFormat{expr: Pattern(`^(?P<mark>ok|not ok) \d+ (?P<name>.+)$`)}
	// marked's runner is Jasmine, which numbers what failed and is silent about the rest.
	marked = lineFormat{
		expr:   Pattern(`^\d+(?P<mark>\))\s(?P<name>.*)`),
		raw:    true,
		rename: func(name string, _ Status) string { return strip(name) },
	}

	goTest = lineFormat{expr: Pattern(`^--- (?P<mark>PASS|FAIL|SKIP): (?P<name>.+) \(.+\)$`)}
	// A line of cargo's with more than four words is of another kind, such as a benchmark's.
	cargo = lineFormat{needs: "...", expr: Pattern(`^test\s+(?P<name>\S+)\s+\.\.\.\s+(?P<mark>ok|FAILED)$`)}

	redis = lineFormat{
		expr: Pattern(`^\[(?P<mark>ok|err|skip|ignore)\]:\s(?P<name>.+?)(?:\s\(\d+\s*m?s\))?$`),
		rename: func(name string, s Status) string {
			if s != Failed {
				return name
			}
			return redisFile().ReplaceAllLiteralString(name, "")
		},
	}
	redisFile = Pattern(`\s+in\s+\S+$`)

	jq          = lineFormat{expr: Pattern(`^(?P<mark>PASS|FAIL):\s(?P<name>.+)$`)}
	micropython = lineFormat{expr: Pattern(`^(?P<mark>pass|FAIL|skip)\s+(?P<name>.+)$`)}
	googleTest  = lineFormat{needs: "]", expr: Pattern(`^.*\[\s*(?P<mark>OK|FAILED)\s*\]\s(?P<name>.*)\s\(.*\)$`)}

	ant = lineFormat{expr: Pattern(`^\[junit\]\s+\[(?P<mark>PASS|FAIL|ERR)\]\s+(?P<name>.*)$`)}

	minitest = lineFormat{needs: "=", expr: Pattern(`^(?P<name>.+)\. .*=.*(?P<mark>[.FE])`)}
	cucumber = lineFormat{needs: " .", expr: Pattern(`^(?P<name>.*) \.+(?P<mark>[.F])`)}
	rspec    = lineFormat{needs: " - ", expr: Pattern(`^(?P<name>.+) - (?P<mark>passed|failed)`)}

	// rubyUnit is test-unit's verbose output, "test: name: ." with a dot or a letter that ends a word.
	rubyUnit = eachLine(func(line string) (string, Status) {
		if !strings.Contains(line, ":") {
			return "", ""
		}
		m := rubyUnitTest().FindStringSubmatch(strip(line))
		if m == nil {
			return "", ""
		}
		return m[1], marks[m[2][:1]]
	})
	rubyUnitTest = Pattern(`^(?:test: )?(.+):\s+(\.|[EFO](?:[^\p{L}\p{N}_]|$))`)
)

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
	suite := "None" // tests before the first suite get this name in the harness's reports
	var r Results
	for line := range lines(log) {
		if m := testdoxSuite().FindStringSubmatch(line); m != nil {
			suite = m[1]
			continue
		}
		if m := testdoxTest().FindStringSubmatch(line); m != nil {
			r.set(suite+" > "+m[2], marks[m[1]])
		}
	}
	return &r, nil
}

var (
	testdoxSuite = Pattern(`^(\w.+) \(.+\)$`)
	testdoxTest  = Pattern(`^\s*([✔✘↩])\s*(.*)$`)
)
