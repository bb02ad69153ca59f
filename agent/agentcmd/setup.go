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
	"deepswe/env/project"
	"deepswe/env/setup"
)

// setupPlan holds the commands to run before the work begins. A fresh plan is remembered for the repository.
type setupPlan struct {
	commands []string
	fresh    bool
}

// setUp installs what the project needs, if the user wants that.
func (j *job) setUp(ctx context.Context) error {
	store := setups(j.d.World)
	plan, err := j.planSetup(ctx, store)
	if err != nil || len(plan.commands) == 0 {
		return err
	}
	installer, ok := j.provider.(env.Installer)
	if !ok {
		return cli.Usagef("--setup is not possible in %s sandboxes: install what the project needs in the image",
			j.provider.Name())
	}
	done, err := j.install(ctx, installer, store, plan.commands)
	if failed, ok := errors.AsType[*env.SetupError](err); ok {
		return j.setupFailed(ctx, plan.commands, failed)
	}
	switch {
	case errors.Is(err, env.ErrUnsupported):
		return cli.Usage(err)
	case err != nil:
		return &cli.ExitError{Code: cli.ExitSandbox, Err: err}
	}
	if plan.fresh {
		if err := store.Agree(j.snapshot.Source, plan.commands); err != nil {
			j.d.Logger().Warn("the set-up could not be remembered", "error", err)
		}
	}
	j.snapshot.Install(done)
	return nil
}

// setups is where set-ups are kept.
func setups(w cli.World) setup.Store { return setup.Store{Dir: w.CacheDir("setups")} }

// checkSetup checks the flag.
func (o *solveOptions) checkSetup() error {
	for _, c := range o.Setup {
		switch {
		case strings.TrimSpace(c) == "":
			return cli.Usagef("--setup requires a command, auto or none")
		case (c == cli.SetupAuto || c == cli.SetupNone) && len(o.Setup) > 1:
			return cli.Usagef("--setup %s does not go with other commands", c)
		case c == cli.SetupAuto && o.Env == cli.EnvHost:
			return cli.Usagef("--setup auto runs nothing on the machine itself (--env host): name the commands with --setup, " +
				"or use --env bwrap")
		}
	}
	return nil
}

// planSetup selects the commands: the given ones, those that the user has agreed to before, or those that the project's
// files call for. On a terminal, the user is asked about the latter.
func (j *job) planSetup(ctx context.Context, store setup.Store) (setupPlan, error) {
	if j.o.demo {
		return setupPlan{}, nil
	}
	given := strings.Join(j.o.Setup, "\n")
	switch {
	case given == cli.SetupNone:
		return setupPlan{}, store.Agree(j.snapshot.Source, nil)
	case given != "" && given != cli.SetupAuto:
		return setupPlan{commands: j.o.Setup, fresh: true}, nil
	}
	if commands := store.Agreement(j.snapshot.Source); given == "" && len(commands) > 0 && j.isolated() {
		return setupPlan{commands: commands}, nil
	}
	due, err := j.dueSteps(ctx)
	if err != nil {
		return setupPlan{}, err
	}
	var commands []string
	for _, s := range due {
		commands = append(commands, s.Command)
	}
	switch {
	case given == cli.SetupAuto && j.isolated():
		return setupPlan{commands: commands, fresh: true}, nil
	case len(due) == 0 || !j.isolated() || j.o.json || !interactive(j.d.World):
		return setupPlan{}, nil // what is due is said
	}
	yes, err := j.askSetup(ctx, due)
	if err != nil || !yes {
		return setupPlan{}, err
	}
	return setupPlan{commands: commands, fresh: true}, nil
}

// isolated reports whether the commands of a set-up cannot change this machine.
func (j *job) isolated() bool { return j.provider.Capabilities().Isolated }

// dueSteps returns the steps that install missing dependencies. It looks once.
func (j *job) dueSteps(ctx context.Context) ([]project.Step, error) {
	if j.steps != nil {
		return *j.steps, nil
	}
	due, err := j.findDue(ctx)
	if err == nil {
		j.steps = &due
	}
	return due, err
}

func (j *job) findDue(ctx context.Context) ([]project.Step, error) {
	switch {
	case j.o.demo:
		return nil, nil
	case len(j.containerSteps()) > 0:
		return j.containerSteps(), nil
	}
	due := project.Due(j.snapshot.Source, j.machine())
	if j.provider.Capabilities().HostToolchain {
		return j.askTools(ctx, due)
	}
	if slices.Equal(j.o.Setup, []string{cli.SetupAuto}) {
		return due, nil
	}
	// What an image has is not known from here, and it may well be all. So the rest is for those who ask for it.
	return slices.DeleteFunc(due, func(s project.Step) bool { return !s.Local }), nil
}

// askTools leaves out what is not due by the word of the tools, which are asked in a sandbox, because the repository
// can tell them to run programs.
func (j *job) askTools(ctx context.Context, due []project.Step) (_ []project.Step, err error) {
	if !slices.ContainsFunc(due, func(s project.Step) bool { return s.Check != "" }) {
		return due, nil
	}
	sb, err := j.provider.Start(ctx, j.attempt.Spec(j.task, j.snapshot))
	if err != nil {
		return nil, &cli.ExitError{Code: cli.ExitSandbox, Err: fmt.Errorf("start sandbox: %w", err)}
	}
	defer func() { err = errors.Join(err, sb.Close(context.WithoutCancel(ctx))) }()
	return project.Ask(ctx, due, sb)
}

