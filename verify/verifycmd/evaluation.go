package verifycmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/verify"
	"deepswe/verify/swe"
)

type evaluation struct {
	session
	o *evalOptions

	settings  evalSettings
	ids       []string // of the tasks, in their order
	tasks     map[string]env.Task
	model     cli.LiveModel
	swe       swe.Evaluation
	soundness *swe.Soundness // nil if it was not checked
	bill      bill
}

// prepare opens everything that a run needs, the cheap and likely failures first. A run that cannot begin leaves no
// directory.
func (e *evaluation) prepare(ctx context.Context, flags *pflag.FlagSet) error {
	if err := e.readTasks(); err != nil {
		return err
	}
	runner := &swe.Runner{Tasks: e.tasks}
	if e.o.attempts > 0 {
		var err error
		e.o.model.Patience = cli.Patience
		if e.model, err = e.o.model.Open(ctx, e.d.World); err != nil {
			return err
		}
		if err := e.checkContexts(); err != nil {
			return err
		}
		if e.bill.price, e.bill.known, err = e.d.PriceOf(e.model.Name, e.o.maxCost > 0); err != nil {
			return err
		}
		if runner.Attempt, err = e.o.model.Attempt(e.d.World, e.model, e.o.network); err != nil {
			return err
		}
		if e.o.verifier.Verifier != "" && !e.o.model.Given("temperature") {
			one := 1.0 // attempts that are alike leave no choice
			runner.Attempt.Sampling.Temperature = &one
		}
		var recorded *trajectory.Recording
		if path, ok := strings.CutPrefix(e.o.model.Name, cli.ReplayPrefix); ok && !e.o.agent.Own() {
			if recorded, err = trajectory.Open(path); err != nil {
				return cli.Usage(err)
			}
		}
		if runner.Attempt.Player, err = e.o.agent.Player(ctx, e.d.World, recorded); err != nil {
			return err
		}
	}
	var all []env.Task
	for _, id := range e.ids {
		all = append(all, e.tasks[id])
	}
	e.progress = newProgress(e.d.Err, "rollouts")
	if err := e.openSandbox(ctx, &e.o.sandbox, e.o.warm, all); err != nil {
		return err
	}
	if !e.o.resume {
		if err := e.beginRun(flags); err != nil {
			return err
		}
	}
	e.assemble(runner)
	err := e.swe.KeepTasks()
	if err == nil && e.o.attempts > 0 {
		err = e.swe.KeepModel(e.model.Context)
	}
	if errors.Is(err, swe.ErrChanged) {
		return cli.Usage(err)
	}
	return err
}

// checkContexts refuses to compare context lengths above the endpoint's own: these would all be the same.
func (e *evaluation) checkContexts() error {
	if all := e.o.model.Contexts; len(all) > 1 && e.model.Context > 0 && all[len(all)-1] > e.model.Context {
		return cli.Usagef("--context has %s, and the endpoint takes %d tokens at most: leave out what is larger",
			swe.ContextName(all[len(all)-1]), e.model.Context)
	}
	return nil
}

// assemble makes the evaluation from what was opened.
func (e *evaluation) assemble(r *swe.Runner) {
	name := filepath.Base(e.dir.Path())
	r.Dir = e.dir.Attempt
	r.Gates = run.Gates{Model: run.NewGate(e.o.modelCalls), Grading: run.NewGate(e.o.gradeWorkers)}
	r.Attempt.Provider, r.Attempt.Run = e.provider, name
	r.OnEvent = func(_ run.Job, ev agent.Event) {
		if ev.Kind == agent.EventReply && ev.Usage != nil {
			e.progress.add(ev.Usage.Prompt + ev.Usage.Completion)
			e.charge(*ev.Usage)
		}
	}
	if e.o.model.Given("seed") {
		r.Seed = &e.o.seed
	}
	evaluator := &verify.Evaluator{
		Provider: e.provider, Timeout: e.o.gradeTimeout, Network: e.o.gradeNetwork, Run: name,
		Variants: verify.SampledWinners,
	}
	e.o.confirm.set(evaluator)
	if !e.o.noGrade {
		r.Evaluator = evaluator
	}
	e.swe = swe.Evaluation{
		IDs: e.ids, K: e.o.attempts, Runner: r, Evaluator: evaluator, Dir: e.dir, Workers: e.o.workers, Warm: e.o.warm,
		Mutants: e.o.mutants, Observe: e.observeEvent, Log: e.d.Log,
	}
	if n := len(e.o.model.Contexts); n > 1 {
		e.swe.Contexts = e.o.model.Contexts[:n-1]
	}
}

func (e *evaluation) readTasks() error {
	tasks, counts, err := e.o.tasks.Read(e.d.World)
	if err != nil {
		return err
	}
	e.tasks = map[string]env.Task{}
	for t, err := range tasks {
		if err != nil {
			return err
		}
		if _, twice := e.tasks[t.ID]; twice {
			return cli.Usagef("%s has two tasks with the id %s", e.o.tasks.Path, t.ID)
		}
		if err := verify.Gradable(t); err != nil && !e.o.noGrade {
			fmt.Fprintf(e.d.Err, "no patch for %s can be graded: %v\n", cli.Plain(t.ID), err)
		}
		e.ids = append(e.ids, t.ID)
		e.tasks[t.ID] = t
	}
	if len(e.ids) == 0 {
		return e.o.tasks.NoTasks(counts)
	}
	if err := run.CheckNames(e.ids); err != nil {
		return cli.Usagef("%s: %w", e.o.tasks.Path, err)
	}
	return nil
}

