package verifycmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/verify/rank"
	"deepswe/verify/rank/race"
	"deepswe/verify/rank/ranking"
)

// Race plays several attempts at a task at once and chooses one: what solve -k needs from here.
func Race(ctx context.Context, r cli.Race) (result cli.RaceResult, err error) {
	rule := rank.Rule{Verifier: rank.Verifier(r.Verifier.Verifier), Top: r.Verifier.Top}
	entries := race.Play(ctx, r.K, rule, func(ctx context.Context, i int) (ranking.Entry, error) {
		e, err := r.Play(ctx, i)
		return ranking.Entry{
			ID: i, Name: fmt.Sprintf("#%d", i), PatchFile: e.PatchFile, Trajectory: e.Trajectory, StopReason: e.StopReason,
		}, err
	})
	result = cli.RaceResult{Winner: -1, Losers: map[int]string{}, Ended: len(entries)}
	if len(entries) == 0 {
		return result, nil
	}
	store, err := ranking.OpenStore(filepath.Join(r.Dir, "rank"))
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	k := &ranking.Ranking{
		Source: &ranking.Source{Path: r.Dir, Tasks: []ranking.Set{{Task: r.Task.ID, Entries: entries}}}, Rule: rule,
		Store: store, Tasks: map[string]env.Task{r.Task.ID: r.Task}, Workers: r.K, Early: true,
		Observe: func(e ranking.Event) {
			if kind := e.Run.Kind; !e.Begin && (kind == run.Finished || kind == run.Failed) {
				r.Say(cmp.Or(e.Text, e.Run.Outcome.Err))
			}
		},
	}
	chosen := context.WithoutCancel(ctx) // an interrupt ends the attempts, and what has ended is chosen from
	if ctx.Err() == nil {
		chosen = ctx
		if err := equip(ctx, r, k, store); err != nil {
			return result, err
		}
	}
	rep, err := k.Run(chosen)
	if err != nil && ctx.Err() != nil { // interrupted while candidates were judged or tested
		k.Judge, k.Tests = nil, nil
		rep, err = k.Run(context.WithoutCancel(ctx))
	}
	if err != nil {
		return result, err
	}
	task := rep.Results[0]
	for _, c := range task.Candidates {
		if task.Chosen != nil && c.Attempt == *task.Chosen {
			result.Winner, result.Reason = c.Attempt, reasons(c, task)
			continue
		}
		result.Losers[c.Attempt] = c.Reason
	}
	result.Report = store.Path(ranking.PageFile)
	return result, nil
}

// equip opens the judge and describes the tests.
func equip(ctx context.Context, r cli.Race, k *ranking.Ranking, store *ranking.Store) error {
	var err error
	if r.Verifier.Judges() {
		k.Judge, err = openJudge(ctx, r.World, r.Verifier, r.Flags, &r.Model, func(format string, args ...any) {
			r.Say(fmt.Sprintf(format, args...))
		})
		if err != nil {
			return err
		}
	}
	if r.Verifier.Tests() {
		k.Tests, err = newTests(r.World, r.Verifier, r.Flags, &r.Model, race.Placed(r.Provider, r.Snapshot), k.Tasks, store)
	}
	return err
}

// reasons says what speaks for the winner.
func reasons(c ranking.CandidateReport, t ranking.TaskReport) string {
	text := c.Reason
	if c.Judgement != nil && c.Judgement.Score != nil {
		text += fmt.Sprintf("; score %.3f", *c.Judgement.Score)
	}
	if c.Tests != nil {
		text += fmt.Sprintf("; %d regression and %d reproduction tests that tell candidates apart pass", c.Tests.Regression,
			c.Tests.Reproduction)
	}
	return text + fmt.Sprintf("; %d of %d candidates agree", t.Agree, len(t.Candidates))
}
