package swe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"deepswe/agent"
	"deepswe/agent/run"
)

// Attempts with a smaller context length form groups of their own and have that limit. Those with the run's own length
// are unchanged.
func TestPlanOfSeveralContexts(t *testing.T) {
	t.Parallel()
	r, _ := setUp(t, &guessing{number: "7"}, numberTask("a"))
	r.Attempt.Limits.Context = 65536
	e := Evaluation{Runner: r, K: 2, Contexts: []int{16384, 32768}}
	var got []int
	groups := map[string]bool{}
	for _, j := range e.Plan([]string{"a", "b"}) {
		if j.Task != "a" {
			continue
		}
		groups[j.Group] = true
		got = append(got, r.attempt(j).Limits.Context)
	}
	if diff := cmp.Diff([]int{16384, 16384, 32768, 32768, 65536, 65536}, got); diff != "" || len(groups) != 3 || !groups["a"] {
		t.Errorf("groups %v\n%s", groups, diff)
	}
	for _, j := range []run.Job{job("a", 0), {Task: "a", Group: "a@context=x"}, {Task: "a", Group: "b@context=5"},
		{Task: "a", Group: soundnessGroup(Gold, "a")}} {
		if n := ContextOf(j); n != 0 {
			t.Errorf("%+v has a context of %d", j, n)
		}
	}
}

func TestByContext(t *testing.T) {
	t.Parallel()
	var outcomes []run.Outcome
	add := func(task, group string, i int, reward float64, stop agent.StopReason) {
		outcomes = append(outcomes, run.Outcome{Job: run.Job{Task: task, Group: group, Index: i}, Tries: 1,
			Result: run.Result{Reward: &reward, StopReason: stop}})
	}
	for i := range 2 {
		add("a", "a", i, 1, agent.Submitted)
		add("b", "b", i, float64(i), agent.Submitted)
	}
	if got := ByContext(outcomes, 65536); got != nil {
		t.Errorf("one context length is compared with itself: %+v", got)
	}
	for i := range 2 {
		add("a", "a@context=16384", i, float64(i), agent.Submitted)
		add("b", "b@context=16384", i, 0, agent.MaxContext)
	}
	add("a", soundnessGroup(Gold, "a"), 0, 1, "")
	outcomes = append(outcomes, run.Outcome{Job: job("c", 0), Tries: 3, Err: "no sandbox"}, run.Outcome{Job: job("c", 1)})
	got := ByContext(outcomes, 65536)
	want := []ContextResult{
		{Context: 16384, Finished: 4, Solved: 1, Full: 2,
			PassAtK: []Estimate{{K: 1, Tasks: 2, Rate: .25}, {K: 2, Tasks: 2, Rate: .5}}},
		{Context: 65536, Finished: 4, Solved: 3,
			PassAtK: []Estimate{{K: 1, Tasks: 2, Rate: .75}, {K: 2, Tasks: 2, Rate: 1}}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Estimate{}, "Low", "High"), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Error(diff)
	}
}
