package testlog

import (
	"slices"
	"strings"
)

// Parsers of the lines that "pytest -rA" prints for each test: a status followed by the test's ID.

var (
	// pytest reads the first two words of lines that start with a status.
	pytest = eachLine(shortSummary)

	// pytestOptions shortens a parameter that is an absolute path to its last element, because the path depends on
	// where the tests ran. "//" starts a URL without its scheme rather than a path.
	pytestOptions = eachLine(func(line string) (string, Status) {
		name, s := shortSummary(line)
		left, right := strings.IndexByte(name, '['), strings.LastIndexByte(name, ']')
		if left < 0 || right < left {
			return name, s
		}
		option := name[left+1 : right]
		if strings.HasPrefix(option, "/") && !strings.HasPrefix(option, "//") && !strings.Contains(option, "*") {
			option = option[strings.LastIndexByte(option, '/'):]
		}
		return name[:left+1] + option + "]", s
	})

	// matplotlib reverts a change in how an enumeration is printed, which affected test IDs.
	matplotlib = eachLine(func(line string) (string, Status) {
		if strings.Contains(line, "MouseButton.") {
			line = strings.NewReplacer("MouseButton.LEFT", "1", "MouseButton.RIGHT", "3").Replace(line)
		}
		return shortSummary(line)
	})
)

// shortSummary reads "STATUS id" and "FAILED id - message". It checks the status as a prefix, not as a word, so the
// word may be longer.
func shortSummary(line string) (name string, s Status) {
	if !startsWithStatus(line) {
		return "", ""
	}
	if strings.HasPrefix(line, string(Failed)) {
		line = strings.ReplaceAll(line, " - ", " ")
	}
	first, rest := word(line)
	if name, _ = word(rest); name == "" || skipCount(Status(first), name) {
		return "", ""
	}
	return name, Status(first)
}

func startsWithStatus(line string) bool {
	if line == "" {
		return false
	}
	switch line[0] { // fast path: most of a log's millions of lines have no status
	case 'P', 'F', 'S', 'E', 'X':
		return anyPrefix(line, string(Passed), string(Failed), string(Skipped), string(Errored), string(XFailed)) != ""
	}
	return false
}

// skipCount recognises "SKIPPED [3] path:line: reason", where the number is a count and no test is named. After
// other statuses, a bracketed number is kept, because some records expect a test named "[100%]".
func skipCount(status Status, name string) bool {
	digits, bracketed := strings.CutPrefix(name, "[")
	digits, closed := strings.CutSuffix(digits, "]")
	return status == Skipped && bracketed && closed && digits != "" && strings.TrimLeftFunc(digits, isDigit) == ""
}

// pytestV2 keeps spaces inside an ID, and also reads lines that end with the status, as older releases print them.
// It removes colours first.
var pytestV2 = eachLine(func(line string) (string, Status) {
	line = plain(line)
	switch {
	case startsWithStatus(line):
		if strings.HasPrefix(line, string(Failed)) {
			line, _, _ = strings.Cut(line, " - ")
		}
		status, rest := word(line)
		if first, _ := word(rest); first != "" && !skipCount(Status(status), first) {
			return collapse(rest), Status(status)
		}
	case endsWithStatus(line):
		if f := fields(line); len(f) >= 2 {
			last := len(f) - 1
			return strings.Join(f[:last], " "), Status(f[last])
		}
	}
	return "", ""
})

func endsWithStatus(line string) bool {
	if line == "" {
		return false
	}
	switch line[len(line)-1] {
	case 'D', 'R', 'L':
		return slices.ContainsFunc(statuses, func(s Status) bool { return strings.HasSuffix(line, string(s)) })
	}
	return false
}

// plain removes colours and then control characters, except for NUL, like the harness.
func plain(line string) string {
	line = withoutColours(line)
	for i := range len(line) {
		if isControl(rune(line[i])) {
			return strings.Map(func(r rune) rune {
				if isControl(r) {
					return -1
				}
				return r
			}, line)
		}
	}
	return line
}

func isControl(r rune) bool { return 1 <= r && r < 32 }

// withoutColours removes "[31m" and the like, which is what remains visible of a colour's escape sequence.
func withoutColours(line string) string {
	for from := 0; ; {
		i := strings.IndexByte(line[from:], '[')
		if i < 0 {
			return line
		}
		from += i + 1
		digits := strings.TrimLeftFunc(line[from:], isDigit)
		if rest, ok := strings.CutPrefix(digits, "m"); ok && len(digits) < len(line)-from {
			from--
			line = line[:from] + rest
		}
	}
}

// seaborn reads passes in two forms, "PASSED id" and "id PASSED [ 3%]", and failures in one.
var seaborn = eachLine(func(line string) (string, Status) {
	first, rest := word(line)
	second, _ := word(rest)
	switch {
	case second == "":
	case strings.HasPrefix(line, string(Failed)):
		return second, Failed
	case strings.Contains(line, " "+string(Passed)+" "):
		if second == string(Passed) {
			return first, Passed
		}
	case strings.HasPrefix(line, string(Passed)):
		return second, Passed
	}
	return "", ""
})

// r2eGym reads pytest's short summary, naming tests like R2E-Gym's records: the parts of the ID after the file,
// joined by dots, without what follows " - ".
//
// The reference's parser accepts any line that contains PASSED, FAILED or ERROR, starts at the log's first summary,
// and keeps the last status of a name. This one requires the status as the first word, reads only the last summary,
// and keeps a name's worst status. For pytest's own output, which lists failures last, both agree. An ID without a
// test, such as a file that was not collected, has the empty name.
func r2eGym(log string, _ Task) (*Results, error) {
	var r Results
	log = stripEscapes(log)
	i := strings.LastIndex(log, r2eHeader)
	if i < 0 {
		return &r, nil
	}
	for line := range lines(log[i+len(r2eHeader):]) {
		first, rest := word(line)
		status := Status(first)
		if r2eRank[status] == 0 {
			continue
		}
		name := r2eName(rest)
		before, _ := r.Status(name)
		r.set(name, Worse(before, status))
	}
	return &r, nil
}

const r2eHeader = "short test summary info"

// r2eRank orders the statuses that count, the worst highest.
var r2eRank = map[Status]int{Passed: 1, Errored: 2, Failed: 3}

// Worse returns the worse of two of R2E-Gym's three statuses. Each of them is worse than any other word.
func Worse(a, b Status) Status {
	if r2eRank[b] > r2eRank[a] {
		return b
	}
	return a
}

func r2eName(id string) string {
	id, _, _ = strings.Cut(id, " - ")
	_, name, _ := strings.Cut(id, "::")
	return strip(strings.ReplaceAll(name, "::", "."))
}
