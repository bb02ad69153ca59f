package dataset

import (
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strings"

	"deepswe/env"
)

// Options choose among the tasks of a dataset. The zero value takes all, in the order of the files. They apply in the
// order of the fields: a slice is one of the shuffled tasks.
type Options struct {
	// Strict ends the sequence at the first bad record. Otherwise the rest goes on.
	Strict bool
	// Filter keeps tasks whose id it matches.
	Filter *regexp.Regexp
	// ExcludeReposOf is a dataset whose repositories are left out: training tasks must not come from repositories that
	// an evaluation uses. Names are compared without case and, where one side has no owner, without the owner.
	ExcludeReposOf string
	// Shuffle, when not nil, is the seed of an order that is the same everywhere.
	Shuffle *uint64
	// Slice keeps a part of what is left by now.
	Slice Slice
	// Counts, when not nil, is filled while the sequence is read.
	Counts *Counts
}

// Counts are the numbers of records of a dataset by outcome.
type Counts struct {
	Records  int // that were read
	Bad      int // of those, could not be understood
	Filtered int // did not match the filter
	Excluded int // came from an excluded repository
	Tasks    int // were yielded
}

// RecordError is one record that could not be understood.
type RecordError struct {
	File  string
	Line  int    // of the file; for parquet the row; both count from 1; 0 for a Harbor folder
	Field string // empty where the record as a whole is at fault
	Err   error
}

func (e *RecordError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	switch {
	case e.Line > 0 && isParquet(e.File):
		fmt.Fprintf(&b, ": row %d", e.Line)
	case e.Line > 0:
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Field != "" {
		fmt.Fprintf(&b, ": %s", e.Field)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

func (e *RecordError) Unwrap() error { return e.Err }

// Read yields the tasks at a path: a file (.jsonl, .json, .parquet, the first two also with .gz or .zst), a pattern of
// files, a directory of such files, a Harbor task, or a directory of Harbor tasks.
//
// A *RecordError among the errors is about one record, and the sequence goes on, unless Options.Strict is set. After
// any other error the sequence ends.
func Read(path string, o Options) iter.Seq2[env.Task, error] {
	return func(yield func(env.Task, error) bool) {
		if o.Counts == nil {
			o.Counts = new(Counts)
		}
		tasks, err := o.choose(path)
		if err != nil {
			yield(env.Task{}, fmt.Errorf("read tasks: %w", err))
			return
		}
		for t, err := range tasks {
			if err != nil {
				_, bad := errors.AsType[*RecordError](err)
				if !yield(env.Task{}, fmt.Errorf("read tasks: %w", err)) || !bad || o.Strict {
					return
				}
				continue
			}
			o.Counts.Tasks++
			if !yield(t, nil) {
				return
			}
		}
	}
}

// choose returns the tasks that the options leave, in their order.
func (o Options) choose(path string) (iter.Seq2[env.Task, error], error) {
	excluded, err := reposOf(o.ExcludeReposOf)
	if err != nil {
		return nil, fmt.Errorf("exclude repositories of %s: %w", o.ExcludeReposOf, err)
	}
	records, err := open(path, taskFields, readHarbor, record.task)
	if err != nil {
		return nil, err
	}
	tasks := func(yield func(env.Task, error) bool) {
		for t, err := range records {
			_, bad := errors.AsType[*RecordError](err)
			if err == nil || bad {
				o.Counts.Records++
			}
			switch {
			case bad:
				o.Counts.Bad++
			case err != nil: // it ends the sequence
			case o.Filter != nil && !o.Filter.MatchString(t.ID):
				o.Counts.Filtered++
				continue
			case excluded.has(t.Repo):
				o.Counts.Excluded++
				continue
			}
			if !yield(t, err) {
				return
			}
		}
	}
	if o.Shuffle == nil && !o.Slice.fromEnd() {
		return o.Slice.ahead(tasks), nil
	}
	return reordered(tasks, o), nil
}
