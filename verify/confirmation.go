package verify

import (
	"fmt"
	"maps"
	"slices"
)

// The kinds of suspicion that come from confirming a reward.
const (
	// KilledScript: a signal ended the script that runs the tests, although its log is complete.
	KilledScript SuspicionKind = "killed_script"
	// CanaryPassed: a test that must fail was not reported as failed, or the run did not end as a failing run does.
	CanaryPassed SuspicionKind = "canary"
	// NotConfirmed: the real tests do not pass in the strict trial, or not with tests among them that must fail.
	NotConfirmed SuspicionKind = "not_confirmed"
	// NoPlainPass: an expected test has a status such as XFAIL or SKIPPED, and another one with the solution.
	NoPlainPass SuspicionKind = "no_plain_pass"
)

// Confirmation describes how a reward of 1 was confirmed or lost.
type Confirmation struct {
	// Earned lists the checks that the patch has passed: "harness", "strict", "canary".
	Earned []string `json:"earned"`
	// Canary is the result of the twins, which are copies of tests that must fail.
	Canary CanaryState `json:"canary"`
	// Reason is the reason why there were no twins, or what the twins have shown.
	Reason string `json:"reason,omitempty"`
	// GoldUnknown is set if the task has no reference solution to try the canary with.
	GoldUnknown bool `json:"gold_unknown,omitempty"`
	// Twins counts the twins that were taken into account, and Spoilt those that pass with the solution as well.
	Twins  int `json:"twins"`
	Spoilt int `json:"spoilt,omitempty"`
	// ExitCode and Signal are how the tests ended with twins among them, as the sandbox saw it.
	ExitCode int    `json:"exit_code"`
	Signal   string `json:"signal,omitempty"`
	// Runs is the number of test runs for the verdict, including those with the reference solution.
	Runs int `json:"runs"`
}

// CanaryState is the outcome of a canary run.
type CanaryState string

// The outcomes. Only after CanaryClean is a reward confirmed by the canary.
const (
	CanaryClean       CanaryState = "clean"
	CanaryCaught      CanaryState = "caught"
	CanaryNotCanaried CanaryState = "not_canaried" // no twins can be written for the tests
	CanaryOff         CanaryState = "off"          // the task's solution is not clean either
	CanaryNotReached  CanaryState = "not_reached"  // the real tests did not pass in the strict trial
	CanaryDisabled    CanaryState = "disabled"     // turned off by Evaluator.Canary
)

// Confirmed returns the name of the strictest check that the patch has passed; empty if it has no reward of 1.
func (v Evaluation) Confirmed() string {
	if v.Confirmation == nil || len(v.Confirmation.Earned) == 0 || !v.Solved() {
		return ""
	}
	return v.Confirmation.Earned[len(v.Confirmation.Earned)-1]
}

// CanaryMode is the way in which a reward of 1 is confirmed.
type CanaryMode string

// The modes.
const (
	// CanaryOn confirms it with twins if possible.
	CanaryOn CanaryMode = ""
	// CanaryRequired makes the task void if twins cannot confirm its reward.
	CanaryRequired CanaryMode = "require"
	// CanaryNever uses no twins.
	CanaryNever CanaryMode = "off"
)

// says summarises the findings, with one twin as an example.
func (f findings) says() string {
	if len(f.passed) == 0 {
		return f.ended
	}
	mutations := slices.Sorted(maps.Keys(f.passed))
	text := fmt.Sprintf("%d tests that must fail were not reported as failed: the twin (%s)", len(mutations),
		f.passed[mutations[0]])
	if f.ended != "" {
		text += "; " + f.ended
	}
	return text
}
