package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/env/repo"
)

// record is a run's directory, while it is written.
type record struct {
	journal  *run.Dir
	path     string
	settings solveSettings
	index    int // the number of the attempt, where an earlier one of several goes on
}

// openRecord begins the run's directory, or goes on with it.
func (s *solving) openRecord(ctx context.Context, job *assignment, p *plan, open *opened) (*record, error) {
	if job.past != nil {
		return job.past.reopen(s.o.further != "")
	}
	settings := solveSettings{
		Task: job.task.ID, Issue: job.issue, Model: p.model.Name, Sandbox: p.Provider.Name(), Demo: s.o.demo,
		Source: job.task.Source, Statement: job.task.Statement, Flags: givenFlags(s.o.flags),
	}
	var err error
	if settings.Head, err = repo.Head(ctx, p.at.target); err != nil {
		return nil, err
	}
	if !s.o.demo && (job.issue == "" || s.o.repoGiven) {
		settings.Repo = p.at.target
	}
	written, err := disk.MarshalJSON(settings)
	if err != nil {
		return nil, err
	}
	journal, err := run.Create(job.run, run.Manifest{
		Kind: run.Solve, ID: job.id, Program: s.d.Program(), Settings: written,
	})
	if err != nil {
		return nil, err
	}
	open.add(journal.Close)
	return &record{journal: journal, path: job.run, settings: settings}, nil
}

// reopen goes on with the run's directory, after a further instruction or without one.
func (r *resumed) reopen(further bool) (*record, error) {
	// Otherwise the summary of the earlier end would be mistaken for that of the new one.
	if err := os.Remove(filepath.Join(r.dir(), attempt.ReportFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	rec := &record{journal: r.journal, path: r.path, settings: r.settings, index: r.chosen()}
	if further {
		return rec, r.journal.Note(noteContinued, continuation{Text: r.further})
	}
	return rec, r.journal.Note(noteResumed, nil)
}

// make makes an attempt in its directory, and writes its outcome to the run's events, or for an interrupted attempt, a
// note.
func (r *record) make(ctx context.Context, a attempt.Attempt, at *place, index int) (done played, err error) {
	job := run.Job{Task: at.task.ID, Group: at.task.ID, Index: index}
	if done.dir, err = r.journal.Attempt(job); err != nil {
		return done, err
	}
	show := a.OnEvent
	a.OnEvent = func(e agent.Event) {
		done.tested = done.tested || e.Kind == agent.EventCall && runsTests.MatchString(commandLine(e.Call))
		show(e)
	}
	done.Result, err = a.Make(ctx, at.task, at.snapshot, done.dir)
	out := done.Outcome
	if out.StopReason == agent.Interrupted {
		return done, errors.Join(err, r.journal.Note(noteInterrupted, job))
	}
	around := done.StartTime + done.PatchTime
	ended := run.Outcome{Job: job, Tries: 1, Result: run.Result{StopReason: out.StopReason, Times: run.Times{
		Model: out.ModelTime.Seconds(), Environment: (around + out.ToolTime).Seconds(),
		Total: (around + out.Elapsed).Seconds(),
	}}}
	if failed := cmp.Or(done.Err, out.Err, done.PatchErr); failed != nil {
		ended.Err = failed.Error()
	}
	return done, errors.Join(err, r.journal.Record(ended))
}

// nextSteps are the commands that a user may want next.
func (c *conclusion) nextSteps(report outcome) []string {
	name := shellWord(runName(c.d, c.path))
	submitted := report.Status == string(agent.Submitted)
	var next []string
	if !submitted && !c.o.demo {
		next = append(next, "deepswe solve --resume "+name)
	}
	if report.Patch == nil || c.o.demo {
		return next
	}
	if report.Applied || report.Branch != "" {
		return append(next, "deepswe undo "+name)
	}
	if next = append(next, "deepswe apply "+name); submitted {
		branch := cmp.Or(c.o.branch, branchName(c.settings))
		next = append(next, "deepswe branch "+name+" "+shellWord(branch),
			"deepswe solve --continue "+name+` "what else"`)
	}
	return next
}
