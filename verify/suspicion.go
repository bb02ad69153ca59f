package verify

import (
	"fmt"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/verify/telltale"
	"deepswe/verify/testlog"
)

// Suspicion is a reason not to trust a log, because the code under test may have printed some of it.
type Suspicion struct {
	Kind   SuspicionKind `json:"kind"`
	Detail string        `json:"detail"`
}

// SuspicionKind is the kind of a suspicion.
type SuspicionKind string

// The kinds.
const (
	// ForgedMarker: the log has more markers than the script prints.
	ForgedMarker SuspicionKind = "forged_marker"
	// ForgedExitCode: the log has more exit codes than the script prints, or they differ, or the sandbox saw another.
	ForgedExitCode SuspicionKind = "forged_exit_code"
	// LostExitCode: the script prints an exit code, and the log has none.
	LostExitCode SuspicionKind = "lost_exit_code"
	// SilentFailure: the test command failed, and no test did.
	SilentFailure SuspicionKind = "silent_failure"
	// Contradiction: an expected test is reported as failing, and passing later.
	Contradiction SuspicionKind = "contradiction"
	// OutsideSummary: an expected test passes by a line outside the runner's summary.
	OutsideSummary SuspicionKind = "outside_summary"
	// UnknownStatus: the status of an expected test is unknown.
	UnknownStatus SuspicionKind = "unknown_status"
)

// suspicions reads a log again and returns what is suspicious about it. results are those of the first reading, nil if
// there are none.
func suspicions(t env.Task, e Evidence, log markedLog, results *testlog.Results) []Suspicion {
	var found []Suspicion
	note := func(kind SuspicionKind, format string, args ...any) {
		found = append(found, Suspicion{kind, fmt.Sprintf(format, args...)})
	}
	script := readScript(t.Tests.Script)
	var codes []string
	if t.Tests.Expected == nil {
		codes = log.codes
		for _, m := range []struct {
			marker string
			at     []int
		}{{startMarker, log.starts}, {endMarker, log.ends}} {
			if n, most := len(m.at), script.prints(m.marker); n > most {
				note(ForgedMarker, "the log has %q %d times, and the script prints it %d times", m.marker, n, most)
			}
		}
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(codes)))
	switch most := script.prints(exitMarker); {
	case len(distinct) > 1:
		note(ForgedExitCode, "the log records the exit codes %s", strings.Join(distinct, ", "))
	case len(codes) > most:
		note(ForgedExitCode, "the log records an exit code %d times, and the script prints it %d times", len(codes), most)
	case len(codes) == 0 && script.text != "" && most > 0 && results != nil:
		note(LostExitCode, "the script prints the exit code of the tests, and the log has none")
	}
	failedRun := false
	if len(codes) > 0 {
		failedRun, _ = failedExit(codes[len(codes)-1])
	}
	if exit := e.ExitCode; exit != nil {
		if len(codes) > 0 && failedRun != (*exit != 0) {
			note(ForgedExitCode, "the log records the exit code %s, and it was %d", codes[len(codes)-1], *exit)
		}
		failedRun = *exit != 0
	}
	if results == nil {
		return found
	}
	if failedRun && !results.Any(testlog.Failed, testlog.Errored) {
		note(SilentFailure, "the test command failed, and the log names no test that did")
	}
	return append(found, suspiciousTests(t, e, log.text, script, results)...)
}

// suspiciousTests checks the expected tests that pass in the first reading.
func suspiciousTests(t env.Task, e Evidence, text string, script evalScript, results *testlog.Results) []Suspicion {
	if t.Tests.Expected != nil || t.Tests.EvalType != PassAndFail {
		return nil
	}
	summary, summarised := script.summary(t, e, text)
	// Some records expect tests that are never in the summary: those that pytest's own tests run, and names with strange
	// line ends.
	reported := map[string]bool{"": false}
	if summarised {
		for name := range summary.All() {
			reported[testFile(name)] = testFile(name) != ""
		}
	}
	tests := map[SuspicionKind][]string{}
	for maintained, ids := range map[bool][]string{false: t.Tests.FailToPass, true: t.Tests.PassToPass} {
		for _, id := range ids {
			v, _ := passAndFail(id, results, maintained)
			if v == undecided {
				tests[UnknownStatus] = append(tests[UnknownStatus], id)
			}
			if v != succeeded || !summarised || !reported[testFile(id)] && !script.runs(testFile(id)) {
				continue
			}
			if name, _, _ := results.Resolve(id); results.Overruled(name) {
				tests[Contradiction] = append(tests[Contradiction], id)
			}
			if v, _ := passAndFail(id, summary, maintained); v != succeeded {
				tests[OutsideSummary] = append(tests[OutsideSummary], id)
			}
		}
	}
	var found []Suspicion
	for _, s := range []struct {
		kind SuspicionKind
		says string
	}{
		{Contradiction, "are reported as failing first, and as passing later"},
		{OutsideSummary, "pass by lines that are not in the runner's last summary"},
		{UnknownStatus, "have a status that is neither a pass nor a failure"},
	} {
		if ids := tests[s.kind]; len(ids) > 0 {
			slices.Sort(ids)
			found = append(found, Suspicion{s.kind, fmt.Sprintf("%d expected tests %s, such as %s", len(ids), s.says, ids[0])})
		}
	}
	return found
}

