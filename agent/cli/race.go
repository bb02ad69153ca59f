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
	// Report is the path of the HTML report.
	Report string `json:"report,omitempty"`
}
