package agentcmd

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/agent/prompt"
	"deepswe/env/disk"
)

// solving is a run of solve: its options, and the watcher and the questions that connect it with the user.
type solving struct {
	d         Deps
	o         *solveOptions // the command's own, which the configuration and a resumed run complete
	id        string        // of a new run; chosen if it is empty
	watch     watcher
	stream    bool // the watcher wants the model's text as it arrives
	questions questions
}

// runSolve works on the issue, cleans up, and reports the result; with --json, also an invalid command line.
func runSolve(ctx context.Context, d Deps, o *solveOptions, args []string) error {
	s := &solving{d: d, o: o, questions: questions{in: d.In}}
	s.watch, s.stream = newWatcher(d, o)
	open := &opened{d: d}
	report, _, err := s.solve(ctx, args, open)
	open.closeAll()
	if err != nil || !s.asksDecision(report) {
		return s.printOutcome(report, err)
	}
	report.Next = nil // the user is asked
	if err := s.printOutcome(report, nil); err != nil {
		return err
	}
	return s.askDecision(ctx, report.Run)
}

// solve goes from the command line to the patch. Cheap steps that are likely to fail come first. A step gets what the
// earlier ones have decided, and adds to open what is in use until the end. The conclusion is nil if nothing began.
func (s *solving) solve(ctx context.Context, args []string, open *opened) (outcome, *conclusion, error) {
	// What to do: the task, its repository on this machine, and where the run is kept. Nothing is copied yet.
	job, err := s.admit(ctx, args, open)
	if err != nil {
		return s.refuseStart(ctx, err)
	}
	// Who does it.
	model, err := s.openModel(ctx)
	if err != nil {
		return s.refuseStart(ctx, err)
	}
	// Where: sandboxes, with a copy of the repository.
	at, err := s.openPlace(ctx, job, true, open)
	if err != nil {
		return s.refuseStart(ctx, err)
	}
	// How: the limits, what is installed first, and what the model is told.
	p, err := s.planAttempt(ctx, job, model, at)
	if err != nil {
		return s.refuseStart(ctx, err)
	}
	rec, err := s.openRecord(ctx, job, p, open)
	if err != nil {
		return s.refuseStart(ctx, cli.Usage(err))
	}
	// The work, and what becomes of it.
	s.watch.show(s.startedWith(job, p))
	done, err := s.playPlan(ctx, p, rec)
	end := &conclusion{solving: s, plan: p, record: rec, played: done}
	report, err := end.reportResult(ctx, err)
	return report, end, err
}

// refuseStart returns the result of a run that has not begun.
func (s *solving) refuseStart(ctx context.Context, err error) (outcome, *conclusion, error) {
	if ctx.Err() != nil {
		return outcome{Status: string(agent.Interrupted), ExitCode: cli.ExitInterrupted}, nil, &cli.ExitError{
			Code: cli.ExitInterrupted, Err: errors.New("interrupted before the first step; nothing was changed"),
		}
	}
	return outcome{Status: "failed", ExitCode: cli.ExitCode(err)}, nil, err
}

// opened holds what a run has open until it ends.
type opened struct {
	d       Deps
	closers []func() error
}

// onClose registers f to be called at the end, before the functions that were registered earlier.
func (o *opened) onClose(f func() error) { o.closers = append(o.closers, f) }

// makeScratch makes a temporary directory that is removed at the end.
func (o *opened) makeScratch(what string) (string, error) {
	dir, err := disk.MakeScratch("", what)
	if err == nil {
		o.onClose(func() error { return disk.RemoveScratch(dir) })
	}
	return dir, err
}

// closeAll closes everything, the latest first. A failure is logged, and does not change the result.
func (o *opened) closeAll() {
	var err error
	for _, f := range slices.Backward(o.closers) {
		err = errors.Join(err, f())
	}
	if err != nil {
		o.d.Logger().Warn("some of what the run used could not be released; deepswe clean removes it later", "error", err)
	}
}

// openModel opens the model. The demo is live only where a flag names the model or its endpoint, so that it is the same
// everywhere.
func (s *solving) openModel(ctx context.Context) (cli.LiveModel, error) {
	if !s.o.demo || s.o.Name != "" || s.o.BaseURL != "" {
		return s.o.OpenForWork(ctx, s.d.World)
	}
	rec, err := openDemo(s.d.Demo)
	if err != nil {
		return cli.LiveModel{}, err
	}
	return s.o.Recorded(rec)
}

