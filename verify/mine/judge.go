package mine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"deepswe/env"
	"deepswe/env/disk"
	history "deepswe/env/mine"
	"deepswe/env/repo"
	"deepswe/verify"
	"deepswe/verify/testlog"
)

// The reasons why a candidate is no task, as its tests give them.
const (
	NeverRuns history.Reason = "no test runs and passes, even with the change"
	NoFailure history.Reason = "no test fails without the change and passes with it"
	Flaky     history.Reason = "a test that should pass with the change does not always do so"
	TooSlow   history.Reason = "its tests take too long, even with the change"
	Unfit     history.Reason = "its own change does not apply"
)

// Judged is what the runs of a candidate have shown.
type Judged struct {
	// Reason says why the candidate is no task; empty if Task is one, but for its statement. Detail explains it.
	Reason history.Reason `json:"reason,omitempty"`
	Detail string         `json:"detail,omitempty"`
	Task   env.Task       `json:"task,omitzero"`
	// Before is the end of what the tests print without the change.
	Before string `json:"before,omitempty"`
	// Symptoms are lines of it for the statement.
	Symptoms []string `json:"symptoms,omitempty"`
	// Again is set where another set-up may give another result.
	Again bool `json:"again,omitempty"`
	// With names the settings that the candidate was judged with.
	With string `json:"with,omitempty"`

	log string // what tests print that do not run here
}

// testRun is the result of one run of the tests.
type testRun struct {
	results testlog.Results
	status  verify.Status
	log     string
	took    time.Duration
}

func (r testRun) passes(name string) bool {
	s, _ := r.results.Status(name)
	return s == testlog.Passed
}

func (r testRun) anyPasses() bool { return r.results.Any(testlog.Passed) }

// names reports whether the run says anything about a test.
func (r testRun) names(name string) bool {
	_, ok := r.results.Status(name)
	return ok
}

// never is a test that no log names, so that no run of the draft is taken for a solution.
const never = "no such test"

// test runs the tests of a draft once, in a sandbox of its own.
func (m *Miner) test(ctx context.Context, at checkedOut, task env.Task, patch string) (testRun, error) {
	task.Tests.FailToPass, task.Tests.PassToPass = []string{never}, nil
	e := &verify.Evaluator{Provider: at, Timeout: task.Tests.Timeout, Run: m.name(), Canary: verify.CanaryNever}
	v, err := e.Evaluate(ctx, task, []byte(patch))
	if err != nil {
		return testRun{}, err
	}
	took := time.Duration(v.Seconds * float64(time.Second))
	return testRun{*cmp.Or(v.Tests, &testlog.Results{}), v.Status, testlog.Decode(v.Log), took}, nil
}

// first runs the tests with the change, and again as long as their log shows how to mend the draft.
func (m *Miner) first(ctx context.Context, at checkedOut, d *history.Draft) (testRun, error) {
	for {
		r, err := m.test(ctx, at, d.Task, d.Task.Tests.GoldPatch)
		if err != nil || !d.Retry(r.log, r.anyPasses()) {
			return r, err
		}
	}
}

// checkedOut starts sandboxes with a copy of a commit that is checked out once for all of them.
type checkedOut struct {
	env.Provider
	dir string
}

func (at checkedOut) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	s.CopyIn, s.Commit = at.dir, ""
	return at.Provider.Start(ctx, s)
}

// runs are those of one candidate: at the base commit, with the new tests alone, and with the change too.
type runs struct {
	base          testRun
	before, after []testRun
	// changed are the functions of tests that the commit changes.
	changed []string
}

// The numbers of runs without the change and with it. Those after the first show whether the results are stable.
const (
	beforeRuns = 2
	afterRuns  = 3
)

// quick is the time limit of tests that take at most a tenth of it with the change.
const quick = 2 * time.Minute

