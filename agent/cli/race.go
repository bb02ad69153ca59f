package cli

import (
	"context"

	"deepswe/agent"
	"deepswe/env"
	"deepswe/env/repo"
)

// Race is several attempts at one task, of which verifiers select one.
type Race struct {
	World World
	// K attempts are played at once. Play plays one in the run's directory and returns its entry. An error is an
	// infrastructure failure; that attempt is not a candidate.
	K    int
	Play func(ctx context.Context, attempt int) (RaceEntry, error)
	// Task, Snapshot and Provider are for testing the candidates; Dir is the run's directory.
	Task     env.Task
	Snapshot *repo.Snapshot
	Provider env.Provider
	Dir      string
	Verifier *VerifierFlags
	Model    LiveModel
	Flags    *ModelFlags
	// Say reports progress to the user.
	Say func(text string)
}

// RaceEntry is a finished attempt: the paths of its files, which need not exist, and how it ended.
type RaceEntry struct {
	PatchFile, Trajectory string
	StopReason            agent.StopReason
}

// RaceResult is the outcome of the selection.
type RaceResult struct {
	// Winner is the selected attempt, or -1 if no attempt has ended; Reason explains the selection.
	Winner int    `json:"winner"`
	Reason string `json:"reason"`
	// Losers explains why the other attempts were not selected. Ended is the number of attempts that have ended, out of
	// Attempts.
	Losers   map[int]string `json:"losers,omitempty"`
	Attempts int            `json:"attempts"`
	Ended    int            `json:"ended"`
	// Tests is how the ranking's tests went on the selected patch; nil if none was to be run.
	Tests *RaceTests `json:"tests,omitempty"`
	// Report is the path of the HTML report.
	Report string `json:"report,omitempty"`
}

// RaceTests is how the tests of a ranking went on a patch.
type RaceTests struct {
	// Regression counts the tests that pass without the patch, Reproduction those written for the issue, which fail
	// without it.
	Regression   RaceCount `json:"regression"`
	Reproduction RaceCount `json:"reproduction"`
	// Problem is why the results say nothing: the patch does not apply or forges them, or there are none.
	Problem string `json:"problem,omitempty"`
}

// Breaks reports whether tests fail that pass without the patch.
func (t RaceTests) Breaks() bool { return t.Problem == "" && t.Regression.Passed < t.Regression.Tests }

// RaceCount counts tests. Failed names the first of those that do not pass.
type RaceCount struct {
	Tests  int      `json:"tests"`
	Passed int      `json:"passed"`
	Failed []string `json:"failed,omitempty"`
}
