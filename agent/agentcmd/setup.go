package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/project"
	"deepswe/env/repo"
	"deepswe/env/setup"
)

// setupPlan holds the commands to run before the work begins. A fresh plan is remembered for the repository.
type setupPlan struct {
	commands []string
	fresh    bool
}

// installing is the set-up of a project in a place.
type installing struct {
	*solving
	at *place
	// spec describes the sandboxes of the attempt.
	spec func(env.Task, *repo.Snapshot) env.Spec
}

// setUpProject installs what the project needs, if the user wants that, and returns what is still missing.
func (i installing) setUpProject(ctx context.Context) ([]dueLine, error) {
	due := sync.OnceValues(func() ([]project.Step, error) { return i.findDue(ctx) })
	store := setups(i.d.World)
	plan, err := i.choosePlan(ctx, store, due)
	if err != nil {
		return nil, err
	}
	if len(plan.commands) > 0 {
		if err := i.installPlan(ctx, store, plan); err != nil {
			return nil, err
		}
	}
	if i.at.snapshot.Installed() {
		return nil, nil
	}
	steps, err := due()
	return i.dueLines(steps), err
}

// installPlan runs the commands of a plan, or reuses the result of an earlier run.
func (i installing) installPlan(ctx context.Context, store setup.Store, plan setupPlan) error {
	installer, ok := i.at.provider.(env.Installer)
	if !ok {
		return cli.Usagef("--setup is not possible in %s sandboxes: install what the project needs in the image",
			i.at.provider.Name())
	}
	done, err := i.installWith(ctx, installer, store, plan.commands)
	if failed, ok := errors.AsType[*env.SetupError](err); ok {
		return i.setupFailed(ctx, plan.commands, failed)
	}
	switch {
	case errors.Is(err, env.ErrUnsupported):
		return cli.Usage(err)
	case err != nil:
		return &cli.ExitError{Code: cli.ExitSandbox, Err: err}
	}
	i.watch.show(installed{
		Commands: plan.commands, Reused: done.Reused, Added: done.Added, Restored: done.Restored,
	})
	if plan.fresh {
		if err := store.Agree(i.at.snapshot.Source, plan.commands); err != nil {
			i.d.Logger().Warn("the set-up could not be remembered", "error", err)
		}
	}
	i.at.snapshot.Install(done)
	return nil
}

func setups(w cli.World) setup.Store { return setup.Store{Dir: w.CacheDir("setups")} }

// choosePlan selects the commands: the given ones, those that the user has agreed to before, or those that the
// project's files call for. On a terminal, the user is asked about the latter.
func (i installing) choosePlan(
	ctx context.Context, store setup.Store, due func() ([]project.Step, error),
) (setupPlan, error) {
	none := setupPlan{}
	given, isolated := strings.Join(i.o.Setup, "\n"), i.at.isolated()
	switch {
	case i.o.demo:
		return none, nil
	case given == cli.SetupNone:
		return none, store.Agree(i.at.snapshot.Source, nil)
	case given != "" && given != cli.SetupAuto:
		return setupPlan{commands: i.o.Setup, fresh: true}, nil
	}
	if commands := store.Agreement(i.at.snapshot.Source); given == "" && len(commands) > 0 && isolated {
		return setupPlan{commands: commands}, nil
	}
	steps, err := due()
	if err != nil {
		return none, err
	}
	var commands []string
	for _, s := range steps {
		commands = append(commands, s.Command)
	}
	switch {
	case given == cli.SetupAuto && isolated:
		return setupPlan{commands: commands, fresh: true}, nil
	case len(steps) == 0 || !isolated || i.o.json || !interactive(i.d.World):
		return none, nil // the user is told what is due
	}
	yes, err := i.agrees(ctx, question{Setup: steps})
	if errors.Is(err, errNoAnswer) || err == nil && !yes {
		return none, nil
	}
	return setupPlan{commands: commands, fresh: true}, err
}

