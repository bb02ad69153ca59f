package testlog

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Results maps tests to statuses, in the order in which the log first named the tests. A test that is named again
// keeps its position and gets the later status. The zero value is empty.
type Results struct {
	entries []entry
	index   index
	names   arena
}

type entry struct {
	name      string
	status    Status
	overruled bool // a failure was recorded before the current status
}

// notText starts the name of a test that a JSON report gave as something other than a string. Decoded text never
// contains this byte, so such a name never equals an expected one.
const notText = "\xff"

// Len returns the number of tests.
func (r *Results) Len() int { return len(r.entries) }

// Status returns the status of the test with exactly that name; ok is false if there is none.
func (r *Results) Status(name string) (Status, bool) {
	i := r.index.find(name, r.entries)
	if i < 0 {
		return "", false
	}
	return r.entries[i].status, true
}

// Overruled reports whether a test that does not count as failed was reported as failed earlier in the log.
func (r *Results) Overruled(name string) bool {
	i := r.index.find(name, r.entries)
	return i >= 0 && r.entries[i].overruled && !r.entries[i].status.fails()
}

// All returns tests and statuses in order.
func (r *Results) All() iter.Seq2[string, Status] {
	return func(yield func(string, Status) bool) {
		for _, e := range r.entries {
			if !yield(e.name, e.status) {
				return
			}
		}
	}
}

// Any reports whether some test has one of the statuses.
func (r *Results) Any(statuses ...Status) bool {
	return slices.ContainsFunc(r.entries, func(e entry) bool { return slices.Contains(statuses, e.status) })
}

// Resolve returns the test that an expected ID refers to. Some published IDs are truncated inside their parameters
// ("test_fit[log(x"), and so have more opening than closing brackets. Such an ID refers to the first test that
// starts with it, provided that all tests that do have either passed or not passed. If the harness would fail
// because a name is not text, the error wraps ErrMalformed.
func (r *Results) Resolve(id string) (name string, ok bool, err error) {
	if r.index.find(id, r.entries) >= 0 {
		return id, true, nil
	}
	if strings.Count(id, "[") <= strings.Count(id, "]") {
		return "", false, nil
	}
	agree, first := true, -1
	for i, e := range r.entries {
		if strings.HasPrefix(e.name, notText) {
			return "", false, fmt.Errorf("a test's name is not text: %s: %w", e.name[len(notText):], ErrMalformed)
		}
		if !strings.HasPrefix(e.name, id) {
			continue
		}
		if first < 0 {
			first = i
		}
		agree = agree && e.status.passes() == r.entries[first].status.passes()
	}
	if first < 0 || !agree {
		return "", false, nil
	}
	return r.entries[first].name, true, nil
}

// Renamed returns the results with other names. Of tests that get the same name, the later one counts.
func (r *Results) Renamed(name func(string) string) *Results {
	out := &Results{}
	for _, e := range r.entries {
		out.add(name(e.name), e)
	}
	return out
}

// add sets the status of a test to that of an entry of other results, and keeps whether that was overruled.
func (r *Results) add(name string, e entry) {
	r.set(name, e.status)
	if e.overruled {
		r.entries[r.index.find(name, r.entries)].overruled = true
	}
}

// passes reports whether the status counts as a pass, which includes an expected failure.
func (s Status) passes() bool { return s == Passed || s == XFailed }

func (s Status) fails() bool { return s == Failed || s == Errored }

// set records a status. It copies name and status, so that the results do not keep the whole log in memory.
func (r *Results) set(name string, s Status) {
	i := r.index.findOrAdd(name, r.entries)
	if i < len(r.entries) {
		e := &r.entries[i]
		e.overruled = e.overruled || e.status.fails()
		e.status = r.own(s)
		return
	}
	r.entries = append(r.entries, entry{name: r.names.copy(name), status: r.own(s)})
}

// own returns the status without a reference to the text that it may be part of.
func (r *Results) own(s Status) Status {
	if i := slices.Index(statuses, s); i >= 0 {
		return statuses[i]
	}
	return Status(r.names.copy(string(s)))
}
