package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
)

// raced is the progress of one of several attempts.
type raced struct {
	Attempt int
	Text    string
	// Ended attempts have a line that stays.
	Ended bool
}

// checkRace validates the flags of several attempts.
func (o *solveOptions) checkRace() error {
	switch {
	case o.attempts < 1:
		return cli.Usagef("-k must be at least 1")
	case o.attempts == 1 && o.verifier.Verifier != "":
		return cli.Usagef("--verifier chooses among attempts and requires -k 2 or more")
	case o.attempts > 1 && (o.demo || o.resume != "" || o.further != ""):
		return cli.Usagef("-k does not go with --demo, --resume or --continue")
	case o.attempts > 1 && o.confirm:
		return cli.Usagef("-k does not go with --confirm: nobody can answer for several attempts at once")
	}
	if o.attempts > 1 && o.verifier.Verifier == "" {
		o.verifier.Verifier = "hybrid"
	}
	if o.verifier.Parser != "" {
		o.verifier.Command = o.Test // without a parser, verifiers look for the tests themselves
	}
	return o.verifier.Check()
}

// played is the attempt whose patch is the run's.
type played struct {
	attempt.Result
	dir    string
	tested bool            // the agent ran a test
	choice *cli.RaceResult // of several attempts; nil for one
}

// play makes the attempt, or several of which one is chosen. The error is about writing their files.
func (s *solving) play(ctx context.Context, p *plan, rec *record) (played, error) {
	if s.o.attempts > 1 {
		return s.race(ctx, p, rec)
	}
	a := p.Attempt
	a.OnEvent = func(e agent.Event) { s.watch.show(e) }
	a.OnPhase = func(ph attempt.Phase) { s.watch.show(ph) }
	a.OnReady = func(dir string) { s.watch.show(ready(dir)) }
	return rec.make(ctx, a, p.at, rec.index)
}

// race makes several attempts at once and returns the chosen one; without a choice, the first that has a result.
func (s *solving) race(ctx context.Context, p *plan, rec *record) (played, error) {
	var mu sync.Mutex
	results := map[int]played{}
	choice, err := s.d.Race(ctx, cli.Race{
		World: s.d.World, K: s.o.attempts, Task: p.at.task, Snapshot: p.at.snapshot, Provider: p.Provider, Dir: rec.path,
		Verifier: &s.o.verifier, Model: p.model, Flags: &s.o.ModelFlags,
		Say: func(text string) { s.watch.show(raced{Attempt: -1, Text: text, Ended: true}) },
		Play: func(ctx context.Context, i int) (cli.RaceEntry, error) {
			result, err := s.playOne(ctx, p, rec, i)
			mu.Lock()
			defer mu.Unlock()
			results[i] = result
			return cli.RaceEntry{
				PatchFile:  filepath.Join(result.dir, attempt.PatchFile),
				Trajectory: filepath.Join(result.dir, attempt.TrajectoryFile), StopReason: result.Outcome.StopReason,
			}, err
		},
	})
	if err != nil || choice.Winner < 0 {
		var first played
		if len(results) > 0 {
			first = results[slices.Min(slices.Collect(maps.Keys(results)))]
		}
		return first, err
	}
	chosen := results[choice.Winner]
	chosen.choice = &choice
	return chosen, rec.journal.Note(noteChosen, chosenAttempt{choice.Winner})
}

// playOne makes one of several attempts.
func (s *solving) playOne(ctx context.Context, p *plan, rec *record, i int) (played, error) {
	a := p.Attempt
	a.Stream = false
	steps := 0
	a.OnEvent = func(e agent.Event) {
		switch e.Kind {
		case agent.EventStep:
			steps = e.Step
		case agent.EventCall:
			text := fmt.Sprintf("step %d  %s", steps, describe(e.Call, p.at.snapshot.Source))
			s.watch.show(raced{Attempt: i, Text: text})
		default:
		}
	}
	a.OnPhase = func(ph attempt.Phase) { s.watch.show(raced{Attempt: i, Text: phaseWords(ph)}) }
	result, err := rec.make(ctx, a, p.at, i)
	text := fmt.Sprintf("%s after %s, %s changed", result.Outcome.StopReason, cli.Plural(result.Outcome.Steps, "step"),
		cli.Plural(len(result.Patch.Files), "file"))
	failed := errors.Join(result.Err, result.PatchErr)
	if failed == nil && result.Outcome.StopReason == agent.ModelError {
		failed = result.Outcome.Err
	}
	if failed != nil && ctx.Err() == nil {
		text = "failed: " + failed.Error()
	}
	s.watch.show(raced{Attempt: i, Text: text, Ended: true})
	return result, errors.Join(err, failed)
}

func phaseWords(p attempt.Phase) string {
	return map[attempt.Phase]string{
		attempt.PhaseSandbox: "starting the sandbox", attempt.PhaseAgent: "asking the model",
		attempt.PhasePatch: "computing the patch",
	}[p]
}
