package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/verify/canary"
	"deepswe/verify/harness"
	"deepswe/verify/testlog"
)

// findings are what a run with wrong tests shows about the runner. The zero value means that it reports as it should.
type findings struct {
	// passed maps the mutations of wrong tests that were not reported as failed to what was reported.
	passed map[string]string
	// other maps the mutations of withheld tests and of variants that did not pass, or that got other values than they
	// expect, to what is wrong; for a variant, to its test.
	other map[string]string
	// foreign is set if a withheld test got a value that is not exactly of the language's own types, such as one of a
	// type that is derived from them, or "5" for 5: it may be equal to what is expected, and nothing outside can tell.
	foreign bool
	// ended says how the script's end differs from that of a failing run.
	ended string
}

// clean reports whether nothing is wrong; foreign does not count.
func (f findings) clean() bool { return len(f.passed)+len(f.other) == 0 && f.ended == "" }

// says summarises the findings, with one test as an example.
func (f findings) says() string {
	text := f.ended
	for _, found := range []struct {
		what string
		all  map[string]string
	}{
		{"wrong tests were not reported as failed", f.passed},
		{"tests did not get what they expect, where that was withheld", f.other},
	} {
		if len(found.all) == 0 {
			continue
		}
		first := slices.Sorted(maps.Keys(found.all))[0]
		says := fmt.Sprintf("%d %s: %s", len(found.all), found.what, found.all[first])
		if text != "" {
			says += "; " + text
		}
		text = says
	}
	return text
}

// beyond returns the findings that the reference does not have.
func (f findings) beyond(ref findings) findings {
	left := findings{passed: without(f.passed, ref.passed), other: without(f.other, ref.other)}
	if ref.ended == "" {
		left.ended = f.ended
	}
	return left
}

// without returns the entries of all whose keys are not in known.
func without(all, known map[string]string) map[string]string {
	left := maps.Clone(all)
	maps.DeleteFunc(left, func(key, _ string) bool { _, ok := known[key]; return ok })
	return left
}

// key identifies the tests that are wrong.
func (m mixture) key() string {
	var key strings.Builder
	for _, i := range m.wrong {
		key.WriteString(m.set.Canaries[i].Mutation + "\n")
	}
	return key.String()
}

// judge compares what the log says about the wrong tests with what it must say.
func (m mixture) judge(exit ending, r *testlog.Results) findings {
	found := findings{passed: map[string]string{}, other: map[string]string{}}
	switch {
	case m.count(canary.Withheld)+m.count(canary.Variant) == len(m.wrong): // none must fail
	case exit.signal != "":
		found.ended = "the script was ended by " + exit.signal
	case exit.code == 0:
		found.ended = "the script ended with the exit code 0"
	}
	written := canary.ReadRecord(m.written)
	for _, i := range m.wrong {
		c := m.set.Canaries[i]
		if c.Kind == canary.Variant {
			if !passes(c, r) {
				found.other[c.Mutation] = c.Tests[0]
			}
			continue
		}
		if c.Kind == canary.Withheld {
			if says, foreign := m.unkept(c, written, r); foreign {
				found.foreign = true
			} else if says != "" {
				found.other[c.Mutation] = fmt.Sprintf("%s %s", c.Tests[0], says)
			}
			continue
		}
		for _, id := range c.Tests {
			if says := unfailed(id, r); says != "" {
				found.passed[c.Mutation] = fmt.Sprintf("%s (%s) %s", id, c.Kind, says)
				break
			}
		}
	}
	return found
}

// count returns how many tests of the run were changed by a canary of the given kind.
func (m mixture) count(kind canary.Kind) (n int) {
	for _, i := range m.wrong {
		if m.set.Canaries[i].Kind == kind {
			n++
		}
	}
	return n
}

// unkept returns what is wrong with a withheld test: it does not pass, or it has written other values than the
// literals.
func (m mixture) unkept(c canary.Canary, written map[int][]string, r *testlog.Results) (says string, foreign bool) {
	if r == nil {
		return "is not in the log", false
	}
	if says, foreign := c.Miswritten(written); says != "" || foreign {
		return says, foreign
	}
	if !passes(c, r) {
		return "does not pass without the literals", false
	}
	return "", false
}

// passes reports whether all tests of a canary pass.
func passes(c canary.Canary, r *testlog.Results) bool {
	return r != nil && !slices.ContainsFunc(c.Tests, func(id string) bool {
		name, ok, _ := r.Resolve(id)
		s, _ := r.Status(name)
		return !ok || s != testlog.Passed
	})
}

