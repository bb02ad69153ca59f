package testlog

import (
	"strconv"
	"strings"
)

// quarto reads the coloured output of Deno's runner up to the list of failures. Names of temporary files in titles are
// numbered in order of appearance, so that they agree between runs. A title without a verdict failed.
func quarto(log string, _ Task) (*Results, error) {
	var r Results
	numbers := map[string]int{}
	for line := range lines(log) {
		if strings.Contains(line, "ERRORS") || strings.Contains(line, "failures:") {
			break
		}
		if !strings.Contains(line, "[smoke]") && !strings.Contains(line, "[unit]") {
			continue
		}
		for _, expr := range quartoTemporary {
			file := expr().FindString(line)
			if file == "" {
				continue
			}
			n, known := numbers[file]
			if !known {
				n = len(numbers)
				numbers[file] = n
			}
			line = expr().ReplaceAllLiteralString(line, "/tmp/"+strconv.Itoa(n))
		}
		if quartoOther(line) {
			continue
		}
		name, _, _ := strings.Cut(line, "...")
		name = strip(name)
		if strings.Contains(line, "32mok") {
			r.set(name, Passed)
		} else if strings.Contains(line, "31mFAILED") {
			r.set(name, Failed)
		} else if _, known := r.Status(name); !known {
			r.set(name, Failed)
		}
	}
	return &r, nil
}

var quartoTemporary = []Expression{Pattern(`/tmp/\w+\.qmd`), Pattern(`/tmp/\w+/`)}

// quartoOther reports whether a line mentions tests without being the result of one.
func quartoOther(line string) bool {
	counts := strings.Contains(line, "passed") && strings.Contains(line, "failed") && strings.Contains(line, "steps")
	return counts || strings.HasPrefix(line, "test result:") || strings.Contains(line, "34mINFO")
}
