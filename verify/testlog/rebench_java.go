package testlog

import (
	"strings"

	"deepswe/env"
)

// surefire reads Maven's log of the tests of whole classes and of single failures, JUnit's reports if the log contains
// any, and the verdicts of builds of single tests. What is read first counts, except for failures of single tests.
func surefire(log string, t Task) (*Results, error) {
	var r Results
	setNew := func(name string, s Status) {
		if _, known := r.Status(name); !known {
			r.set(name, s)
		}
	}
	running := ""
	var classes []string
	for line := range splitLines(log) {
		line = strip(line)
		if m := surefireRunning().FindStringSubmatch(line); m != nil {
			running = m[1]
			classes = append(classes, running)
			continue
		}
		if class, method := surefireFailed(line); class != "" {
			status := Failed
			if strings.Contains(line, "Exception") && !strings.Contains(line, "AssertionError") {
				status = Errored
			}
			r.set(class+"."+method, status)
			setNew(class, Failed)
			continue
		}
		if m := mavenCounts().FindStringSubmatch(line); m != nil {
			if i := strings.LastIndex(line, " in "); i >= 0 {
				running = strings.TrimRight(strip(line[i+len(" in "):]), ".:;")
			}
			if running != "" {
				setNew(running, countedStatus(m[2:]))
			}
			running = ""
		}
	}
	for _, more := range []Parser{junitFragments, rebenchMaven} {
		found, err := more(log, t)
		if err != nil {
			return nil, err
		}
		for name, s := range found.All() {
			setNew(name, s)
		}
	}
	if r.Len() == 0 {
		for _, class := range classes {
			setNew(class, Passed)
		}
	}
	return &r, nil
}

var (
	surefireRunning = Pattern(`^(?:\[INFO\]\s+)?Running\s+([A-Za-z0-9_$.]+)$`)
	surefireError   = Pattern(`^\[ERROR\]\s+([A-Za-z0-9_$.]+)`)
	mavenCounts     = Pattern(`Tests run:\s*(\d+),\s*Failures:\s*(\d+),\s*Errors:\s*(\d+),\s*Skipped:\s*(\d+)`)
)

// surefireFailed splits the name of a failed test, "[ERROR] org.Shelf.sorts:12": the method is the shortest text after
// a dot that ends at the end of a word.
func surefireFailed(line string) (class, method string) {
	m := surefireError().FindStringSubmatchIndex(line)
	if m == nil {
		return "", ""
	}
	name, after := line[m[2]:m[3]], line[m[3]:]
	for dot := strings.LastIndexByte(name, '.'); dot > 0; dot = strings.LastIndexByte(name[:dot], '.') {
		for end := dot + 2; end <= len(name); end++ {
			next := after
			if end < len(name) {
				next = name[end:]
			}
			inWord := name[end-1] != '.' && name[end-1] != '$' // every other character of a name is one of a word
			if inWord != wordStart().MatchString(next) {
				return name[:dot], name[dot+1 : end]
			}
		}
	}
	return "", ""
}

var wordStart = Pattern(`^\w`)

// countedStatus returns the status of a class with these numbers of failures, errors and skipped tests.
func countedStatus(counts []string) Status {
	zero := func(count string) bool { return strings.Trim(count, "0") == "" }
	switch {
	case !zero(counts[0]) || !zero(counts[1]):
		return Failed
	case !zero(counts[2]):
		return Skipped
	}
	return Passed
}

// reactor reads Maven's summary of modules.
func reactor(log string, _ Task) (*Results, error) {
	var r Results
	for line := range splitLines(log) {
		line = strip(line)
		if m := reactorModule().FindStringSubmatch(line); m != nil {
			r.set(m[1], map[string]Status{"SUCCESS": Passed, "FAILURE": Failed, "SKIPPED": Skipped}[m[2]])
			continue
		}
		if m := mavenCounts().FindStringSubmatch(line); m != nil {
			if _, known := r.Status("__suite__"); !known {
				r.set("__suite__", suiteStatus(m[1:]))
			}
		}
	}
	return &r, nil
}

var reactorModule = Pattern(`^\[INFO\]\s+(.+?)\s+\.\.+\s+(SUCCESS|FAILURE|SKIPPED)(?:\s|\[|$)`)

// suiteStatus returns the status of a suite with these numbers of tests, failures, errors and skipped tests.
func suiteStatus(counts []string) Status {
	for i, c := range counts {
		counts[i] = strings.TrimLeft(c, "0")
	}
	switch {
	case counts[1] != "":
		return Failed
	case counts[2] != "":
		return Errored
	case counts[3] == counts[0]:
		return Skipped
	}
	return Passed
}

// junitFragments reads the test cases of JUnit's reports from a log that need not be XML otherwise.
func junitFragments(log string, _ Task) (*Results, error) {
	var r Results
	for at := 0; ; {
		m := junitCase().FindStringSubmatchIndex(log[at:])
		if m == nil {
			return &r, nil
		}
		attributes := log[at+m[2] : at+m[3]]
		at += m[1]
		values := map[string]string{}
		for _, a := range junitAttribute().FindAllStringSubmatch(attributes, -1) {
			values[a[1]] = a[2]
		}
		if values["name"] == "" {
			continue
		}
		content := ""
		if !strings.HasSuffix(strip(attributes), "/") {
			if end := strings.Index(log[at:], "</testcase>"); end >= 0 {
				content = log[at : at+end]
				at += end + len("</testcase>")
			} else {
				content = firstRunes(log[at:], 4096)
			}
		}
		name := values["name"]
		if class := values["classname"]; class != "" {
			name = strip(class + " " + name)
		}
		r.set(name, junitStatus(content))
	}
}

var (
	junitCase      = env.Pattern(`<testcase((?:[^\p{L}\p{N}_>][^>]*)?)>`)
	junitAttribute = Pattern(`(\w+)="([^"]*)"`)
)

func junitStatus(content string) Status {
	switch {
	case strings.Contains(content, "<failure"):
		return Failed
	case strings.Contains(content, "<error"):
		return Errored
	case strings.Contains(content, "<skipped"):
		return Skipped
	}
	return Passed
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