// plan is how the task is attempted, and the patch tested.
type plan struct {
	attempt.Attempt
	at    *place
	model cli.LiveModel
	due   []dueLine // dependencies that are not installed
	rules []string  // files of the project's rules
	test  testCommand
}

// planAttempt composes the attempt from the flags, the model and the place, and installs what the project needs.
func (s *solving) planAttempt(ctx context.Context, job *assignment, model cli.LiveModel, at *place) (*plan, error) {
	p := &plan{at: at, model: model}
	var err error
	if p.Attempt, err = s.o.Attempt(s.d.World, model, s.o.Network); err != nil {
		return nil, err
	}
	if p.Player, err = s.o.agent.Player(ctx, s.d.World, nil); err != nil {
		return nil, err
	}
	p.Provider, p.Run, p.Stream = at.provider, job.id, s.stream
	if s.o.attempts > 1 && !s.o.Given("temperature") {
		p.Sampling.Temperature = new(1.0) // attempts that are alike leave no choice
	}
	if err := s.setCost(&p.Attempt, model.Name); err != nil {
		return nil, err
	}
	setup := installing{solving: s, at: at, spec: p.Spec}
	if p.due, err = setup.setUpProject(ctx); err != nil {
		return nil, err
	}
	p.test = at.test.findAgain(at)
	if s.o.confirm {
		p.Review = s.confirmCall
	}
	if err := s.readProject(p); err != nil {
		return nil, err
	}
	p.Notes = at.snapshot.Notes()
	for _, due := range p.due {
		p.Notes = append(p.Notes, due.note())
	}
	if !s.o.demo { // the demo is the same on every machine
		p.Notes = append(p.Notes, askForTest)
	}
	p.Examine = setup.sandboxExaminer()
	if job.past != nil {
		p.Reopen, p.Further = true, job.past.further
	}
	return p, nil
}

// setCost sets the price of the model's replies, if the configuration contains it.
func (s *solving) setCost(a *attempt.Attempt, model string) error {
	price, known, err := s.d.PriceOf(model, s.o.maxCost > 0)
	if known {
		a.Cost, a.Limits.Cost = price.Cost, s.o.maxCost
	}
	return err
}

// readProject reads the project's own rules, and finds the folder of the repository that the user works in.
func (s *solving) readProject(p *plan) error {
	if s.o.demo {
		return nil // the demo is the same on every machine
	}
	target, err := filepath.EvalSymlinks(p.at.target)
	if err != nil {
		return cli.Usage(err)
	}
	folder, err := filepath.Rel(p.at.snapshot.Source, target)
	if err != nil || !filepath.IsLocal(folder) {
		folder = "." // the source has another name than the target
	}
	most := prompt.MaxRules
	if c := p.Limits.Context; c > 0 {
		most = min(most, c/2) // an eighth of it, at four bytes a token
	}
	rules, err := prompt.ReadRules(p.at.snapshot.Source, filepath.ToSlash(folder), most)
	if err != nil {
		return cli.Usage(err)
	}
	if folder != "." {
		p.Folder = filepath.ToSlash(folder)
	}
	p.Rules, p.rules = rules.Text, rules.Files
	return nil
}

// startedWith describes what begins.
func (s *solving) startedWith(job *assignment, p *plan) started {
	b := started{
		Run: job.run, Task: p.at.task.ID, Model: p.model.Name, Sandbox: p.at.provider.Name(), Repo: p.at.target,
		Demo: s.o.demo, Recorded: p.model.IsRecorded(), MaxSteps: s.o.MaxSteps, NotCopied: p.at.snapshot.Omitted,
		Rules: p.rules, Folder: p.Folder, Context: p.Limits.Context, Due: p.due,
		cost: p.Cost,
	}
	if job.past != nil {
		b.Resumed = true
		l, _ := job.past.readLog()
		b.MaxSteps += l.replies // earlier replies do not count against the limit
	}
	return b
}

// newWatcher returns the watcher that the flags ask for, and whether it wants the model's text as it arrives.
func newWatcher(d Deps, o *solveOptions) (w watcher, stream bool) {
	if o.json {
		return &jsonWatcher{cli.NewJSONLines(d.Out)}, false
	}
	on := cli.ScreenOf(d.Err)
	s := newScreen(d.Out, on.SeenWith(d.Out), on, newStyles(on.Renderer()))
	s.verbose = o.verbose
	return s, on.Live()
}
