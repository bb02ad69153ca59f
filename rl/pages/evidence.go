package pages

import (
	"cmp"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/verify"
)

// evidence is what is on the disk about the grading of an attempt.
type evidence struct {
	Dir string
	verify.Evaluation
	// Failing are the tests that should pass and do not: those that the patch had to fix, and those that it broke.
	Failing []string
}

// gradeDir returns the directory of an attempt's grading, which need not exist.
func (r *loaded) gradeDir(x row) string {
	if r.Kind != run.Grade {
		return filepath.Join(x.Dir, "grade")
	}
	found := disk.Glob(r.Path, "logs/run_evaluation/*/*/"+run.PathName(x.Task))
	if len(found) == 0 {
		return x.Dir
	}
	if x.Index > 0 {
		return filepath.Join(found[0], "repeat", strconv.Itoa(x.Index))
	}
	return found[0]
}

// evidenceOf reads the grading of an attempt. ok is false if there is none.
func (r *loaded) evidenceOf(x row) (e evidence, ok bool) {
	e.Dir = r.gradeDir(x)
	if disk.ReadJSON(filepath.Join(e.Dir, verify.EvaluationFile), &e.Evaluation) != nil {
		return e, false
	}
	var report map[string]struct {
		Tests map[string]struct {
			Failure []string `json:"failure"`
		} `json:"tests_status"`
	}
	_ = disk.ReadJSON(filepath.Join(e.Dir, verify.ReportFile), &report) // not every evaluation has one
	for _, one := range report {
		e.Failing = slices.Concat(one.Tests["FAIL_TO_PASS"].Failure, one.Tests["PASS_TO_PASS"].Failure)
	}
	if e.Failing == nil {
		e.Failing = e.Broken
	}
	return e, true
}

// failureGroup is attempts that failed in the same way.
type failureGroup struct {
	Name string
	Rows []row
	More int
}

// Size is the number of all of them.
func (g failureGroup) Size() int { return len(g.Rows) + g.More }

// mostListed is the most attempts that are listed of a group of failures, and the most groups.
const mostListed = 40

// failures groups the attempts that have not solved their tasks by why they ended, and by the tests that fail.
func (h *Handler) failures(r *loaded, req *http.Request) (view, error) {
	q := queryOf(req.URL.Query())
	terms := parseFilter(q.Filter)
	stops, tests := map[string][]row{}, map[string][]row{}
	n := 0
	for _, x := range r.Rows {
		if x.Verdict == solved || x.Verdict == playing || !matches(terms, x.fields()) {
			continue
		}
		n++
		stop := phrase(cmp.Or(x.Stop, x.Status, string(x.Verdict)))
		if x.Err != "" {
			stop = "infrastructure failure: " + firstLine(x.Err)
		}
		stops[stop] = append(stops[stop], x)
		if e, ok := r.evidenceOf(x); ok {
			for _, name := range e.Failing {
				tests[name] = append(tests[name], x)
			}
		}
	}
	return view{template: "failures", Title: r.ID + ": failures", Tabs: r.tabs("Failures", q.Filter), Data: struct {
		Query        query
		Number       int
		Stops, Tests []failureGroup
	}{q, n, groups(stops), groups(tests)}}, nil
}

// groups orders groups of failures, the largest first.
func groups(by map[string][]row) []failureGroup {
	var all []failureGroup
	for name, rows := range by {
		g := failureGroup{Name: name, Rows: rows}
		if len(rows) > mostListed {
			g.Rows, g.More = rows[:mostListed], len(rows)-mostListed
		}
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b failureGroup) int {
		return cmp.Or(b.Size()-a.Size(), strings.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), mostListed)]
}

// maxLog is the most bytes of a log that a page shows: its end, where test runners sum up.
const maxLog = 1 << 20

// logLine is a line of a test log.
type logLine struct {
	Number int
	Text   string
	Bad    bool
}

// testLogs names the files with the output of tests: of grading, and those that solve ran without the patch, with its
// tests alone, and with it.
func testLogs() []link {
	return []link{{"test log", verify.LogFile}, {"tests before the patch", "test-base.log"},
		{"its tests on the old code", "test-old.log"}, {"tests with the patch", "test-patch.log"}}
}

// logPath returns the path of a test log, which need not exist.
func (r *loaded) logPath(x row, name string) string {
	if name == verify.LogFile {
		return filepath.Join(r.gradeDir(x), name)
	}
	return filepath.Join(x.Dir, name)
}

// log shows the output of an attempt's tests, with the lines that tell of failures.
func (h *Handler) log(r *loaded, req *http.Request) (view, error) {
	x, err := r.row(req)
	if err != nil {
		return view{}, err
	}
	name := cmp.Or(req.URL.Query().Get("file"), verify.LogFile)
	at := slices.IndexFunc(testLogs(), func(l link) bool { return l.To == name })
	if at < 0 {
		return view{}, errNotFound
	}
	text, err := os.ReadFile(r.logPath(x, name))
	if errors.Is(err, fs.ErrNotExist) {
		return view{}, errNotFound
	}
	if err != nil {
		return view{}, err
	}
	e, _ := r.evidenceOf(x)
	lines, cut := logLines(string(text), e.Failing)
	return view{template: "log", Title: x.Task + ": " + testLogs()[at].Text, Crumbs: []link{
		{label(x), "./" + x.Link()},
	}, Data: struct {
		Lines []logLine
		Cut   int64
		Bad   int
	}{lines, int64(cut), countBad(lines)}}, nil
}

// logLines returns the lines of a log's end, and how many bytes before it are left out.
func logLines(text string, failing []string) (lines []logLine, cut int) {
	number := 1
	if len(text) > maxLog {
		cut = len(text) - maxLog
		number += strings.Count(text[:cut], "\n")
		text = text[cut:]
	}
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		lines = append(lines, logLine{number, plain(line), failureLine(line, failing)})
		number++
	}
	return lines, cut
}

// failureLine reports whether a line of a test log tells of a failure.
func failureLine(line string, failing []string) bool {
	for _, mark := range []string{
		"FAILED", "ERROR", "--- FAIL", "FAIL:", "Traceback (most recent", "panicked at", "✕", "not ok ",
	} {
		if strings.Contains(line, mark) {
			return true
		}
	}
	if strings.HasPrefix(line, "E  ") {
		return true
	}
	return len(failing) > 0 && len(failing) < 50 && slices.ContainsFunc(failing, func(name string) bool {
		return strings.Contains(line, name) && strings.Contains(strings.ToLower(line), "fail")
	})
}

func countBad(lines []logLine) (n int) {
	for _, l := range lines {
		if l.Bad {
			n++
		}
	}
	return n
}

// label names an attempt.
func label(x row) string {
	name := x.Task + " #" + strconv.Itoa(x.Index)
	if x.Context > 0 {
		name += " with " + count(x.Context) + " tokens"
	}
	return name
}
