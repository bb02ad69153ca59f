package verifycmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/verify"
	"deepswe/verify/swe"
)

type grading struct {
	session
	o gradeOptions

	swe  swe.Grading
	done []run.Job // with a result from an earlier run
	todo []run.Job
}

func (g *grading) prepare(ctx context.Context) error {
	predictions, err := swe.ReadPredictions(g.o.predictions)
	if err != nil {
		return cli.Usage(err)
	}
	g.swe = swe.Grading{Model: predictions.Model, RunID: g.o.runID, Repeat: g.o.repeat, Log: g.d.Log}
	if err := g.match(predictions); err != nil {
		return err
	}
	if err := g.openDir(); err != nil {
		return err
	}
	g.swe.Dir = g.dir
	g.swe.Evaluator = &verify.Evaluator{Timeout: g.o.timeout, Network: g.o.network, Run: filepath.Base(g.dir.Path())}
	g.o.confirm.set(g.swe.Evaluator)
	g.progress = newProgress(g.d.Err, "graded")
	for _, j := range g.swe.Plan() {
		if _, known := g.swe.Known(j); known {
			g.done = append(g.done, j)
		} else {
			g.todo = append(g.todo, j)
		}
	}
	if len(g.todo) == 0 {
		return nil // without anything to run, no daemon is needed
	}
	var tasks []env.Task
	for _, c := range g.swe.Candidates {
		tasks = append(tasks, c.Task)
	}
	err = g.openSandbox(ctx, &g.o.sandbox, 0, tasks)
	g.swe.Evaluator.Provider = g.provider
	return err
}

// match finds the tasks of the predictions. Of other tasks, only the ids are kept.
func (g *grading) match(predictions swe.Predictions) error {
	tasks, counts, err := g.o.tasks.Read(g.d.World)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for t, err := range tasks {
		if err != nil {
			return err
		}
		if len(g.o.ids) > 0 && !slices.Contains(g.o.ids, t.ID) {
			continue
		}
		g.swe.IDs = append(g.swe.IDs, t.ID)
		candidate, ok := predictions.Candidate(t)
		if known[t.ID] && ok {
			return cli.Usagef("%s has two tasks with the id %s", g.o.tasks.Path, t.ID)
		}
		if ok {
			known[t.ID] = true
			g.swe.Candidates = append(g.swe.Candidates, candidate)
		}
	}
	narrowed := len(g.o.ids) > 0 || g.o.tasks.Filter != "" || g.o.tasks.Slice != "" || g.o.tasks.Exclude != ""
	unknown := predictions.Without(known)
	switch {
	case len(unknown) > 0 && !narrowed:
		return cli.Usagef("%d predictions are for tasks that %s does not have, such as %s",
			len(unknown), g.o.tasks.Path, slices.Min(unknown))
	case len(g.swe.IDs) == 0:
		return g.o.tasks.NoTasks(counts)
	case len(g.swe.Candidates) == 0 && g.o.predictions == swe.Gold:
		return cli.Usagef("none of the tasks in %s has a reference solution", g.o.tasks.Path)
	case len(g.swe.Candidates) == 0:
		return cli.Usagef("none of the predictions is for one of the tasks")
	}
	if err := run.CheckNames(slices.Collect(maps.Keys(known))); err != nil {
		return cli.Usagef("%s: %w", g.o.tasks.Path, err)
	}
	return nil
}

// openDir takes the directory, which may hold results already.
func (g *grading) openDir() error {
	path := cmp.Or(g.o.out, g.d.RunDir(g.d.RunID()))
	var err error
	if run.Exists(path) {
		g.dir, err = run.Open(path, run.Grade)
	} else {
		g.dir, err = run.Create(path, run.Manifest{Kind: run.Grade, Program: g.d.Program()})
	}
	if err != nil {
		return cli.Usage(err)
	}
	return nil
}

