package mine

import (
	"slices"
	"strings"

	"deepswe/env"
)

var (
	// function matches the line with which a function begins.
	function = env.Pattern(`^(\s*)(?:[\w<>\[\], ]+ )?(?:(?:def|func(?: \([^)]*\))?|fn|void) (\w+)|int (main)\b)`)
	// hunk matches the head of a hunk, which ends with the line of the function that it is in.
	hunk = env.Pattern(`^@@ [-+\d, ]+ @@ ?(.*)`)
)

// ChangedTests returns the names of the test functions in which the commit changes lines, as far as its diff shows
// them. They test what the commit does, even if the base commit has tests of the same names.
func (c Candidate) ChangedTests() []string {
	var all []string
	name, indent := "", 0
	enter := func(line string) {
		depth := len(line) - len(strings.TrimLeft(line, " \t"))
		if m := function().FindStringSubmatch(line); m != nil {
			name, indent = m[2]+m[3], depth
		} else if text := strings.TrimSpace(line); depth <= indent && text != "" && text != "{" {
			name = "" // the function ends
		}
	}
	for line := range strings.Lines(c.Tests) {
		line = strings.TrimRight(line, "\r\n")
		if m := hunk().FindStringSubmatch(line); m != nil {
			name, indent = "", 0
			enter(m[1])
			continue
		}
		if line == "" || strings.HasPrefix(line, "+++") || strings.HasPrefix(line, "---") {
			continue
		}
		text := line[1:]
		enter(text)
		if line[0] != ' ' && name != "" && strings.TrimSpace(text) != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
