package testlog

import "strings"

// The parsers of Multi-SWE-bench read prefixes of lines, and one failure of a test outweighs all of its passes.
var (
	multiGo = multi(goPassed, goFailed, unchanged)
	// multiGoParents counts a subtest under the name of the test that it belongs to.
	multiGoParents = multi(goPassed, goFailed, func(name string) string { return untilLast(name, "/") })
	multiCargo     = multi(Pattern(`^test (\S+) ... ok`), Pattern(`^test (\S+) ... FAILED`), unchanged)

	goPassed = Pattern(`^--- PASS: (\S+)`)
	goFailed = Pattern(`^(?:--- FAIL: (\S+)|FAIL:?\s?(.+?)\s)`)
)

func unchanged(name string) string { return name }

// multi returns a parser of lines that match one of two expressions, whose first group that matches is the name.
func multi(passed, failed Expression, rename func(string) string) Parser {
	return func(log string, _ Task) (*Results, error) {
		var r Results
		for line := range splitLines(log) {
			line = strip(line)
			if m := passed().FindStringSubmatch(line); m != nil {
				name := rename(m[1])
				before, _ := r.Status(m[1])
				if now, _ := r.Status(name); before != Failed && now != Failed {
					r.set(name, Passed)
				}
			}
			if m := failed().FindStringSubmatch(line); m != nil {
				name := strings.Join(m[1:], "")
				if before, _ := r.Status(name); before == Passed {
					r.set(name, Failed)
				}
				r.set(rename(name), Failed)
			}
		}
		return &r, nil
	}
}
