package agentcmd

import (
	"path/filepath"
	"testing"

	"deepswe/agent/run"
	"deepswe/env/disk"
)

// After a run of several attempts, later commands use the attempt that was chosen.
func TestChosenAttempt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	settings, err := disk.MarshalJSON(solveSettings{Task: "t"})
	if err != nil {
		t.Fatal(err)
	}
	journal, err := run.Create(dir, run.Manifest{Kind: run.Solve, ID: "r", Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	for want, note := range []func() error{
		func() error { return nil },
		func() error { return journal.Note(noteChosen, chosenAttempt{1}) },
		func() error { return journal.Note(noteChosen, chosenAttempt{2}) },
	} {
		if err := note(); err != nil {
			t.Fatal(err)
		}
		past, err := readSolve(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := past.dir(); past.chosen() != want || filepath.Base(got) != string(rune('0'+want)) {
			t.Errorf("attempt %d in %s, want %d", past.chosen(), got, want)
		}
	}
	if err := journal.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBranchName(t *testing.T) {
	for want, s := range map[string]solveSettings{
		"fix-12":                      {Issue: "https://github.com/o/r/issues/12", Statement: "Order"},
		"fix-order-is-wrong-where-it": {Statement: "\nOrder() is WRONG, where it matters most\n\nmore"},
		"fix":                         {Statement: "Übergröße → 你好"[len("Übergröße"):]},
	} {
		if got := branchName(s); got != want {
			t.Errorf("%q: %s, want %s", s.Statement, got, want)
		}
	}
}
