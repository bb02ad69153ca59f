package dataset

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"deepswe/env"
)

// Slice selects a part of a sequence by Python's rules: it starts at Start and ends before End, negative bounds
// count from the end, and bounds outside the sequence are clipped. The zero value selects everything.
type Slice struct {
	Start, End *int
}

// ParseSlice parses "A:B", where either bound may be missing; "N" alone means ":N".
func ParseSlice(s string) (Slice, error) {
	left, right, both := strings.Cut(s, ":")
	if !both {
		left, right = "", s
	}
	var slice Slice
	for _, bound := range []struct {
		text string
		to   **int
	}{{left, &slice.Start}, {right, &slice.End}} {
		text := strings.TrimSpace(bound.text)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return Slice{}, fmt.Errorf("parse slice %q: want A:B with whole numbers", s)
		}
		*bound.to = &n
	}
	return slice, nil
}

// fromEnd reports whether the slice depends on the sequence's length.
func (s Slice) fromEnd() bool {
	return s.Start != nil && *s.Start < 0 || s.End != nil && *s.End < 0
}

// bounds returns the slice's bounds in a sequence of n elements.
func (s Slice) bounds(n int) (start, end int) {
	clamp := func(bound *int, missing int) int {
		if bound == nil {
			return missing
		}
		if *bound < 0 {
			return max(0, n+*bound)
		}
		return min(*bound, n)
	}
	start = clamp(s.Start, 0)
	return start, max(start, clamp(s.End, n))
}

// ahead yields the slice while reading, and stops reading at its end. Errors are passed on and do not count as
// elements.
func (s Slice) ahead(tasks iter.Seq2[env.Task, error]) iter.Seq2[env.Task, error] {
	return func(yield func(env.Task, error) bool) {
		if s.End != nil && (*s.End <= 0 || s.Start != nil && *s.End <= *s.Start) {
			return
		}
		i := 0
		for t, err := range tasks {
			if err == nil {
				i++
				if s.Start != nil && i <= *s.Start {
					continue
				}
			}
			if !yield(t, err) || s.End != nil && err == nil && i >= *s.End {
				return
			}
		}
	}
}

// reordered yields tasks shuffled and sliced. It reads all tasks first, but yields errors at once.
func reordered(tasks iter.Seq2[env.Task, error], o Options) iter.Seq2[env.Task, error] {
	return func(yield func(env.Task, error) bool) {
		var kept store
		defer kept.close()
		for t, err := range tasks {
			if err == nil {
				if err = kept.add(t); err == nil {
					continue
				}
			}
			if !yield(env.Task{}, err) {
				return
			}
			if _, bad := errors.AsType[*RecordError](err); !bad || o.Strict {
				return
			}
		}
		order := make([]int, len(kept.ends))
		for i := range order {
			order[i] = i
		}
		if o.Shuffle != nil {
			r := rand.New(rand.NewPCG(*o.Shuffle, 0))
			r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		start, end := o.Slice.bounds(len(order))
		for _, i := range order[start:end] {
			t, err := kept.get(i)
			if !yield(t, err) || err != nil {
				return
			}
		}
	}
}

// store keeps tasks in a temporary file, by number, because a dataset may be larger than memory.
type store struct {
	file *os.File
	ends []int64
}

func (s *store) add(t env.Task) error {
	var b bytes.Buffer
	// gob rather than JSON, because a task's files may contain bytes that JSON strings cannot.
	if err := gob.NewEncoder(&b).Encode(t); err != nil {
		return fmt.Errorf("keep task %s: %w", t.ID, err)
	}
	if s.file == nil {
		f, err := os.CreateTemp("", "deepswe-tasks-")
		if err != nil {
			return fmt.Errorf("keep tasks: %w", err)
		}
		s.file = f
		// An unlinked file disappears when the process ends, however it ends.
		if err := os.Remove(f.Name()); err != nil {
			return fmt.Errorf("keep tasks: %w", err)
		}
	}
	size, err := b.WriteTo(s.file)
	if err != nil {
		return fmt.Errorf("keep tasks: %w", err)
	}
	s.ends = append(s.ends, s.start(len(s.ends))+size)
	return nil
}

func (s *store) start(i int) int64 {
	if i == 0 {
		return 0
	}
	return s.ends[i-1]
}

func (s *store) get(i int) (t env.Task, err error) {
	start := s.start(i)
	r := io.NewSectionReader(s.file, start, s.ends[i]-start)
	if err := gob.NewDecoder(r).Decode(&t); err != nil {
		return t, fmt.Errorf("fetch task %d: %w", i, err)
	}
	return t, nil
}

func (s *store) close() {
	if s.file != nil {
		s.file.Close() // the file is already unlinked, so nothing can be lost
	}
}
