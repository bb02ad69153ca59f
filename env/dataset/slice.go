package dataset

import (
	"fmt"
	"iter"
	"strconv"
	"strings"

	"deepswe/env"
)

// Slice is a part of a sequence with Python's rules: it begins at Start and ends before End, a negative bound counts
// from the end, and a bound beyond the sequence is its end. The zero value is everything.
type Slice struct {
	Start, End *int
}

// ParseSlice reads "A:B", where either bound may be missing; "N" alone is ":N".
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

// fromEnd reports whether the sequence's length must be known first.
func (s Slice) fromEnd() bool {
	return s.Start != nil && *s.Start < 0 || s.End != nil && *s.End < 0
}

// bounds returns the part of a sequence of n elements.
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

// ahead takes the part while reading, and stops reading behind it. Errors do not count as elements, and pass.
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
