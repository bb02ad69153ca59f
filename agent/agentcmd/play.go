package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/env/repo"
)

// record is the directory of a run that is in progress.
type record struct {
	journal  *run.Dir
	path     string
	settings solveSettings
	index    int // the number of the attempt that is continued
}

// openRecord creates the run's directory, or reopens that of the run that is continued.
func (s *solving) openRecord(ctx context.Context, job *assignment, p *plan, open *opened) (*record, error) {
	if job.past != nil {
		return job.past.reopenRecord(s.o.further != "")
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
	open.onClose(journal.Close)
	return &record{journal: journal, path: job.run, settings: settings}, nil
}

// reopenRecord reopens the run's directory, and notes why: further says that there is a further instruction.
func (r *resumed) reopenRecord(further bool) (*record, error) {
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

// makeAttempt makes an attempt in its directory, and writes its outcome to the run's events, or for an interrupted
// attempt, a note.
func (r *record) makeAttempt(ctx context.Context, a attempt.Attempt, at *place, index int) (done played, err error) {
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

// solveSettings are the settings in the manifest of a run of solve: all that it takes to go on with it.
type solveSettings struct {
	Task string `json:"task"`
	Repo string `json:"repo,omitempty"` // on the host; empty if it was cloned for the run
	// Head is the commit that was checked out when the run began.
	Head    string `json:"head,omitempty"`
	Issue   string `json:"issue,omitempty"` // its URL
	Model   string `json:"model"`
	Sandbox string `json:"sandbox"`
	// Source and Statement are the task's.
	Source    string `json:"source,omitempty"`
	Statement string `json:"statement,omitempty"`
	Demo      bool   `json:"demo,omitempty"`
	// Flags are the flags that were given, with their values.
	Flags map[string][]string `json:"flags,omitempty"`
}

// momentary are the flags that a resumed run does not take over, or that have a separate setting.
var momentary = []string{"repo", "issue-file", "demo", "out", "json", "resume", "continue", "verbose", "allow"}

// givenFlags returns the flags that were given, with paths made absolute. A base URL with a password is left out: no
// secret is written down.
func givenFlags(f *pflag.FlagSet) map[string][]string {
	given := map[string][]string{}
	f.Visit(func(flag *pflag.Flag) {
		if slices.Contains(momentary, flag.Name) {
			return
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			given[flag.Name] = list.GetSlice()
			return
		}
		value := flag.Value.String()
		switch file, recorded := strings.CutPrefix(value, cli.ReplayPrefix); {
		case flag.Name == "prompt-pack":
			value = absolute(value)
		case flag.Name == "model" && recorded:
			value = cli.ReplayPrefix + absolute(file)
		case flag.Name == "base-url":
			if u, err := url.Parse(value); err != nil || u.User != nil {
				return
			}
		}
		given[flag.Name] = []string{value}
	})
	return given
}

func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// restoreFlags sets the recorded flags that are not given now. Those that this program does not know are left out.
func restoreFlags(f *pflag.FlagSet, recorded map[string][]string) error {
	for name, values := range recorded {
		flag := f.Lookup(name)
		if flag == nil || flag.Changed || slices.Contains(momentary, name) {
			continue
		}
		for _, v := range values {
			if err := f.Set(name, v); err != nil {
				return cli.Usagef("the run's --%s: %w", name, err)
			}
		}
	}
	return nil
}

// raced is the progress of one of several attempts.
type raced struct {
	Attempt int
	Text    string
	// Ended attempts have a line that stays.
	Ended bool
}

// played is the attempt whose patch is the run's.
type played struct {
	attempt.Result
	dir    string
	tested bool            // the agent ran a test
	choice *cli.RaceResult // of several attempts; nil for one
}

// playPlan makes the attempt, or several of which one is chosen. The error is about writing their files.
func (s *solving) playPlan(ctx context.Context, p *plan, rec *record) (played, error) {
	if s.o.attempts > 1 {
		return s.raceAttempts(ctx, p, rec)
	}
	a := p.Attempt
	a.OnEvent = func(e agent.Event) { s.watch.show(e) }
	a.OnPhase = func(ph attempt.Phase) { s.watch.show(ph) }
	a.OnReady = func(dir string) { s.watch.show(ready(dir)) }
	return rec.makeAttempt(ctx, a, p.at, rec.index)
}

// raceAttempts makes several attempts at once and returns the chosen one; without a choice, the first that has a
// result.
func (s *solving) raceAttempts(ctx context.Context, p *plan, rec *record) (played, error) {
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
	result, err := rec.makeAttempt(ctx, a, p.at, i)
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
