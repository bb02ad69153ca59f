package dataset

import (
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strings"

	"deepswe/env"
)

// Options select tasks of a dataset. The zero value selects all, in file order. The fields are applied in their
// order here: Slice, for example, cuts the shuffled tasks.
type Options struct {
	// Strict ends the sequence at the first bad record instead of skipping it.
	Strict bool
	// Filter selects tasks by ID.
	Filter *regexp.Regexp
	// ExcludeReposOf is the path of a dataset whose repositories are left out, because training tasks must not come
	// from repositories used for evaluation. Names are compared case-insensitively and, if one of them has no
	// owner, without owners.
	ExcludeReposOf string
	// Shuffle, if not nil, is the seed of a shuffle that gives the same order on every machine.
	Shuffle *uint64
	// Slice selects a part of the remaining tasks.
	Slice Slice
	// Image is the container image for tasks that do not name one.
	Image string
	// Counts, if not nil, is updated while the sequence is read.
	Counts *Counts
}

// Counts are numbers of a dataset's records.
type Counts struct {
	Records  int // records read
	Bad      int // records that are not valid tasks
	Filtered int // tasks that do not match the filter
	Excluded int // tasks of excluded repositories
}

// RecordError reports a record that is not a valid task.
type RecordError struct {
	File  string
	Line  int    // line in the file or row in the parquet file, from 1; 0 for Harbor
	Field string // empty if the error concerns the whole record
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

// Read yields the tasks at a path: a file (.jsonl, .json or .parquet; the first two also as .gz or .zst), a glob
// pattern, a directory of such files, a Harbor task folder, or a directory of Harbor task folders. The name bugs means
// the bundled dataset of package bugs, unless there is a file with that name.
//
// An error that is a *RecordError concerns one record, and the sequence continues, unless Options.Strict is set.
// Any other error ends the sequence.
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
			if !yield(t, nil) {
				return
			}
		}
	}
}

// choose returns the selected tasks in the selected order.
func (o Options) choose(path string) (iter.Seq2[env.Task, error], error) {
	excluded, err := reposOf(o.ExcludeReposOf)
	if err != nil {
		return nil, fmt.Errorf("exclude repositories of %s: %w", o.ExcludeReposOf, err)
	}
	records, err := open(path, taskFields, readHarbor, record.task, func(t env.Task) env.Task { return t })
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
			case err != nil: // this error ends the sequence
			case o.Filter != nil && !o.Filter.MatchString(t.ID):
				o.Counts.Filtered++
				continue
			case excluded.has(t.Repo):
				o.Counts.Excluded++
				continue
			case t.Image == "" && t.Dockerfile == "":
				t.Image = o.Image
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