// run grades everything and reports.
func (g *grading) run(ctx context.Context) error {
	g.progress.plan("graded", len(g.done)+len(g.todo))
	for _, j := range g.done {
		v, _ := g.swe.Known(j)
		g.progress.known(new(v.Status == verify.Resolved))
		g.print(v, j)
	}
	engine := run.Engine{Runner: &g.swe, Journal: &g.swe, Options: run.Options{
		Workers: g.o.workers, Retries: 2, MaxFailures: max(12, 3*g.o.workers), Observe: g.observeEvent,
	}}
	_, err := engine.Run(ctx, g.todo)
	if cli.Interrupted(ctx, err) {
		fmt.Fprintf(g.d.Err, "stopped; to resume, run the same command with --out %s\n", g.dir.Path())
		return cli.Exit(cli.ExitInterrupted)
	}
	if err != nil {
		g.progress.note("stopped: %v", err)
	}
	return g.report()
}

func (g *grading) observeEvent(e run.Event) {
	var v verify.Evaluation
	g.progress.observeEvent(e, e.Job.Task, "trying again", func() (*bool, string) {
		v, _ = g.swe.Known(e.Job)
		return new(v.Status == verify.Resolved), describe(v)
	})
	if e.Kind == run.Finished {
		g.print(v, e.Job)
	}
}

// describe is a verdict in a line.
func describe(v verify.Evaluation) string {
	text := strings.ReplaceAll(string(v.Status), "_", " ")
	if v.Status != verify.Resolved && v.Detail != "" {
		first, _, _ := strings.Cut(v.Detail, "\n")
		text += ": " + first
	}
	for _, s := range v.Suspicious {
		text += fmt.Sprintf("; suspicious (%s): %s", s.Kind, s.Detail)
	}
	if c := v.Confirmation; c != nil && v.Solved() && v.Confirmed() != "canary" {
		text += fmt.Sprintf("; %s: %s", strings.ReplaceAll(string(c.Canary), "_", " "), c.Reason)
	}
	return text
}

// print prints a result as a line of JSON, with --json. A reader that goes away must not end the run.
func (g *grading) print(v verify.Evaluation, j run.Job) {
	if !g.o.json {
		return
	}
	_ = g.lines.Print(struct {
		Type    string `json:"type"`
		Version int    `json:"version"`
		Repeat  int    `json:"repeat,omitempty"`
		verify.Evaluation
		Path string `json:"path"`
	}{"evaluation", 1, j.Index, v, g.swe.Path(j)})
}

// report writes the run's files, prints what there is to say, and returns the error that the exit code comes from.
func (g *grading) report() error {
	s, err := g.swe.Report()
	if err != nil {
		return err
	}
	total := len(g.swe.Candidates)
	g.progress.plan("", 0) // the live line has done its work
	if g.o.json {
		_ = g.lines.Print(struct {
			Type     string `json:"type"`
			Version  int    `json:"version"`
			Tasks    int    `json:"tasks"`
			Resolved int    `json:"resolved"`
			Failed   int    `json:"failed"`
			Flaky    int    `json:"flaky,omitempty"`
			Report   string `json:"report"`
		}{"report", 1, total, s.Statuses[verify.Resolved], s.Missing, len(s.Flaky.Tasks), s.Path})
	} else {
		g.summary(s)
	}
	switch {
	case s.Missing == total:
		return cli.Exit(cli.ExitSandbox)
	case s.Missing > 0:
		return cli.Exit(cli.ExitUnsolved)
	}
	return nil
}

func (g *grading) summary(s swe.GradingSummary) {
	out, total, resolved := g.d.Out, len(g.swe.Candidates), s.Statuses[verify.Resolved]
	for _, status := range slices.Sorted(maps.Keys(s.Statuses)) {
		fmt.Fprintf(out, "%-14s %d\n", status, s.Statuses[status])
	}
	if s.Missing > 0 {
		fmt.Fprintf(out, "%-14s %d\n", "failed", s.Missing)
	}
	for _, t := range s.Flaky.Tasks {
		fmt.Fprintf(out, "flaky: %s: %v, %d tests\n", cli.Plain(t.ID), t.Statuses, len(t.Tests))
	}
	fmt.Fprintf(out, "%d of %d resolved (%.1f%%)\n%s\n", resolved, total, 100*float64(resolved)/float64(total), s.Path)
}
