package dataset

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"deepswe/env"
)

// A slice selects what Python's would.
func TestSlice(t *testing.T) {
	var all []string
	for i := range 7 {
		all = append(all, fmt.Sprint(i))
	}
	file := write(t, "tasks.jsonl", lines(all...))
	for text, want := range map[string]string{
		":": "0123456", "2:": "23456", ":2": "01", "2:5": "234", "-2:": "56", ":-2": "01234", "-5:-2": "234", "-2:-5": "",
		"5:2": "",
		"3":   "012", "-100:2": "01", "5:100": "56", "100:": "", ":0": "", "0": "", ":-100": "", "-3:6": "45", "1:-1": "12345",
	} {
		s, err := ParseSlice(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(ids(t, file, Options{Slice: s}), ""); got != want {
			t.Errorf("[%s] is %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"a", "1:b", "1:2:3", "1.5:"} {
		if s, err := ParseSlice(text); err == nil {
			t.Errorf("ParseSlice(%q) = %v, want an error", text, s)
		}
	}
}

// Reading ahead selects the same tasks as a slice of the whole list.
func TestSliceBothWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 8).Draw(t, "n")
		bound := func(name string) *int {
			if rapid.Bool().Draw(t, name+" given") {
				b := rapid.IntRange(0, 10).Draw(t, name)
				return &b
			}
			return nil
		}
		s := Slice{bound("start"), bound("end")}
		var ahead []string
		for task, err := range s.ahead(func(yield func(env.Task, error) bool) {
			for i := range n {
				if !yield(env.Task{ID: fmt.Sprint(i)}, nil) {
					return
				}
			}
		}) {
			if err != nil {
				t.Fatal(err)
			}
			ahead = append(ahead, task.ID)
		}
		var whole []string
		start, end := s.bounds(n)
		for i := start; i < end; i++ {
			whole = append(whole, fmt.Sprint(i))
		}
		if !slices.Equal(ahead, whole) {
			t.Fatalf("%q while reading ahead, want %q", ahead, whole)
		}
	})
}

func TestShuffle(t *testing.T) {
	var all []string
	for i := range 10 {
		all = append(all, fmt.Sprint(i))
	}
	file := write(t, "tasks.jsonl", lines(all...))
	order := func(seed uint64, slice string) []string {
		s, err := ParseSlice(slice)
		if err != nil {
			t.Fatal(err)
		}
		return ids(t, file, Options{Shuffle: &seed, Slice: s})
	}
	first := order(42, ":")
	if want := strings.Split("3 2 5 6 4 1 0 7 9 8", " "); !slices.Equal(first, want) {
		t.Errorf("the order of seed 42 is %q; it was %q, and results that name a seed depend on it", first, want)
	}
	if other := order(43, ":"); slices.Equal(first, other) {
		t.Errorf("two seeds give the same order: %q", other)
	}
	if part := order(42, "2:5"); !slices.Equal(part, first[2:5]) {
		t.Errorf("the slice %q is not one of the order %q", part, first)
	}
	slices.Sort(first)
	if !slices.Equal(first, all) {
		t.Errorf("tasks were lost or repeated: %q", first)
	}
}

// Tasks come back from a store as they were added.
func TestStore(t *testing.T) {
	var s store
	defer s.close()
	var want []env.Task
	for i := range 70 {
		task := env.Task{ID: fmt.Sprint(i), Tests: env.Tests{
			Files:    map[string]string{"/tests/x": "\xff\x00" + strings.Repeat(string(rune('a'+i%26)), 1<<20)},
			Expected: map[string]string{"a": "PASSED"},
		}}
		if err := s.add(task); err != nil {
			t.Fatal(err)
		}
		want = append(want, task)
	}
	if info, err := s.file.Stat(); err != nil || info.Size() < 70<<20 {
		t.Errorf("70 MiB of tasks are kept in memory: %v", err)
	}
	for _, i := range []int{69, 0, 35, 60, 63, 64} {
		got, err := s.get(i)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("task %d differs", i)
		}
	}
}
