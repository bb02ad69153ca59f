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
	// NotConfirmed: with tests beside them that must fail, the real tests do not pass any more.
	NotConfirmed SuspicionKind = "not_confirmed"
	// NoPlainPass: an expected test has a status such as XFAIL or SKIPPED, which it has not with the solution.
	NoPlainPass SuspicionKind = "no_plain_pass"
)

// Confirmation says by what a reward of 1 was earned, or lost.
type Confirmation struct {
	// Earned are the readings that the patch has passed, of "harness", "strict" and "canary".
	Earned []string `json:"earned"`
	// Canary says what became of the twins: tests like the real ones that must fail.
	Canary CanaryState `json:"canary"`
	// Reason says why there were no twins, or what they have shown.
	Reason string `json:"reason,omitempty"`
	// GoldUnknown is set where the task has no reference solution that the canary could be tried with.
	GoldUnknown bool `json:"gold_unknown,omitempty"`
	// Twins counts the twins that were taken into account, and Spoilt those that pass with the solution as well.
	Twins  int `json:"twins"`
	Spoilt int `json:"spoilt,omitempty"`
	// ExitCode and Signal are how the tests ended with twins among them, as the sandbox saw it.
	ExitCode int    `json:"exit_code"`
	Signal   string `json:"signal,omitempty"`
	// Watched counts the processes of test runners that a witness has seen from within, with twins among the tests.
	Watched int `json:"watched,omitempty"`
	// Runs counts the runs of the tests that the verdict took, those with the reference solution included.
	Runs int `json:"runs"`
}

// CanaryState is the outcome of a canary run in a word.
type CanaryState string

// The outcomes. Only after CanaryClean is a reward confirmed by the canary.
const (
	CanaryClean       CanaryState = "clean"
	CanaryCaught      CanaryState = "caught"
	CanaryNotCanaried CanaryState = "not_canaried" // no twins can be written for the tests
	CanaryOff         CanaryState = "off"          // the task's solution does not come out clean
	CanaryNotReached  CanaryState = "not_reached"  // the real tests did not pass in the strict trial
	CanaryDisabled    CanaryState = "disabled"     // by Evaluator.Canary
)

// Confirmed is the name of the best reading that the patch has passed, "" where it has no reward of 1.
func (v Evaluation) Confirmed() string {
	if v.Confirmation == nil || len(v.Confirmation.Earned) == 0 || !v.Solved() {
		return ""
	}
	return v.Confirmation.Earned[len(v.Confirmation.Earned)-1]
}

// CanaryMode says how a reward of 1 is confirmed.
type CanaryMode string

// The modes.
const (
	// CanaryOn confirms it with twins where that is possible.
	CanaryOn CanaryMode = ""
	// CanaryRequired refuses a reward where it is not: the task is void.
	CanaryRequired CanaryMode = "require"
	// CanaryNever leaves the twins out.
	CanaryNever CanaryMode = "off"
)

// says lists what twins have shown, with one of them.
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