// machine returns the directories in which commands of the sandbox find what is installed for all projects.
func (j *job) machine() project.Machine {
	if j.provider.Capabilities().HostToolchain {
		return project.FindMachine(j.d.Getenv)
	}
	return project.Container()
}

// install runs the commands, or reuses the result of an earlier run.
func (j *job) install(
	ctx context.Context, installer env.Installer, store setup.Store, commands []string,
) (done env.Installed, err error) {
	how := env.Setup{Commands: commands, Aside: j.snapshot.Aside, Progress: func(p env.SetupProgress) { j.watch.show(p) }}
	spec := j.attempt.Spec(j.task, j.snapshot)
	if j.provider.Capabilities().Images {
		done, err = installer.Install(ctx, spec, how) // which keeps images
	} else {
		var key string
		if key, err = setup.Key(j.snapshot.Source, j.provider.Name(), commands, true); err != nil {
			return done, err
		}
		done, done.Reused, err = store.Get(ctx, key, func(dir string) (env.Installed, error) {
			how.Dir = dir
			return installer.Install(ctx, spec, how)
		})
	}
	if err == nil {
		j.watch.show(installed{Commands: commands, Reused: done.Reused, Added: done.Added, Restored: done.Restored})
	}
	return done, err
}

// askSetup asks the user whether to run the steps.
func (j *job) askSetup(ctx context.Context, due []project.Step) (bool, error) {
	j.watch.show(question{Setup: due})
	answer, err := j.questions.line(ctx)
	if errors.Is(err, errNoAnswer) {
		return false, nil
	}
	answer = strings.ToLower(answer)
	return answer == "y" || answer == "yes", err
}

// installed describes the result of a set-up.
type installed struct {
	Type     string   `json:"type"` // "setup"
	Commands []string `json:"commands"`
	// Reused is set where an earlier run has installed it.
	Reused bool `json:"reused,omitempty"`
	// Added are new paths in the repository, Restored files of it that were changed and are put back.
	Added    []string `json:"added,omitempty"`
	Restored []string `json:"restored,omitempty"`
}

// dueLine describes missing dependencies, and how they are installed.
type dueLine struct {
	// What is missing, Fix what the user can do about it, Command what installs it.
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

// note returns the line for the model.
func (d dueLine) note() string {
	if d.Offline {
		return fmt.Sprintf("Not installed: %s, so that %s cannot be run here.", d.line(), d.Command)
	}
	return fmt.Sprintf("Not installed: %s. This installs it: %s", d.line(), d.Command)
}

// due returns the missing dependencies; none after a set-up.
func (j *job) due(ctx context.Context) ([]dueLine, error) {
	if j.snapshot.Installed() {
		return nil, nil
	}
	steps, err := j.dueSteps(ctx)
	return j.dueLines(steps), err
}

// dueLines describes the steps that install missing dependencies.
func (j *job) dueLines(steps []project.Step) []dueLine {
	how := "--setup auto, which runs: "
	if !j.isolated() {
		how = "--setup CMD, for example: "
	}
	var lines []dueLine
	for _, s := range steps {
		lines = append(lines, dueLine{
			What: missing(s), Fix: how + s.Command, Command: s.Command,
			Offline: j.isolated() && !j.o.Network,
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

// examine returns what looks in the sandbox for the project's Python, and for dependencies that are missing or cannot
// be used there. Where the sandbox has the machine's programs, these are known already.
func (j *job) examine() func(context.Context, env.Sandbox) ([]string, error) {
	var once sync.Once
	return func(ctx context.Context, sb env.Sandbox) ([]string, error) {
		var notes []string
		if !j.provider.Capabilities().HostToolchain {
			problems, found, err := j.examineImage(ctx, sb)
			if err != nil {
				return nil, err
			}
			once.Do(func() {
				for _, p := range problems {
					j.d.Logger().Warn(p)
				}
			})
			notes = found
		}
		if len(notes) > 0 {
			return notes, nil
		}
		python, err := project.FindPython(ctx, j.snapshot.Source, j.machine(), sb)
		if python == "" || err != nil {
			return nil, err
		}
		return []string{fmt.Sprintf("The project's Python environment is not active: run %s, from the root of the "+
			"repository, in place of python.", python)}, nil
	}
}

// examineImage looks for dependencies that an image lacks, or with which they do not work. Problems are for the user,
// notes for the model.
func (j *job) examineImage(ctx context.Context, sb env.Sandbox) (problems, notes []string, err error) {
	name, problem, err := project.ExamineVirtualEnv(ctx, j.snapshot.Source, sb)
	if err != nil {
		return nil, nil, err
	}
	if problem != "" {
		problems = append(problems, fmt.Sprintf("%s does not work in this sandbox: %s; to fix: use --env bwrap, which has "+
			"this machine's programs, or --exclude %[1]s and --setup CMD", name, problem))
		notes = append(notes, fmt.Sprintf("%s does not work here: %s.", name, problem))
	}
	if j.o.demo || j.snapshot.Installed() || len(j.containerSteps()) > 0 {
		return problems, notes, nil
	}
	due, err := project.DueInside(ctx, j.snapshot.Source, sb)
	for _, l := range j.dueLines(due) {
		problems = append(problems, fmt.Sprintf("%s; to fix: %s", l.line(), l.Fix))
		notes = append(notes, l.note())
	}
	return problems, notes, err
}