// unfailed returns what is wrong with a wrong test in a report; empty if it failed. A case of a Go test (TestSum/empty)
// has failed if the test has: another of its cases may be the wrong one.
func unfailed(id string, r *testlog.Results) string {
	if r == nil {
		return "is not in the log"
	}
	bad := func(s testlog.Status) bool { return s == testlog.Failed || s == testlog.Errored }
	if around, _, inside := strings.Cut(id, "/"); inside {
		if s, _ := r.Status(around); bad(s) {
			return ""
		}
	}
	name, ok, _ := r.Resolve(id)
	if !ok {
		return "is not in the log"
	}
	if s, _ := r.Status(name); !bad(s) {
		return "has the status " + string(s)
	}
	return ""
}

// without returns the task by which the right tests of a run are graded. It does not list the wrong ones or, if the
// task expects statuses, expects those of them that fail in r to fail.
func (m mixture) without(t env.Task, r *testlog.Results) env.Task {
	wrong := map[string]bool{}
	for _, i := range m.wrong {
		c := m.set.Canaries[i]
		for _, id := range slices.Concat(c.Tests, c.May) {
			wrong[id] = true
		}
	}
	if len(wrong) == 0 {
		return t
	}
	right := func(ids []string) []string {
		return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return wrong[id] })
	}
	t.Tests.FailToPass, t.Tests.PassToPass = right(t.Tests.FailToPass), right(t.Tests.PassToPass)
	if t.Tests.Expected == nil || r == nil {
		return t
	}
	t.Tests.Expected = maps.Clone(t.Tests.Expected)
	for id := range wrong {
		if s, ok := r.Status(id); ok && (s == testlog.Failed || s == testlog.Errored) {
			t.Tests.Expected[id] = string(s)
		}
	}
	return t
}

// unplainPass is a test that counts as passed although its status, or that of the Go test around a case, is not Passed:
// such a case would pass as a right test, and fail as a wrong one.
type unplainPass struct {
	id     string
	status testlog.Status
}

// unplain returns the unplain passes among the right tests of a trial, in the order of their ids.
func unplain(t *trial) (found []unplainPass) {
	task, r := t.mixed.without(t.task, t.v.Tests), t.v.Tests
	if r == nil || task.Tests.Expected != nil || task.Tests.EvalType != PassAndFail {
		return nil
	}
	for maintained, ids := range map[bool][]string{false: task.Tests.FailToPass, true: task.Tests.PassToPass} {
		for _, id := range ids {
			name, ok, _ := r.Resolve(id)
			s, _ := r.Status(name)
			if around, _, inside := strings.Cut(id, "/"); inside && s == testlog.Passed {
				if of, known := r.Status(around); known {
					s = of
				}
			}
			if ok && s != testlog.Passed {
				if v, _ := passAndFail(id, r, maintained); v == succeeded {
					found = append(found, unplainPass{id, s})
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b unplainPass) int { return strings.Compare(a.id, b.id) })
	return found
}

// right returns the task by which the right tests are graded.
func (t *trial) right(e Evidence) env.Task {
	if len(t.mixed.wrong) == 0 || t.task.Tests.Expected == nil {
		return t.mixed.without(t.task, nil)
	}
	r, err := e.parse(t.task, testlog.Decode(t.v.Log))
	if err != nil {
		return t.task
	}
	return t.mixed.without(t.task, r)
}

// fail makes withheld tests that got other values fail, in the verdict and in its lists.
func (t *trial) fail(other map[string]string) {
	for _, c := range t.mixed.set.Canaries {
		says, ok := other[c.Mutation]
		if !ok {
			continue
		}
		v := &t.v
		if v.Reward = 0; v.Status == Resolved {
			v.Status, v.Detail = Unresolved, says
		}
		if v.Report == nil || v.Report.Tests == nil {
			continue
		}
		report, tests := *v.Report, *v.Report.Tests
		for _, list := range []struct {
			ids  []string
			into *harness.TestLists
		}{{t.task.Tests.FailToPass, &tests.FailToPass}, {t.task.Tests.PassToPass, &tests.PassToPass}} {
			for _, id := range list.ids {
				if slices.Contains(c.Tests, id) {
					list.into.Failure = append(slices.Clip(list.into.Failure), id)
				}
			}
		}
		report.Tests, report.Resolved = &tests, false
		v.Report, v.Broken = &report, tests.PassToPass.Failure
	}
}
