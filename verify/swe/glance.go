package swe

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"deepswe/agent/run"
	"deepswe/verify/plot"
)

// Glance writes the results of the run in a directory in a few lines of at most 80 columns: pass@1 with its interval,
// how many tasks are solved always and never, and why attempts ended.
func Glance(w io.Writer, dir string) error {
	const wide = 60
	r, err := run.Read(dir)
	if err != nil {
		return err
	}
	tasks := map[string]*Attempts{}
	ends := map[string]int{}
	for _, o := range r.Outcomes {
		if o.Failed() || ContextOf(o.Job) > 0 || o.Group != o.Task {
			continue
		}
		ends[cmp.Or(string(o.StopReason), string(DetailOf(o).Status))]++
		if o.Reward == nil {
			continue
		}
		if tasks[o.Task] == nil {
			tasks[o.Task] = &Attempts{Task: o.Task}
		}
		tasks[o.Task].Made++
		if Solved(o) {
			tasks[o.Task].Solved++
		}
	}
	var b strings.Builder
	if len(tasks) > 0 {
		var all []Attempts
		for _, t := range tasks {
			all = append(all, *t)
		}
		e, split := PassRate(all, 1), splitTasks(all)
		always, never := len(split.Always), len(split.Never)
		full, empty := always*wide/e.Tasks, never*wide/e.Tasks
		fmt.Fprintf(&b, "pass@1  %s  (95%%: %s; tasks: %d)\n", plot.Percent(e.Rate), plot.Interval(e.Low, e.High), e.Tasks)
		fmt.Fprintf(&b, "tasks   %s%s%s\n        %d always solved, %d sometimes, %d never\n", strings.Repeat("█", full),
			strings.Repeat("▒", wide-full-empty), strings.Repeat("░", empty), always, len(split.Sometimes), never)
	}
	if len(ends) > 0 {
		most := slices.Max(slices.Collect(maps.Values(ends)))
		for _, name := range slices.SortedFunc(maps.Keys(ends), func(a, b string) int {
			return cmp.Or(ends[b]-ends[a], strings.Compare(a, b))
		}) {
			fmt.Fprintf(&b, "%-16s%6d  %s\n", strings.ReplaceAll(name, "_", " "), ends[name],
				strings.Repeat("█", max(1, ends[name]*50/most)))
		}
	}
	_, err = io.WriteString(w, b.String())
	return err
}
