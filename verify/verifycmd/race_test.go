package verifycmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/repo"
	"deepswe/env/testkit"
	"deepswe/env/testkit/images"
)

// raceOf runs a race in which attempt i proposes patches[i], or fails if that is empty. Tests choose.
func raceOf(t *testing.T, p *images.Provider, patches []string) (cli.RaceResult, string) {
	snapshot, err := repo.Take(t.Context(), p.Dir, repo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = snapshot.Close() })
	dir := t.TempDir()
	var said strings.Builder
	result, err := Race(t.Context(), cli.Race{
		World: cli.World{Getenv: func(string) string { return "" }}, K: len(patches),
		Task: env.Task{ID: "number", Statement: "The number must be 7."}, Snapshot: snapshot, Provider: p, Dir: dir,
		Verifier: &cli.VerifierFlags{
			Verifier: "exec", Parser: "parse_log_pytest", JudgeSamples: 1,
			Command: "n=$(cat num*.py); echo PASSED t::a; case $n in 3) echo FAILED t::b;; *) echo PASSED t::b;; esac",
		},
		Model: cli.LiveModel{Name: "m"}, Flags: &cli.ModelFlags{}, Say: func(text string) { said.WriteString(text + "\n") },
		Play: func(_ context.Context, i int) (cli.RaceEntry, error) {
			if patches[i] == "" {
				return cli.RaceEntry{}, errors.New("the sandbox failed")
			}
			file := filepath.Join(dir, fmt.Sprintf("%d.diff", i))
			testkit.WriteFile(t, file, patches[i])
			return cli.RaceEntry{PatchFile: file, StopReason: agent.Submitted}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return result, said.String()
}

// The result says which tests passed for the chosen patch, out of how many, and why the others lost.
func TestRaceTellsWhatItRan(t *testing.T) {
	t.Parallel()
	p := images.New(t, map[string]string{"number.py": "0\n"})
	patch := func(number int) string {
		return fmt.Sprintf("--- a/number.py\n+++ b/number.py\n@@ -1 +1 @@\n-0\n+%d\n", number)
	}
	for name, c := range map[string]struct {
		patches []string
		winner  int
		tests   *cli.RaceTests
		loser   string // why #0 was not chosen
	}{
		"one is right": {[]string{patch(3), patch(7)}, 1,
			&cli.RaceTests{Regression: cli.RaceCount{Tests: 2, Passed: 2}}, "breaks t::b: 1 of 2 regression tests pass"},
		"all break a test": {[]string{"", patch(3), strings.Replace(patch(3), "+3\n", "+3\n+\n", 1)}, 1,
			&cli.RaceTests{Regression: cli.RaceCount{Tests: 2, Passed: 1, Failed: []string{"t::b"}}}, ""},
		"nothing to compare": {[]string{patch(7), "", patch(7)}, 0, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			result, said := raceOf(t, p, c.patches)
			if result.Winner != c.winner || result.Losers[0] != c.loser {
				t.Errorf("chose #%d, not #0: %q; it said:\n%s", result.Winner, result.Losers[0], said)
			}
			if diff := cmp.Diff(c.tests, result.Tests); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