// findDue looks for the steps that install missing dependencies.
func (i installing) findDue(ctx context.Context) ([]project.Step, error) {
	if i.o.demo {
		return nil, nil
	}
	if steps := i.at.containerSteps(); len(steps) > 0 {
		return steps, nil
	}
	due := project.Due(i.at.snapshot.Source, i.at.machine)
	switch {
	case i.at.provider.Capabilities().HostToolchain:
		return i.askTools(ctx, due)
	case slices.Equal(i.o.Setup, []string{cli.SetupAuto}):
		return due, nil
	}
	// It is not known here what an image contains; it may be everything. So the rest is installed only on request.
	return slices.DeleteFunc(due, func(s project.Step) bool { return !s.Local }), nil
}

// askTools drops the steps that are not due according to the tools themselves. The tools run in a sandbox, because a
// repository can make them run programs.
func (i installing) askTools(ctx context.Context, due []project.Step) (_ []project.Step, err error) {
	if !slices.ContainsFunc(due, func(s project.Step) bool { return s.Check != "" }) {
		return due, nil
	}
	sb, err := i.at.provider.Start(ctx, i.spec(i.at.task, i.at.snapshot))
	if err != nil {
		return nil, &cli.ExitError{Code: cli.ExitSandbox, Err: fmt.Errorf("start sandbox: %w", err)}
	}
	defer func() { err = errors.Join(err, sb.Close(context.WithoutCancel(ctx))) }()
	return project.Ask(ctx, due, sb)
}

// installWith runs the commands, or reuses the result of an earlier run.
func (i installing) installWith(
	ctx context.Context, installer env.Installer, store setup.Store, commands []string,
) (done env.Installed, err error) {
	snapshot := i.at.snapshot
	how := env.Setup{Commands: commands, Aside: snapshot.Aside, Progress: func(p env.SetupProgress) { i.watch.show(p) }}
	spec := i.spec(i.at.task, snapshot)
	if i.at.provider.Capabilities().Images {
		return installer.Install(ctx, spec, how) // the provider keeps the image itself
	}
	key, err := setup.Key(snapshot.Source, i.at.provider.Name(), commands, true)
	if err != nil {
		return done, err
	}
	done, reused, err := store.Get(ctx, key, func(dir string) (env.Installed, error) {
		how.Dir = dir
		return installer.Install(ctx, spec, how)
	})
	done.Reused = reused
	return done, err
}

// installed describes the result of a set-up.
type installed struct {
	Type     string   `json:"type"` // "setup"
	Commands []string `json:"commands"`
	// Reused is set if an earlier run has done the set-up.
	Reused bool `json:"reused,omitempty"`
	// Added are new paths in the repository, Restored those of its files that were changed and have been put back.
	Added    []string `json:"added,omitempty"`
	Restored []string `json:"restored,omitempty"`
}

// dueLine describes missing dependencies, and how they are installed.
type dueLine struct {
	// What names what is missing, Fix says what the user can do, and Command installs it.
	What, Fix, Command string
	// Offline is set where the command cannot be run in the sandbox.
	Offline bool
}

// MarshalText implements encoding.TextMarshaler.
func (d dueLine) MarshalText() ([]byte, error) { return []byte(d.line() + ": to fix: " + d.Fix), nil }

func (d dueLine) line() string {
	if d.Offline {
		return d.What + ", and the sandbox has no network"
	}
	return d.What
}

func (d dueLine) note() string {
	if d.Offline {
		return fmt.Sprintf("Not installed: %s, so that %s cannot be run here.", d.line(), d.Command)
	}
	return fmt.Sprintf("Not installed: %s. This installs it: %s", d.line(), d.Command)
}

// dueLines describes the steps that install missing dependencies.
func (i installing) dueLines(steps []project.Step) []dueLine {
	how := "--setup auto, which runs: "
	if !i.at.isolated() {
		how = "--setup CMD, for example: "
	}
	var lines []dueLine
	for _, s := range steps {
		lines = append(lines, dueLine{
			What: missing(s), Fix: how + s.Command, Command: s.Command,
			Offline: i.at.isolated() && !i.o.Network,
		})
	}
	return lines
}