// evalScript is what a test script shows about its log.
type evalScript struct {
	text   string
	traced bool // the shell prints each command (set -x)
	// commands is the number of lines between the markers, words are the words in these lines.
	commands int
	words    []string
}

// testFile returns the file in a test's id; empty if there is none.
func testFile(id string) string {
	if file, _, ok := strings.Cut(id, "::"); ok {
		return file
	}
	return ""
}

// runs reports whether the script names a test file, or a directory that contains it.
func (s evalScript) runs(file string) bool {
	return file != "" && slices.ContainsFunc(s.words, func(word string) bool {
		word = strings.Trim(word, `'"`)
		return word == file || strings.HasPrefix(file, strings.TrimSuffix(word, "/")+"/")
	})
}

func readScript(text string) evalScript {
	s := evalScript{text: text}
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "set -") && strings.Contains(strings.Fields(line)[1], "x"):
			s.traced = true
		case strings.Contains(line, startMarker):
			inside = true
		case strings.Contains(line, endMarker):
			inside = false
		case inside && line != "" && !strings.HasPrefix(line, "#") && !strings.HasSuffix(line, "=$?"):
			s.commands++
			s.words = append(s.words, strings.Fields(line)...)
		}
	}
	return s
}

// prints returns how often the script prints a marker to the log: in the trace of a line that contains it, and in the
// output of that line if it is an echo. If the script is not known, both are assumed.
func (s evalScript) prints(marker string) int {
	if s.text == "" {
		return 2
	}
	n := 0
	for line := range strings.Lines(s.text) {
		if !strings.Contains(line, marker) {
			continue
		}
		if s.traced {
			n++
		}
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "echo ") || strings.HasPrefix(line, "printf ") {
			n++
		}
	}
	return n
}

const pytestSummary = "short test summary info"

// summary parses pytest's own summary, which begins at the last heading or, if several commands ran, the first one. ok
// is false for scripts that do not make pytest list all tests.
func (s evalScript) summary(t env.Task, e Evidence, text string) (r *testlog.Results, ok bool) {
	if !strings.Contains(s.text, "-rA") {
		return nil, false
	}
	i := strings.LastIndex(text, pytestSummary)
	if s.commands > 1 {
		i = strings.Index(text, pytestSummary)
	}
	if i < 0 {
		return &testlog.Results{}, true
	}
	r, err := e.parse(t, text[i+len(pytestSummary):])
	return r, err == nil
}

// telltales returns the telltales in the changes that the strict trial takes, except for those that the task's solution
// has as well.
func (t *trial) telltales(changes []change) (found []Suspicion) {
	finder := telltale.New()
	for _, c := range changes {
		if slices.ContainsFunc(t.v.Withheld, func(w Withheld) bool { return w.Path == c.before.name }) {
			continue
		}
		for _, f := range finder.Added(c.after.name, c.before.data, c.after.data) {
			if len(found) < mostTelltales && !strings.Contains(t.task.Tests.GoldPatch, f.What) {
				found = append(found, Suspicion{Telltale, fmt.Sprintf("%s:%d: %s (%s)", c.after.name, f.Line, f.What, f.Rule)})
			}
		}
	}
	return found
}

// Telltale means that the patch adds code that forged results need, and fixes seldom do. It says which patches to look
// at, and lowers no reward.
const Telltale SuspicionKind = "telltale"

// mostTelltales is the maximum number of telltales that are listed for a patch.
const mostTelltales = 20
