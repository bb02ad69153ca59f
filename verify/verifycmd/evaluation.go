package verifycmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"deepswe/agent/agentcmd"
	"deepswe/agent/attempt"
	"deepswe/agent/llm"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/verify"
)

// evaluation is one run of eval.
type evaluation struct {
	d Deps
	o *evalOptions

	manifest evalManifest
	dir      *run.Dir
	ids      []string // of the tasks, in their order
	tasks    map[string]env.Task
	model    agentcmd.LiveModel
	provider env.Provider
	gates    run.Gates
	runner   *runner
	progress *progress
	census   *census
	// ahead is nil where no sandbox is started ahead of time; starts counts the attempts that have started.
	ahead  *ahead
	starts int
}

// prepare opens everything that a run needs, the cheap and likely failures first. A run that cannot begin leaves no
// directory.
func (e *evaluation) prepare(ctx context.Context, flags *pflag.FlagSet) error {
	if err := e.readTasks(); err != nil {
		return err
	}
	var err error
	if e.o.attempts > 0 {
		if e.model, err = e.o.model.open(ctx, e.d); err != nil {
			return err
		}
	}
	var all []env.Task
	for _, id := range e.ids {
		all = append(all, e.tasks[id])
	}
	e.progress = newProgress(e.d.Err, "rollouts")
	if e.provider, err = e.o.sandbox.open(ctx, e.d, all, e.progress.pull); err != nil {
		return err
	}
	if !e.o.resume {
		if err := e.begin(flags); err != nil {
			return err
		}
	}
	if err := errors.Join(e.sameTasks(), e.sameModel()); err != nil {
		return err
	}
	e.gates = run.NewGates(run.Limits{Models: e.o.modelCalls, Gradings: e.o.gradeWorkers})
	e.runner, err = newRunner(e)
	return err
}

// readTasks reads the chosen tasks.
func (e *evaluation) readTasks() error {
	tasks, counts, err := e.o.tasks.read(e.d)
	if err != nil {
		return err
	}
	e.tasks = map[string]env.Task{}
	for t, err := range tasks {
		if err != nil {
			return err
		}
		if _, twice := e.tasks[t.ID]; twice {
			return agentcmd.Usage(fmt.Errorf("%s has two tasks with the id %s", e.o.tasks.path, t.ID))
		}
		if err := verify.Gradable(t); err != nil && !e.o.noGrade {
			fmt.Fprintf(e.d.Err, "no patch for %s can be graded: %v\n", plain(t.ID), err)
		}
		e.ids = append(e.ids, t.ID)
		e.tasks[t.ID] = t
	}
	if len(e.ids) == 0 {
		return e.o.tasks.nothing(counts)
	}
	return nil
}

func (e *evaluation) close() error {
	var err error
	if e.progress != nil {
		e.progress.close()
	}
	if e.provider != nil {
		err = errors.Join(err, e.provider.Close())
	}
	if e.dir != nil {
		err = errors.Join(err, e.dir.Close())
	}
	return err
}

// run makes the census where it is wanted, then all attempts, and reports.
func (e *evaluation) run(ctx context.Context) error {
	if e.o.census {
		if err := e.takeCensus(ctx); err != nil {
			return e.stopped(ctx, err)
		}
	}
	ids := e.ids
	if e.o.soundOnly {
		ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !e.census.sound(id) })
	}
	plan := run.Plan(ids, e.o.attempts)
	e.begun(plan)
	defer e.prefetch(ctx, plan)()
	engine := run.Engine{Runner: e.runner, Journal: e.dir, Options: run.Options{
		Workers: e.o.workers, Retries: maxRetries, MaxFailures: max(12, 3*e.o.workers), Observe: e.observe,
		Deadline: e.deadline(),
	}}
	outcomes, err := engine.Run(ctx, plan)
	if reportErr := e.report(outcomes, err == nil); reportErr != nil {
		return errors.Join(err, reportErr)
	}
	if err != nil {
		return e.stopped(ctx, err)
	}
	for _, o := range outcomes {
		if o.Failed() {
			return exit(agentcmd.ExitUnsolved)
		}
	}
	return nil
}

// maxRetries is how often an attempt is taken up again after a failure of the machinery. Each time it goes on where it
// stood, so that a try costs little.
const maxRetries = 4

// deadline guards against a rollout that hangs in spite of its own limits.
func (e *evaluation) deadline() time.Duration {
	grading := e.o.gradeTimeout
	for _, t := range e.tasks {
		grading = max(grading, t.Tests.Timeout)
	}
	return 2*e.o.model.timeout + 3*max(grading, verify.EvaluationTimeout) + time.Hour
}

// stopped says why a run came to no end, and how it goes on.
func (e *evaluation) stopped(ctx context.Context, err error) error {
	again := fmt.Sprintf("go on with: deepswe eval --resume --out %s", e.dir.Path())
	if interrupted(ctx, err) {
		fmt.Fprintf(e.d.Err, "stopped; %s\n", again)
		return &exitError{code: agentcmd.ExitInterrupted}
	}
	return &exitError{code: agentcmd.ExitCode(err), err: fmt.Errorf("%w\n%s", err, again)}
}

// prefetch makes sandboxes ready ahead of time where that is wanted, and returns what ends it.
func (e *evaluation) prefetch(ctx context.Context, plan []run.Job) (end func()) {
	if e.o.sandbox.warm == 0 {
		return func() {}
	}
	todo := slices.DeleteFunc(slices.Clone(plan), func(a run.Job) bool {
		_, done := e.dir.Find(a)
		return done
	})
	e.ahead = newAhead(ctx, e.provider, todo, e.o.workers, e.o.sandbox.warm, func(id string) env.Spec {
		return e.runner.attempt.Spec(e.tasks[id], attempt.Source{})
	}, e.d.Log)
	return e.ahead.close
}

// begun tells the screen what there is to do.
func (e *evaluation) begun(plan []run.Job) {
	what := fmt.Sprintf("%d tasks, %d attempts each", len(plan)/max(1, e.o.attempts), e.o.attempts)
	e.progress.plan("rollouts", len(plan))
	if len(plan) > 0 {
		e.progress.note("%s: %s in %s, kept in %s", e.model.Name, what, e.provider.Name(), e.dir.Path())
	}
	for _, a := range plan {
		if o, ok := e.dir.Find(a); ok {
			e.progress.known(solved(o))
		}
	}
}

// observe shows what happens in the run.
func (e *evaluation) observe(ev run.Event) {
	name := fmt.Sprintf("%s #%d", ev.Job.Task, ev.Job.Index)
	switch ev.Kind {
	case run.Started:
		e.progress.start()
		if e.starts++; e.ahead != nil && e.starts > e.o.workers {
			e.ahead.started()
		}
	case run.Retrying:
		e.progress.note("%s: %v; going on in %s", name, ev.Err, ev.Delay.Round(time.Second))
	case run.Finished:
		e.progress.end(solved(*ev.Outcome), false, name+": "+verdict(*ev.Outcome))
	case run.Failed:
		e.progress.end(false, true, name+": failed: "+ev.Outcome.Err)
	case run.GroupDone:
		return
	}
	if e.o.json && (ev.Kind == run.Finished || ev.Kind == run.Failed) {
		e.tell(*ev.Outcome)
	}
}

// hopeless tells whether an endpoint's failure will meet every other request as well.
func hopeless(err error) bool {
	failure, ok := errors.AsType[*llm.Error](err)
	return ok && (failure.Status == 401 || failure.Status == 403 || failure.Status == 404)
}
