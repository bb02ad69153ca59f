package compare

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"deepswe/agent"
	"deepswe/verify/swe"
)

// Report is the comparison of several runs.
type Report struct {
	Type    string `json:"type"` // "comparison"
	Version int    `json:"version"`
	// Tasks is the number of tasks with a verdict in all runs. Everything else is about these.
	Tasks int `json:"tasks"`
	// Differences are reasons why the runs are not comparable, if they were compared all the same.
	Differences []string `json:"differences,omitempty"`
	// LeftOut are tasks without a verdict in some run.
	LeftOut []string    `json:"left_out,omitempty"`
	Runs    []RunReport `json:"runs"`
	Pairs   []Pair      `json:"pairs"`
	// Link returns the address of a run's page about a task; nil where there is none.
	Link func(run, task string) string `json:"-"`
}

// RunReport is one of the runs.
type RunReport struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	Model string `json:"model,omitempty"`
	// Size is the number of the model's parameters in billions, if it is known.
	Size     float64 `json:"size,omitempty"`
	Attempts int     `json:"attempts"`
	// Rate is pass@1, Solved the tasks that the first attempt solves.
	Rate   swe.Estimate   `json:"pass_at_1"`
	Solved int            `json:"solved"`
	Stops  map[string]int `json:"stop_reasons"`
	// Tokens, Seconds and Cost are for each solved attempt; null if there is none, or nothing is known.
	Tokens  *float64 `json:"tokens_per_solved"`
	Seconds *float64 `json:"seconds_per_solved"`
	Cost    *float64 `json:"cost_per_solved"`
	// PassAtK and Contexts are those of the run's own report, over all its tasks.
	PassAtK  []swe.Estimate      `json:"pass_at_k,omitempty"`
	Contexts []swe.ContextResult `json:"contexts,omitempty"`
}

