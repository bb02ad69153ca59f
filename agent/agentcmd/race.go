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
	"deepswe/agent/run"
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

// race makes several attempts at once and returns the result of the chosen one, whose directory becomes the job's.
func (j *job) race(ctx context.Context, model cli.LiveModel) (attempt.Result, error) {
	var mu sync.Mutex
	results := map[int]attempt.Result{}
	tested := make([]testWatch, j.o.attempts)
	choice, err := j.d.Race(ctx, cli.Race{
		World: j.d.World, K: j.o.attempts, Task: j.task, Snapshot: j.snapshot, Provider: j.provider, Dir: j.run,
		Verifier: &j.o.verifier, Model: model, Flags: &j.o.ModelFlags,
		Say: func(text string) { j.watch.show(raced{Attempt: -1, Text: text, Ended: true}) },
		Play: func(ctx context.Context, i int) (cli.RaceEntry, error) {
			result, dir, err := j.playOne(ctx, i, &tested[i])
			mu.Lock()
			defer mu.Unlock()
			results[i] = result
			return cli.RaceEntry{
				PatchFile: filepath.Join(dir, attempt.PatchFile), Trajectory: filepath.Join(dir, attempt.TrajectoryFile),
				StopReason: result.Outcome.StopReason,
			}, err
		},
	})
	if err != nil || choice.Winner < 0 {
		var first attempt.Result
		if len(results) > 0 {
			first = results[slices.Min(slices.Collect(maps.Keys(results)))]
		}
		return first, err
	}
	j.choice = &choice
	j.tested.ran.Store(tested[choice.Winner].ran.Load())
	if j.dir, err = j.journal.Attempt(j.raceJob(choice.Winner)); err != nil {
		return results[choice.Winner], err
	}
	return results[choice.Winner], j.journal.Note(noteChosen, chosenAttempt{choice.Winner})
}

func (j *job) raceJob(i int) run.Job { return run.Job{Task: j.task.ID, Group: j.task.ID, Index: i} }

// playOne plays one of several attempts.
func (j *job) playOne(ctx context.Context, i int, tested *testWatch) (attempt.Result, string, error) {
	dir, err := j.journal.Attempt(j.raceJob(i))
	if err != nil {
		return attempt.Result{}, "", err
	}
	a := j.attempt
	a.Stream = false
	steps := 0
	a.OnEvent = func(e agent.Event) {
		tested.event(e)
		switch e.Kind {
		case agent.EventStep:
			steps = e.Step
		case agent.EventCall:
			j.watch.show(raced{Attempt: i, Text: fmt.Sprintf("step %d  %s", steps, describe(e.Call, j.snapshot.Source))})
		default:
		}
	}
	a.OnPhase = func(p attempt.Phase) { j.watch.show(raced{Attempt: i, Text: phaseWords(p)}) }
	a.OnReady = nil
	result, err := a.Make(ctx, j.task, j.snapshot, dir)
	err = errors.Join(err, j.recordOne(i, result))
	text := fmt.Sprintf("%s after %s, %s changed", result.Outcome.StopReason, cli.Plural(result.Outcome.Steps, "step"),
		cli.Plural(len(result.Patch.Files), "file"))
	failed := errors.Join(result.Err, result.PatchErr)
	if failed == nil && result.Outcome.StopReason == agent.ModelError {
		failed = result.Outcome.Err
	}
	if failed != nil && ctx.Err() == nil {
		text = "failed: " + failed.Error()
	}
	j.watch.show(raced{Attempt: i, Text: text, Ended: true})
	return result, dir, errors.Join(err, failed)
}

func phaseWords(p attempt.Phase) string {
	return map[attempt.Phase]string{
		attempt.PhaseSandbox: "starting the sandbox", attempt.PhaseAgent: "asking the model",
		attempt.PhasePatch: "computing the patch",
	}[p]
}
