package swe

import (
	"encoding/json"
	"testing"

	"deepswe/agent/run"
	"deepswe/verify"
)

// The report counts the solutions that were tested with other values, and those that failed then.
func TestReportCountsOverfits(t *testing.T) {
	t.Parallel()
	var outcomes []run.Outcome
	for i, v := range []verify.Evaluation{
		{Confirmation: &verify.Confirmation{}},
		{Confirmation: &verify.Confirmation{Variants: &verify.Variants{Tests: 2}}},
		{
			Confirmation: &verify.Confirmation{Variants: &verify.Variants{Tests: 2, Failed: []string{"a"}}},
			Suspicious:   []verify.Suspicion{{Kind: verify.Overfit}},
		},
	} {
		var d Detail
		d.grade(v)
		detail, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		one := run.Outcome{Job: run.Job{Task: "a", Group: "a", Index: i}, Tries: 1}
		one.Detail = detail
		outcomes = append(outcomes, one)
	}
	if r := newReport(outcomes, 3, true); r.Varied != 2 || r.Overfits != 1 {
		t.Errorf("%d overfits of %d, want 1 of 2", r.Overfits, r.Varied)
	}
}
