package verifycmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/verify/rank"
	"deepswe/verify/rank/ranking"
	"deepswe/verify/rank/suite"
)

// Race plays several attempts at a task at once and chooses one: what solve -k needs from here. What is wrong with the
// judge is reported before anything is played.
func Race(ctx context.Context, r cli.Race) (result cli.RaceResult, err error) {
	result = cli.RaceResult{Winner: -1, Attempts: r.K, Losers: map[int]string{}}
	store, err := ranking.OpenStore(filepath.Join(r.Dir, "rank"))
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	rule := rank.Rule{Verifier: rank.Verifier(r.Verifier.Verifier), Top: r.Verifier.Top}
	k := &ranking.Ranking{
		Rule: rule, Store: store, Tasks: map[string]env.Task{r.Task.ID: r.Task}, Workers: r.K, Early: true,
		Observe: func(e ranking.Event) {
			if kind := e.Run.Kind; !e.Begin && (kind == run.Finished || kind == run.Failed) {
				r.Say(cmp.Or(e.Text, e.Run.Outcome.Err))
			}
		},
	}
	if err := equip(ctx, r, k); err != nil {
		return result, err
	}
	entries := ranking.Play(ctx, r.K, func(ctx context.Context, i int) (ranking.Entry, error) {
		e, err := r.Play(ctx, i)
		return ranking.Entry{
			ID: i, Name: fmt.Sprintf("#%d", i), PatchFile: e.PatchFile, Trajectory: e.Trajectory, StopReason: e.StopReason,
		}, err
	})
	if result.Ended = len(entries); result.Ended == 0 {
		return result, nil
	}
	k.Source = &ranking.Source{Path: r.Dir, Tasks: []ranking.Set{{Task: r.Task.ID, Entries: entries}}}
	rep, err := choose(ctx, r, k)
	if err != nil {
		return result, err
	}
	if text := costWords(rep.Cost); text != "" {
		r.Say("cost of choosing: " + text)
	}
	for _, note := range rep.Notes {
		r.Say(note)
	}
	task := rep.Results[0]
	for _, c := range task.Candidates {
		if task.Chosen != nil && c.Attempt == *task.Chosen {
			result.Winner, result.Reason, result.Tests = c.Attempt, reasons(c, task), tests(c)
			continue
		}
		result.Losers[c.Attempt] = c.Reason
	}
	if len(rep.Lacks) > 0 {
		result.Reason += "; chosen without " + strings.Join(rep.Lacks, " and ")
	}
	result.Report = store.Path(ranking.PageFile)
	return result, nil
}

// afterInterrupt is how long candidates are judged and tested after the attempts were interrupted.
const afterInterrupt = time.Minute

// choose ranks the attempts that have ended. After an interrupt, they are judged and tested for up to a minute, or
// until the user interrupts a second time. The choice uses what is known by then. It does the same if the judge or the
// sandboxes fail, so that the attempts are not lost.
func choose(ctx context.Context, r cli.Race, k *ranking.Ranking) (*ranking.Report, error) {
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		select {
		case <-ctx.Done():
		case <-working.Done():
			return
		}
		select {
		case <-r.World.Abandon:
		case <-time.After(afterInterrupt):
		case <-working.Done():
		}
		cancel()
	})
	if ctx.Err() != nil {
		r.Say(fmt.Sprintf("choosing among the %s that ended", cli.Plural(len(k.Source.Tasks[0].Entries), "attempt")))
	}
	rep, err := k.Run(working)
	if err == nil {
		return rep, nil
	}
	if working.Err() == nil {
		r.Say(fmt.Sprintf("choosing by what is known, because the verifier failed: %v", err))
	}
	k.Judge, k.Tests = nil, nil
	return k.Run(context.WithoutCancel(ctx))
}

// equip opens the judge and describes the tests.
func equip(ctx context.Context, r cli.Race, k *ranking.Ranking) error {
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
		k.Tests, err = newTests(r.World, r.Verifier, r.Flags, &r.Model, r.Snapshot.Within(r.Provider), k.Tasks,
			k.Store)
	}
	return err
}

// tests adds up the results of a candidate; it returns nil if there were no tests to run.
func tests(c ranking.CandidateReport) *cli.RaceTests {
	t := &cli.RaceTests{Problem: c.Rejected}
	if len(c.Ran) == 0 {
		if strings.HasPrefix(c.Missing, ranking.NotTested) {
			t.Problem = c.Missing
		}
		if t.Problem == "" {
			return nil
		}
	}
	for _, s := range c.Ran {
		count := &t.Reproduction
		if s.Kind == suite.Regression {
			count = &t.Regression
		}
		count.Tests += s.Kept
		count.Passed += s.Passed
		count.Failed = append(count.Failed, s.Failed...)
	}
	return t
}

// reasons says what speaks for the winner.
func reasons(c ranking.CandidateReport, t ranking.TaskReport) string {
	text := c.Reason
	if c.Judgement != nil && c.Judgement.Score != nil {
		if score := fmt.Sprintf("score %.3f", *c.Judgement.Score); !strings.Contains(text, score) {
			text += "; " + score
		}
	}
	if c.Tests != nil {
		text += fmt.Sprintf("; of the tests that tell candidates apart, %d regression and %d reproduction tests pass",
			c.Tests.Regression, c.Tests.Reproduction)
	}
	return text + fmt.Sprintf("; %d of %d candidates agree", t.Agree, len(t.Candidates))
}
