package cli

import (
	"context"

	"deepswe/agent"
	"deepswe/env"
	"deepswe/env/repo"
)

// Race is several attempts at one task, of which one is to be chosen. The verifiers that choose are on a floor above.
type Race struct {
	World World
	// K attempts are played at once. Play plays one in the run's directory, and returns its entry; an error is an
	// infrastructure failure, which is no candidate.
	K    int
	Play func(ctx context.Context, attempt int) (RaceEntry, error)
	// Task, Snapshot and Provider are what candidates are tested with, Dir is the run's directory.
	Task     env.Task
	Snapshot *repo.Snapshot
	Provider env.Provider
	Dir      string
	Verifier *VerifierFlags
	Model    LiveModel
	Flags    *ModelFlags
	// Say shows what happens.
	Say func(text string)
}

// RaceEntry is a finished attempt: the paths of its files, which need not exist, and how it ended.
type RaceEntry struct {
	PatchFile, Trajectory string
	StopReason            agent.StopReason
}

// RaceResult is the choice.
type RaceResult struct {
	// Winner is the chosen attempt, -1 where none has ended. Reason says why, in words.
	Winner int    `json:"winner"`
	Reason string `json:"reason"`
	// Losers say for the other attempts why not, Ended how many have ended.
	Losers map[int]string `json:"losers,omitempty"`
	Ended  int            `json:"ended"`
	// Report is the path of the page about it.
	Report string `json:"report,omitempty"`
}
