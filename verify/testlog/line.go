package testlog

import (
	"fmt"
	"strings"
)

// marks are the words and signs by which runners print the status of a test. A runner's expression determines which
// of them it uses.
var marks = map[string]Status{
	"✓": Passed, "✔": Passed, ".": Passed, "ok": Passed, "OK": Passed, "pass": Passed, "passed": Passed,
	"PASS": Passed, "PASSED": Passed,

	"✕": Failed, "×": Failed, "✖": Failed, "✘": Failed, ")": Failed, "F": Failed, "E": Failed, "not ok": Failed,
	"err": Failed, "ERR": Failed, "failed": Failed, "FAIL": Failed, "FAILED": Failed,

	"○": Skipped, "↓": Skipped, "↩": Skipped, "O": Skipped, "skip": Skipped, "SKIP": Skipped, "ignore": Skipped,
}

// eachLine returns a parser that applies read to each line; an empty status means that the line names no test.
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

// lineFormat describes a runner that prints one line per test, with a mark for its status.
type lineFormat struct {
	// expr is matched against each line; its groups are "mark" and "name".
	expr Expression
	// needs is a text that every line of a test contains; other lines are skipped quickly.
	needs string
	// raw keeps the white space around a line, which is otherwise trimmed.
	raw bool
	// rename, if set, converts the name in the line to the test's name.
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
	// jest prints describe blocks as headings, which are not part of the names here, so tests with equal names are
	// merged.
	jest = lineFormat{
		expr:   Pattern(`^(?P<mark>[✓✕○])\s(?P<name>.+?)(?:\s\(\d+\s*m?s\))?$`),
		rename: func(name string, _ Status) string { return strip(name) },
	}
	// jestTransformed is Jest's JSON report after a filter has converted it to lines with full names.
	jestTransformed = lineFormat{expr: Pattern(`^\[(?P<mark>PASSED|FAILED)\]\s(?P<name>.+)$`)}
	vitest          = lineFormat{expr: Pattern(`^(?P<mark>[✓×↓])\s(?P<name>.+?)(?:\s(?:\d+\s*m?s?|\[skipped\]))?$`)}
	tap             = lineFormat{expr: Pattern(`^(?P<mark>ok|not ok) \d+ (?P<name>.+)$`)}
	// marked uses Jasmine, which prints numbered failures and nothing about other tests.
	marked = lineFormat{
		expr:   Pattern(`^\d+(?P<mark>\))\s(?P<name>.*)`),
		raw:    true,
		rename: func(name string, _ Status) string { return strip(name) },
	}

	goTest = lineFormat{expr: Pattern(`^--- (?P<mark>PASS|FAIL|SKIP): (?P<name>.+) \(.+\)$`)}
	// cargo prints other lines, for example of benchmarks, with more than four words.
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

	// rubyUnit reads test-unit's verbose output: "test: name: ." with a dot, or a letter at the end of a word.
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

// jekyll selects one of two runners by the number of the task's pull request.
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

// phpunit reads the output of --testdox: a suite's name with its class in brackets, followed by its tests.
func phpunit(log string, _ Task) (*Results, error) {
	suite := "None" // the harness's reports use this name for tests before the first suite
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