// run checks the soundness of the tasks if requested, makes all attempts, and reports.
func (e *evaluation) run(ctx context.Context) error {
	if e.o.census {
		if err := e.checkSoundness(ctx); err != nil {
			return e.stopped(ctx, err)
		}
	}
	ids := e.ids
	if e.o.soundOnly {
		ids = e.soundness.SoundTasks()
	}
	plan := e.swe.Plan(ids)
	ctx, e.bill.stop = context.WithCancelCause(ctx)
	defer e.bill.stop(nil)
	e.bill.most = e.o.maxCost
	e.begun(plan, len(ids))
	e.estimate(ctx, plan)
	outcomes, err := e.swe.Run(ctx, plan)
	if reportErr := e.report(outcomes, err == nil); reportErr != nil {
		return errors.Join(err, reportErr)
	}
	if err == nil && e.o.verifier.Verifier != "" {
		err = e.rank(ctx)
	}
	if exit, ok := errors.AsType[*cli.ExitError](err); ok && exit.Err == nil {
		return err
	}
	if err != nil {
		return e.stopped(ctx, err)
	}
	if slices.ContainsFunc(outcomes, run.Outcome.Failed) {
		return cli.Exit(cli.ExitUnsolved)
	}
	return nil
}

// rank chooses among the attempts.
func (e *evaluation) rank(ctx context.Context) error {
	r := &ranker{
		session: session{d: e.d, provider: e.provider, progress: e.progress, lines: e.lines}, model: &e.model,
		o: &rankOptions{
			run: []string{e.dir.Path()}, verifier: e.o.verifier, model: e.o.model, workers: e.o.workers, json: e.o.json,
		},
	}
	r.ranking.Tasks = e.tasks
	err := r.run(ctx)
	if r.store != nil {
		err = errors.Join(err, r.store.Close())
	}
	return err
}

// checkSoundness grades no change, the reference solutions, and mutants of them.
func (e *evaluation) checkSoundness(ctx context.Context) error {
	e.progress.note("soundness check of %d tasks: they must be unsolved without a patch, and solved by the reference "+
		"solution", len(e.ids))
	var err error
	e.soundness, err = e.swe.CheckSoundness(ctx, swe.Watch{Begin: e.beginPart, Observe: e.observeSoundness})
	return err
}

// stopped is the error of a run that did not end, with the command that resumes it.
func (e *evaluation) stopped(ctx context.Context, err error) error {
	again := fmt.Sprintf("resume with: deepswe eval --resume --out %s", e.dir.Path())
	if cli.Interrupted(ctx, err) {
		fmt.Fprintf(e.d.Err, "stopped; %s\n", again)
		return cli.Exit(cli.ExitInterrupted)
	}
	return &cli.ExitError{Code: cli.ExitCode(err), Err: fmt.Errorf("%w\n%s", err, again)}
}

func (e *evaluation) begun(plan []run.Job, tasks int) {
	what := fmt.Sprintf("%s, %s each", cli.Plural(tasks, "task"), cli.Plural(e.o.attempts, "attempt"))
	if len(e.swe.Contexts) > 0 {
		what += fmt.Sprintf(" at each of %d context lengths", len(e.swe.Contexts)+1)
	}
	e.progress.plan("rollouts", len(plan))
	if len(plan) > 0 {
		e.progress.note("%s: %s in %s, kept in %s", e.model.Name, what, e.provider.Name(), e.dir.Path())
	}
	for _, j := range plan {
		if o, ok := e.dir.Find(j); ok {
			e.progress.known(new(swe.Solved(o)))
		}
	}
}

// observeEvent shows what happens in the run.
func (e *evaluation) observeEvent(ev run.Event) {
	name := fmt.Sprintf("%s #%d", ev.Job.Task, ev.Job.Index)
	if context := swe.ContextOf(ev.Job); context > 0 {
		name += " with " + swe.ContextName(context)
	}
	e.progress.observeEvent(ev, name, "continuing", func() (*bool, string) {
		return new(swe.Solved(*ev.Outcome)), verdict(*ev.Outcome)
	})
	if e.o.json && (ev.Kind == run.Finished || ev.Kind == run.Failed) {
		e.print(*ev.Outcome)
	}
}

// observeSoundness shows what happens in the soundness check.
func (e *evaluation) observeSoundness(ev run.Event) {
	e.progress.observeEvent(ev, swe.SoundnessJob(ev.Job), "trying again", func() (*bool, string) {
		var solved *bool
		if ev.Outcome.Reward != nil {
			solved = new(swe.Solved(*ev.Outcome))
		}
		return solved, swe.SoundnessResult(*ev.Outcome)
	})
}

// verdict describes a rollout in a line.
func verdict(o run.Outcome) string {
	d := swe.DetailOf(o)
	word := "not graded"
	switch {
	case swe.Solved(o):
		word = "solved"
	case d.Status != "":
		word = strings.ReplaceAll(string(d.Status), "_", " ")
	}
	for _, s := range d.Suspicious {
		word += fmt.Sprintf(", suspicious (%s)", s)
	}
	return fmt.Sprintf("%s (%s after %d steps, %s)", word, strings.ReplaceAll(string(o.StopReason), "_", " "), d.Steps,
		cli.Clock(secondsOf(o.Times.Total)))
}
