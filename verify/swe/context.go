package swe

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"deepswe/agent"
	"deepswe/agent/run"
)

// A run may measure the agent at several context lengths. The largest is the run's own, and pass@k, predictions and the
// choice among attempts are about attempts with that. Attempts with a smaller context form separate groups, whose names
// contain the length.

// contextMark is between a task and a context length, in the name of such a group.
const contextMark = "@context="

// ContextOf returns the context length in tokens of a job; 0 means the run's own.
func ContextOf(j run.Job) int {
	digits, ok := strings.CutPrefix(j.Group, j.Task+contextMark)
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// ContextName is a context length in the short form that eval takes: 16k.
func ContextName(tokens int) string {
	if tokens > 0 && tokens%1024 == 0 {
		return strconv.Itoa(tokens/1024) + "k"
	}
	return strconv.Itoa(tokens)
}

// Plan lists K attempts at each of the tasks, at each of the smaller context lengths and then at the run's own, task by
// task.
func (e *Evaluation) Plan(ids []string) []run.Job {
	var plan []run.Job
	for _, id := range ids {
		for _, context := range e.Contexts {
			for i := range e.K {
				plan = append(plan, run.Job{Task: id, Group: id + contextMark + strconv.Itoa(context), Index: i})
			}
		}
		plan = append(plan, run.Plan([]string{id}, e.K)...)
	}
	return plan
}

// ContextResult is how the attempts with one context length ended.
type ContextResult struct {
	Context int `json:"context"` // in tokens
	// Finished is the number of attempts with an outcome, Solved of those that solved their task, and Full of those
	// that ended because the context was full.
	Finished int        `json:"finished"`
	Solved   int        `json:"solved"`
	Full     int        `json:"full"`
	PassAtK  []Estimate `json:"pass_at_k"`
}

// ByContext compares the context lengths of a run, in ascending order. own is the run's own. It returns nil if there is
// only one.
func ByContext(outcomes []run.Outcome, own int) []ContextResult {
	results := map[int]*ContextResult{}
	tasks := map[int]map[string]*Attempts{}
	for _, o := range outcomes {
		context := ContextOf(o.Job)
		if context == 0 && o.Group != o.Task || o.Tries == 0 || o.Failed() {
			continue // of the soundness check, or without an outcome
		}
		context = cmp.Or(context, own)
		r := results[context]
		if r == nil {
			r = &ContextResult{Context: context, PassAtK: []Estimate{}}
			results[context], tasks[context] = r, map[string]*Attempts{}
		}
		if tasks[context][o.Task] == nil {
			tasks[context][o.Task] = &Attempts{Task: o.Task}
		}
		r.Finished++
		if o.StopReason == agent.MaxContext {
			r.Full++
		}
		if o.Reward == nil {
			continue
		}
		tasks[context][o.Task].Made++
		if Solved(o) {
			r.Solved++
			tasks[context][o.Task].Solved++
		}
	}
	if len(results) < 2 {
		return nil
	}
	var all []ContextResult
	for context, r := range results {
		r.PassAtK = passRates(tasks[context])
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b ContextResult) int { return cmp.Compare(a.Context, b.Context) })
	return all
}

// passRates is pass@k of graded attempts, for every k that is worth a line.
func passRates(tasks map[string]*Attempts) []Estimate {
	rates := []Estimate{}
	var all []Attempts
	most := 0
	for _, t := range tasks {
		all = append(all, *t)
		most = max(most, t.Made)
	}
	slices.SortFunc(all, func(a, b Attempts) int { return cmp.Compare(a.Task, b.Task) }) // for the same sum every time
	for _, k := range ks(most) {
		rates = append(rates, PassRate(all, k))
	}
	return rates
}