// Pair compares two runs, task by task.
type Pair struct {
	A string `json:"a"`
	B string `json:"b"`
	// The first attempts at a task: tasks that both solve, neither does, or only one of them.
	Both    int      `json:"both"`
	Neither int      `json:"neither"`
	OnlyA   []string `json:"only_a"`
	OnlyB   []string `json:"only_b"`
	// P is the p-value of the exact McNemar test of the first attempts.
	P float64 `json:"p_mcnemar"`
	// Difference is the rate of B less that of A over all attempts, Low and High its 95% bootstrap interval over tasks.
	Difference float64 `json:"difference"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
}

// NotComparableError says why runs are not comparable.
type NotComparableError struct{ Differences []string }

func (e *NotComparableError) Error() string {
	return "the runs are not comparable:\n  " + strings.Join(e.Differences, "\n  ")
}

// Compare compares at least two runs. If they are not comparable, the error is a [NotComparableError] unless anyway is
// set: then the tasks that they have in common are compared.
func Compare(runs []*Run, anyway bool) (*Report, error) {
	rep := &Report{Type: "comparison", Version: 1, Differences: differences(runs)}
	if len(rep.Differences) > 0 && !anyway {
		return nil, &NotComparableError{rep.Differences}
	}
	var common []string
	for _, id := range everyTask(runs) {
		if slices.ContainsFunc(runs, func(r *Run) bool { return r.tasks[id] == nil }) {
			rep.LeftOut = append(rep.LeftOut, id)
		} else {
			common = append(common, id)
		}
	}
	if len(common) == 0 {
		return nil, &NotComparableError{[]string{"no task has a verdict in all of them"}}
	}
	rep.Tasks = len(common)
	names := namesOf(runs)
	for i, r := range runs {
		rep.Runs = append(rep.Runs, r.report(names[i], common))
	}
	for i := range runs {
		for j := i + 1; j < len(runs); j++ {
			p := pair(runs[i], runs[j], common)
			p.A, p.B = names[i], names[j]
			rep.Pairs = append(rep.Pairs, p)
		}
	}
	return rep, nil
}

// namesOf returns the runs' names, or their paths where names are the same.
func namesOf(runs []*Run) []string {
	seen := map[string]int{}
	for _, r := range runs {
		seen[r.Name]++
	}
	names := make([]string, len(runs))
	for i, r := range runs {
		if names[i] = r.Name; seen[r.Name] > 1 {
			names[i] = r.Path
		}
	}
	return names
}

// everyTask returns the tasks with a verdict in any run, in order.
func everyTask(runs []*Run) []string {
	all := map[string]bool{}
	for _, r := range runs {
		for id := range r.tasks {
			all[id] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// differences returns why runs are not comparable, each compared with the first.
func differences(runs []*Run) []string {
	var all []string
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	a := runs[0]
	for _, b := range runs[1:] {
		if !slices.Equal(a.graders, b.graders) && len(a.graders) > 0 && len(b.graders) > 0 {
			say("%s was graded by %s, and %s by %s", a.Name, strings.Join(a.graders, " and "), b.Name,
				strings.Join(b.graders, " and "))
		}
		own, theirs := a.played(), b.played()
		if only := without(own, theirs); len(only) > 0 {
			say("%s has tasks that %s has not: %s", a.Name, b.Name, some(only))
		}
		if only := without(theirs, own); len(only) > 0 {
			say("%s has tasks that %s has not: %s", b.Name, a.Name, some(only))
		}
		var changed []string
		for _, id := range slices.Sorted(maps.Keys(a.keys)) {
			if key, ok := b.keys[id]; ok && key != a.keys[id] && slices.Equal(a.graders, b.graders) {
				changed = append(changed, id)
			}
		}
		if len(changed) > 0 {
			say("tasks of the same name are not the same in %s and %s: %s", a.Name, b.Name, some(changed))
		}
		for _, name := range limits {
			if x, y := a.limits[name], b.limits[name]; x != y && a.Kind == b.Kind {
				say("%s has --%s %s, and %s has %s", a.Name, name, cmp.Or(x, "unset"), b.Name, cmp.Or(y, "unset"))
			}
		}
	}
	return all
}

// played returns the tasks of a run: those in its list, and those with a verdict.
func (r *Run) played() map[string]bool {
	all := map[string]bool{}
	for id := range r.keys {
		all[id] = true
	}
	for id := range r.tasks {
		all[id] = true
	}
	return all
}

func without(a, b map[string]bool) []string {
	var left []string
	for _, id := range slices.Sorted(maps.Keys(a)) {
		if !b[id] {
			left = append(left, id)
		}
	}
	return left
}

// some names the first of some tasks.
func some(ids []string) string {
	const most = 5
	if len(ids) <= most {
		return strings.Join(ids, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(ids[:most], ", "), len(ids)-most)
}

// report describes a run by the tasks that all runs have.
func (r *Run) report(name string, ids []string) RunReport {
	rep := RunReport{
		Name: name, Path: r.Path, Model: r.Model, Size: r.Size, Stops: map[string]int{}, PassAtK: r.rep.PassAtK,
		Contexts: r.rep.Contexts,
	}
	var all []swe.Attempts
	var tokens agent.Usage
	seconds, right := 0.0, 0
	for _, id := range ids {
		t := r.tasks[id]
		all = append(all, t.Attempts)
		rep.Attempts += t.Made
		right += t.Solved
		if t.first {
			rep.Solved++
		}
		for _, s := range t.stops {
			rep.Stops[s]++
		}
		tokens.Add(t.tokens)
		seconds += t.seconds
	}
	rep.Rate = swe.PassRate(all, 1)
	if n := float64(right); right > 0 {
		if sum := tokens.Prompt + tokens.Completion; sum > 0 {
			rep.Tokens = new(float64(sum) / n)
		}
		if seconds > 0 {
			rep.Seconds = new(seconds / n)
		}
		if r.Price != nil {
			rep.Cost = new(r.Price(tokens) / n)
		}
	}
	return rep
}

// pair compares two runs by the tasks that all runs have.
func pair(a, b *Run, ids []string) Pair {
	p := Pair{OnlyA: []string{}, OnlyB: []string{}}
	var by []float64
	for _, id := range ids {
		x, y := a.tasks[id], b.tasks[id]
		switch {
		case x.first && y.first:
			p.Both++
		case x.first:
			p.OnlyA = append(p.OnlyA, id)
		case y.first:
			p.OnlyB = append(p.OnlyB, id)
		default:
			p.Neither++
		}
		d := float64(y.Solved)/float64(y.Made) - float64(x.Solved)/float64(x.Made)
		by = append(by, d)
		p.Difference += d / float64(len(ids))
	}
	p.P = mcNemar(len(p.OnlyA), len(p.OnlyB))
	p.Low, p.High = bootstrap(by)
	return p
}
