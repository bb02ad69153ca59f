package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/verify/testlog"
)

// findings are what a run with wrong tests shows about the runner. The zero value means that it reports as it should.
type findings struct {
	// passed maps the mutations of wrong tests that were not reported as failed to what was reported.
	passed map[string]string
	// ended says how the script's end differs from that of a failing run.
	ended string
}

// clean reports whether nothing was found.
func (f findings) clean() bool { return len(f.passed) == 0 && f.ended == "" }

// says summarises the findings, with one test as an example.
func (f findings) says() string {
	if len(f.passed) == 0 {
		return f.ended
	}
	mutations := slices.Sorted(maps.Keys(f.passed))
	text := fmt.Sprintf("%d wrong tests were not reported as failed: %s", len(mutations), f.passed[mutations[0]])
	if f.ended != "" {
		text += "; " + f.ended
	}
	return text
}

// beyond returns the findings that the reference does not have.
func (f findings) beyond(ref findings) findings {
	left := findings{passed: map[string]string{}}
	for mutation, says := range f.passed {
		if _, known := ref.passed[mutation]; !known {
			left.passed[mutation] = says
		}
	}
	if ref.ended == "" {
		left.ended = f.ended
	}
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
	found := findings{passed: map[string]string{}}
	switch {
	case len(m.wrong) == 0:
		return found
	case exit.signal != "":
		found.ended = "the script was ended by " + exit.signal
	case exit.code == 0:
		found.ended = "the script ended with the exit code 0"
	}
	for _, i := range m.wrong {
		c := m.set.Canaries[i]
		for _, id := range c.Tests {
			if says := unfailed(id, r); says != "" {
				found.passed[c.Mutation] = fmt.Sprintf("%s (%s) %s", id, c.Kind, says)
				break
			}
		}
	}
	return found
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

// without returns the task by which the right tests of a run are graded: it does not expect anything of the wrong ones.
func (m mixture) without(t env.Task, r *testlog.Results) env.Task {
	wrong := map[string]bool{}
	for _, i := range m.wrong {
		for _, id := range m.set.Canaries[i].Tests {
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

// unplainPass is a test that counts as passed although its status is not Passed.
type unplainPass struct {
	id     string
	status testlog.Status
}

// unplain returns the right tests of a trial that pass in such a way, in the order of their ids.
func unplain(t *trial) (found []unplainPass) {
	task, r := t.mixed.without(t.task, t.v.Tests), t.v.Tests
	if r == nil || task.Tests.Expected != nil || task.Tests.EvalType != PassAndFail {
		return nil
	}
	for maintained, ids := range map[bool][]string{false: task.Tests.FailToPass, true: task.Tests.PassToPass} {
		for _, id := range ids {
			name, ok, _ := r.Resolve(id)
			if s, _ := r.Status(name); ok && s != testlog.Passed {
				if v, _ := passAndFail(id, r, maintained); v == succeeded {
					found = append(found, unplainPass{id, s})
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b unplainPass) int { return strings.Compare(a.id, b.id) })
	return found
}