// judge makes the runs of a draft, and gives up as soon as they cannot make a task of it. symptoms are what the tests
// print without the change.
func (m *Miner) judge(ctx context.Context, d history.Draft) (_ Judged, symptoms []string, err error) {
	scratch, err := disk.MakeScratch("", "mine")
	if err != nil {
		return Judged{}, nil, err
	}
	defer func() { err = errors.Join(err, disk.RemoveScratch(scratch)) }()
	at := checkedOut{m.Provider, filepath.Join(scratch, "repo")}
	if err := repo.CheckOut(ctx, d.Task.Repository, d.Task.BaseCommit, at.dir); err != nil {
		return Judged{}, nil, err
	}
	first, err := m.first(ctx, at, &d)
	if err != nil {
		return Judged{}, nil, err
	}
	all := runs{changed: d.Changed, after: []testRun{first}}
	once := func(to *[]testRun, patch string) {
		if err == nil {
			var r testRun
			r, err = m.test(ctx, at, d.Task, patch)
			*to = append(*to, r)
		}
	}
	if j := all.useless(); j.Reason != "" {
		return j, nil, nil
	}
	if 10*all.after[0].took < quick { // so that a bug that makes them hang does not cost the longest time
		d.Task.Tests.Timeout = min(quick, d.Task.Tests.Timeout)
	}
	if d.BaseScript != "" {
		base := d.Task
		base.Tests.Script, base.Tests.Files = d.BaseScript, nil
		if all.base, err = m.test(ctx, at, base, ""); err != nil {
			return Judged{}, nil, err
		}
	}
	once(&all.before, "")
	if err == nil && all.displaced(d.Task) {
		return Judged{Reason: NeverRuns, Detail: "its parent, with what the change installs", Again: true}, nil, nil
	}
	for len(all.after) < afterRuns && err == nil {
		if fail, _, _ := all.lists(); len(fail) == 0 {
			return all.noFailure(), nil, nil
		}
		once(&all.after, d.Task.Tests.GoldPatch)
	}
	for len(all.before) < beforeRuns && err == nil && all.before[0].status != verify.TimedOut {
		once(&all.before, "")
	}
	if err != nil {
		return Judged{}, nil, err
	}
	j := all.verdict(d.Task)
	if log := all.before[0].log; j.Reason == "" {
		j.Before = strings.ToValidUTF8(log[max(0, len(log)-longestBefore):], "")
	}
	return j, all.symptoms(), nil
}

// longestBefore limits what is kept of a log for the model that writes a statement, in bytes.
const longestBefore = 4000

// displaced reports whether no test passes without the change once its dependencies have replaced those of the base
// commit, which could have broken the tests.
func (r runs) displaced(t env.Task) bool {
	return t.Installed != "" && t.Labels["environment"] != "" && !r.base.anyPasses() && !r.before[0].anyPasses()
}

// useless returns the reason why the first run with the change shows that there will be no task.
func (r runs) useless() Judged {
	switch first := r.after[0]; {
	case first.status == verify.PatchFailed:
		return Judged{Reason: Unfit}
	case first.status == verify.TimedOut:
		return Judged{Reason: TooSlow}
	case !first.anyPasses():
		return Judged{Reason: NeverRuns, Detail: missing(first.log), Again: true, log: first.log}
	}
	return Judged{}
}

// lists returns the tests that the change lets pass, those that pass with and without it, and those that do not give
// the same result each time. A test of the same name at the base commit may be a different one. But if the new tests do
// not even compile without the change, only the base commit shows which of the tests that the commit leaves alone
// passed before.
func (r runs) lists() (fail, pass, unstable []string) {
	each := func(all []testRun, name string) (passed, named int) {
		for _, one := range all {
			if one.passes(name) {
				passed++
			}
			if one.names(name) {
				named++
			}
		}
		return passed, named
	}
	for name := range r.after[0].results.All() {
		with, _ := each(r.after, name)
		without, named := each(r.before, name)
		switch {
		case with == 0 || r.renamed(name):
		case with < len(r.after) || without > 0 && without < len(r.before):
			unstable = append(unstable, name)
		case without > 0 || named == 0 && r.base.passes(name) && !namedAfter(name, r.changed):
			pass = append(pass, name)
		default:
			fail = append(fail, name)
		}
	}
	slices.Sort(fail)
	slices.Sort(pass)
	slices.Sort(unstable)
	return fail, pass, unstable
}

// namedAfter reports whether a test is named after one of the functions: whether one of them is a word of its name.
func namedAfter(test string, functions []string) bool {
	words := strings.FieldsFunc(test, func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) })
	return slices.ContainsFunc(words, func(word string) bool { return slices.Contains(functions, word) })
}

// renamed reports whether a test has another name in another run with the change, such as one that contains the time.
// No task can name it.
func (r runs) renamed(name string) bool {
	return slices.ContainsFunc(r.after, func(other testRun) bool {
		return !other.names(name) && other.results.Len() == r.after[0].results.Len()
	})
}

// lacking matches what pytest and unittest print about tests that they skip because something is not installed.
var lacking = env.Pattern(
	`(?im)^(?:SKIPPED \[| *\S+ .*\.\.\. skipped ).*\b(?:install|import|requires?|needs?|modules?|librar)`)

// noFailure is the verdict where no test fails without the change. Another set-up may reveal one that does.
func (r runs) noFailure() Judged {
	first := r.after[0]
	again := first.results.Any(testlog.Failed, testlog.Errored) || lacking().MatchString(first.log)
	return Judged{Reason: NoFailure, Again: again}
}

// mostMaintained limits the tests that must go on passing. More would make a task only less stable.
const mostMaintained = 200