// missing names what is missing, or may be.
func missing(s project.Step) string {
	if s.Doubt {
		return fmt.Sprintf("perhaps %s (%s)", s.Missing, s.Lock)
	}
	return fmt.Sprintf("%s is missing (%s)", s.Missing, s.Lock)
}

// sandboxExaminer returns a function that looks in the sandbox for the project's Python, and for dependencies that are
// missing or do not work there. Where the sandbox has the machine's programs, these are known already.
func (i installing) sandboxExaminer() func(context.Context, env.Sandbox) ([]string, error) {
	var once sync.Once
	return func(ctx context.Context, sb env.Sandbox) ([]string, error) {
		var notes []string
		if !i.at.provider.Capabilities().HostToolchain {
			problems, found, err := i.examineImage(ctx, sb)
			if err != nil {
				return nil, err
			}
			once.Do(func() {
				for _, p := range problems {
					i.d.Logger().Warn(p)
				}
			})
			notes = found
		}
		if len(notes) > 0 {
			return notes, nil
		}
		python, err := project.FindPython(ctx, i.at.snapshot.Source, i.at.machine, sb)
		if python == "" || err != nil {
			return nil, err
		}
		return []string{fmt.Sprintf("The project's Python environment is not active: run %s, from the root of the "+
			"repository, in place of python.", python)}, nil
	}
}

// examineImage looks for dependencies that are missing from an image or do not work in it. Problems are for the user,
// notes for the model.
func (i installing) examineImage(ctx context.Context, sb env.Sandbox) (problems, notes []string, err error) {
	name, problem, err := project.ExamineVirtualEnv(ctx, i.at.snapshot.Source, sb)
	if err != nil {
		return nil, nil, err
	}
	if problem != "" {
		problems = append(problems, fmt.Sprintf("%s does not work in this sandbox: %s; to fix: use --env bwrap, which has "+
			"this machine's programs, or --exclude %[1]s and --setup CMD", name, problem))
		notes = append(notes, fmt.Sprintf("%s does not work here: %s.", name, problem))
	}
	if i.o.demo || i.at.snapshot.Installed() || len(i.at.containerSteps()) > 0 {
		return problems, notes, nil
	}
	due, err := project.DueInside(ctx, i.at.snapshot.Source, sb)
	for _, l := range i.dueLines(due) {
		problems = append(problems, fmt.Sprintf("%s; to fix: %s", l.line(), l.Fix))
		notes = append(notes, l.note())
	}
	return problems, notes, err
}

// setupFailed says why a set-up has failed and what to try next, as flags to copy. On a terminal, the user may go on
// without the set-up, for this run only.
func (i installing) setupFailed(ctx context.Context, commands []string, failed *env.SetupError) error {
	reason, next := setup.Explain(failed)
	what, _, _ := strings.Cut(failed.Error(), "\n")
	text := what
	if reason != "" {
		text += "\n" + cli.Cut(cli.Plain(reason), 300)
	}
	fix := "--setup CMD runs another command"
	if at := failed.Step - 1; next != "" && at < len(commands) {
		var flags []string
		for _, line := range slices.Replace(slices.Clone(commands), at, at+1, next) {
			flags = append(flags, "--setup "+env.ShellQuote(line))
		}
		fix = strings.Join(flags, " ")
	}
	text += "\nto fix: " + fix + "\nor: --setup none goes on without"
	log := i.d.CacheDir("setup-failed.log")
	r := failed.Result
	if disk.WriteFile(log, slices.Concat(r.Stdout.Head, r.Stdout.Tail, r.Stderr.Head, r.Stderr.Tail)) == nil {
		text += "\nall that it printed: " + log
	}
	err := &cli.ExitError{Code: cli.ExitSandbox, Err: errors.New(text)}
	if i.o.json || !interactive(i.d.World) {
		return err
	}
	switch yes, qerr := i.agrees(ctx, question{Failed: text}); {
	case errors.Is(qerr, errNoAnswer), qerr == nil && !yes:
		return err
	case qerr != nil:
		return fmt.Errorf("ask whether to go on without the set-up: %w", qerr)
	}
	return nil
}