// verdict makes the task of what all runs have shown.
func (r runs) verdict(t env.Task) Judged {
	fail, pass, unstable := r.lists()
	for _, name := range unstable {
		if without := slices.ContainsFunc(r.before, func(b testRun) bool { return b.passes(name) }); !without {
			return Judged{Reason: Flaky, Detail: name}
		}
	}
	if len(fail) == 0 {
		return r.noFailure()
	}
	t.Tests.FailToPass, t.Tests.PassToPass = fail, pass[:min(len(pass), mostMaintained)]
	before := "fails"
	switch first := r.before[0]; {
	case first.status == verify.TimedOut:
		before = "hangs"
	case !slices.ContainsFunc(fail, first.names):
		before = "does not load"
	}
	t.Labels["before"] = before
	if len(unstable) > 0 {
		t.Labels["unstable"] = fmt.Sprint(len(unstable))
	}
	return Judged{Task: t}
}

// lacks match what runners print about something that is not installed, with its name.
var lacks = env.Patterns(
	`No module named '?(\w+)`,
	`(?:no required module provides|cannot find module providing|cannot find) package "?([\w./-]+)`,
	`([\w./-]+@v[\w.+-]+): module lookup disabled`,
	`Cannot find (?:module|package) '([\w@/-]+)'`,
	`cannot load such file -- (\S+)`,                                           // Ruby
	`request to https?://[^/\s]+/(\S+) failed: cache mode is 'only-if-cached'`, // npx
	`No cached version of (\S+) available for offline mode`,                    // Gradle
	`^SKIPPED \[\d+\] \S+ (.*\S)`,                                              // pytest, where that is all there is
	`(requires go >= [\d.]+|cannot import name '\w+' from '[\w.]+'|\S+: (?:command )?not found)`,
)

// failure matches lines that say why a program or a compiler gave up.
var failure = env.Pattern(`^(?:E\s+|not ok \d+ - )?((?:[\w.]*(?:Error|Exception)|(?:fatal )?error(?:\[\w+\])?): .*\S|` +
	`\S+:\d+:\d+: .*\S|No tests? (?:files )?found\b.*)|` +
	`^\[ERROR\] ((?:[^C]|C[^O]).*\S)|` + // Maven's own, but COMPILATION ERROR
	`^\S+:\d+:in .*': (.*\S \([A-Z][\w:]*\))`) // Ruby

// missing returns the name of what a log reports as not installed. If it reports nothing of the kind, missing returns
// its first error, or else its last line.
func missing(log string) string {
	last, wrong := "", ""
	for line := range strings.Lines(log) {
		for _, l := range lacks() {
			if m := l.FindStringSubmatch(line); m != nil {
				return m[1]
			}
		}
		if text := strings.TrimSpace(line); text != "" && !strings.Contains(text, ">>>>>") && !strings.HasPrefix(text, "+") {
			last = text
		}
		if m := failure().FindStringSubmatch(line); m != nil && wrong == "" {
			wrong = m[1] + m[2] + m[3]
		}
	}
	return cmp.Or(wrong, last)
}

var (
	// symptom matches lines that say what went wrong, in the first group that is not empty. What a test in Go says belongs
	// to the result that follows.
	symptom = env.Pattern(`^(?:E {3,12}(\S.*)|(panic: .*\S)|\s*(AssertionError.*\S)|` +
		`([\w:\\]*(?:Error|Exception): .*\S)|` + // Ruby, PHP, JavaScript
		`((?:[a-z]\w*\.)+[\w$]*(?:Error|Exception|Failure)(?:: .*\S|$))|` + // Java
		`\s*<failure message="((?:[a-z]\w*\.)+[\w$]*(?:Error|Exception|Failure)\b[^"]*)"|` + // Gradle
		`\s*((?i:expected|actual|received|got|left|right): .*\S)|` + // Minitest, RSpec, Jest, Rust
		`(<.*> expected but was)|(<[^/\w].*>|<\d.*>)$|` + // test-unit
		`(Failed asserting that .*\S)|([-+](?:'.*'|\d+|true|false|null))$)`) // PHPUnit
	said = env.Pattern(`^\s+\w+_test\.go:\d+: (.*\S)`)
)

// symptoms returns what the tests print without the change, in a few short lines.
func (r runs) symptoms() []string {
	const most, longest = 4, 160
	var all, pending []string
	for line := range strings.Lines(r.before[0].log) {
		line = strings.TrimRight(line, "\r\n")
		switch m := said().FindStringSubmatch(line); {
		case m != nil && len(line) <= longest:
			pending = append(pending, m[1])
		case strings.HasPrefix(line, "--- FAIL"):
			all, pending = append(all, pending...), nil
		case strings.HasPrefix(line, "--- "), strings.HasPrefix(line, "=== RUN") && !strings.Contains(line, "/"):
			pending = nil
		default:
			m := symptom().FindStringSubmatch(line)
			if m == nil {
				continue
			}
			text := strings.Join(m[1:], "")
			if strings.Contains(line, "<failure ") {
				text = html.UnescapeString(text)
			}
			if len(text) <= longest {
				all = append(all, text)
			}
		}
	}
	var few []string
	for _, text := range all {
		if len(few) < most && !slices.Contains(few, text) {
			few = append(few, text)
		}
	}
	return few
}
