package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/forge"
	"deepswe/env/project"
	"deepswe/env/repo"
)

// assignment is what a run works on.
type assignment struct {
	id, run string // the run's ID, and its directory
	issue   string // its address; empty for a text
	task    env.Task
	target  string // the repository on this machine; empty until it is cloned
	// clone clones the repository, and returns its path; nil if it is on this machine already.
	clone func(ctx context.Context) (string, error)
	test  testCommand
	past  *resumed // the run that is continued; nil for a new one
}

// admit checks all that the command line names before the endpoint is asked or anything is cloned or copied.
func (s *solving) admit(ctx context.Context, args []string, open *opened) (*assignment, error) {
	var past *resumed
	var err error
	if s.o.resume != "" || s.o.further != "" {
		if past, err = s.takeUp(args, open); err != nil {
			return nil, err
		}
	}
	if err := s.o.completeFlags(s.d.World); err != nil {
		return nil, err
	}
	in, err := s.o.readIssue(args, past, s.d)
	if err != nil {
		return nil, cli.Usage(err)
	}
	if err := s.findOrigin(ctx, &in); err != nil {
		return nil, err
	}
	if err := s.checkInput(ctx, in); err != nil {
		return nil, err
	}
	if err := s.checkPull(ctx, in); err != nil {
		return nil, cli.Usage(err)
	}
	a, err := s.openTask(ctx, in, open)
	if err != nil {
		return nil, err
	}
	if a.past = past; past != nil {
		a.id, a.run = past.Manifest.ID, past.path
		a.task.ID, a.task.Source, a.task.Statement = past.settings.Task, past.settings.Source, past.settings.Statement
	} else if a.id, a.run, err = s.nameRun(); err != nil {
		return nil, cli.Usage(err)
	}
	if a.clone != nil {
		return a, nil
	}
	if err := s.checkTree(ctx, a.target); err != nil {
		return nil, err
	}
	a.test, err = s.findTest(a.target)
	return a, err
}

// checkInput validates what the command line names.
func (s *solving) checkInput(ctx context.Context, in input) error {
	if _, err := exec.LookPath("git"); err != nil {
		return cli.Usage(repo.ErrNoGit)
	}
	if _, err := exec.LookPath("go"); err != nil && s.o.demo && s.o.Image == "" {
		return cli.Usagef("the demo's tests are Go tests: install Go, or put its go command on PATH")
	}
	if info, err := os.Stat(s.o.dockerfile); s.o.dockerfile != "" && (err != nil || !info.Mode().IsRegular()) {
		return cli.Usage(cmp.Or(err, fmt.Errorf("--dockerfile %s is not a file", s.o.dockerfile)))
	}
	if s.o.demo || in.url != "" && !s.o.repoGiven {
		return nil // the repository is still to come
	}
	if info, err := os.Stat(s.o.repo); err != nil {
		return cli.Usagef("--repo: %w", err)
	} else if !info.IsDir() {
		return cli.Usagef("--repo %s is not a directory", s.o.repo)
	}
	if s.o.branch != "" {
		return cli.Usage(repo.CheckBranch(ctx, s.o.repo, s.o.branch))
	}
	return nil
}

// checkPull checks, if a pull request is asked for, that git knows the author, and that there is a forge with a
// token.
func (s *solving) checkPull(ctx context.Context, in input) error {
	if s.o.pull == "" {
		return nil
	}
	dir := s.o.repo
	if in.url != "" && !s.o.repoGiven {
		dir = os.TempDir()
	}
	if _, _, err := repo.Identity(ctx, dir); err != nil {
		return err
	}
	to, err := pullTarget(ctx, in.url, dir)
	if err != nil {
		return err
	}
	client, err := openForge(s.d)
	if err != nil {
		return err
	}
	return client.CheckToken(ctx, to)
}

// nameRun chooses the run's ID and its directory: the one that --out names, or a new one in the default location.
func (s *solving) nameRun() (id, path string, err error) {
	id = cmp.Or(s.id, s.d.RunID())
	path, err = filepath.Abs(cmp.Or(s.o.out, s.d.RunDir(id)))
	if err == nil && run.Exists(path) {
		err = fmt.Errorf("%s holds a run already: choose another --out", path)
	}
	return id, path, err
}

// checkTree warns of uncommitted changes if a branch is asked for, because the branch will not contain them.
func (s *solving) checkTree(ctx context.Context, target string) error {
	if s.o.branch == "" || s.o.demo {
		return nil
	}
	changed, err := repo.Modified(ctx, target)
	if err != nil || len(changed) == 0 {
		return err
	}
	s.d.Logger().Warn("the repository has uncommitted changes, which the branch will not hold: where the fix touches "+
		"the same lines, it cannot be committed; commit or stash them first",
		"files", cli.Cut(strings.Join(changed, " "), 200))
	return nil
}

// completeFlags fills the flags that were not given from the user's configuration, and checks them. The demo is the
// same everywhere: no configuration changes it.
func (o *solveOptions) completeFlags(w cli.World) error {
	var c cli.Config
	var err error
	if !o.demo {
		if c, err = w.LoadConfig(); err != nil {
			return err
		}
		o.fillFrom(c)
	}
	if err := o.checkDelivery(w); err != nil {
		return err
	}
	if o.choice, err = o.Choice(c); err != nil {
		return err
	}
	o.choice.Demo = o.demo
	o.choice.ImageLater = !o.demo && (o.Env == cli.EnvAuto || o.Env == cli.EnvDocker)
	if o.dockerfile != "" && !o.choice.ImageLater {
		return cli.Usagef("--dockerfile requires --env docker")
	}
	return errors.Join(o.checkRace(), o.checkSetup(), o.Check(), o.checkAgent(), o.choice.Check())
}

// checkDelivery checks the flags about delivering the patch, and that questions can be asked if they are needed.
func (o *solveOptions) checkDelivery(w cli.World) error {
	switch o.apply {
	case "", applyAll, applyAsk:
	case "true":
		o.apply = applyAll
	case "false":
		o.apply = ""
	default:
		return cli.Usagef("invalid --apply=%s: choose all or ask", o.apply)
	}
	if err := (pullOptions{via: cmp.Or(o.pull, string(forge.Auto)), allow: o.allow}).checkFlags(); err != nil {
		return err
	}
	if o.maxCost < 0 {
		return cli.Usagef("--max-cost must not be negative")
	}
	if (o.apply == applyAsk || o.confirm) && (o.json || !interactive(w)) {
		return cli.Usagef("--apply=ask and --confirm require a terminal, and no --json: there is nobody to ask here")
	}
	return nil
}

// checkAgent refuses flags that only deepswe's own agent supports.
func (o *solveOptions) checkAgent() error {
	if !o.agent.Own() && (o.demo || o.resume != "" || o.further != "" || o.confirm || o.maxCost > 0) {
		return cli.Usagef("--agent %s does not go with --demo, --resume, --continue, --confirm and --max-cost", o.agent.Name)
	}
	return o.agent.Check()
}

// checkRace validates the flags of several attempts.
func (o *solveOptions) checkRace() error {
	switch {
	case o.attempts < 1:
		return cli.Usagef("-k must be at least 1")
	case o.attempts == 1 && o.verifier.Verifier != "":
		return cli.Usagef("--verifier chooses among attempts and requires -k 2 or more")
	case o.attempts > 1 && (o.demo || o.resume != "" || o.further != ""):
		return cli.Usagef("-k does not go with --demo, --resume or --continue")
	case o.attempts > 1 && o.confirm:
		return cli.Usagef("-k does not go with --confirm: nobody can answer for several attempts at once")
	}
	if o.attempts > 1 && o.verifier.Verifier == "" {
		o.verifier.Verifier = "hybrid"
	}
	if o.verifier.Parser != "" {
		o.verifier.Command = o.Test // without a parser, verifiers look for the tests themselves
	}
	return o.verifier.Check()
}

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

// fillFrom sets the flags that were not given to the configured values.
func (o *solveOptions) fillFrom(c cli.Config) {
	if !o.Given("env") {
		o.Env = cmp.Or(c.Env, o.Env)
	}
	// The configured image does not apply if --env names a sandbox that takes no image.
	if !o.Given("image") && (o.Env == cli.EnvAuto || o.Env == cli.EnvDocker) {
		o.Image = c.Image
	}
	if !o.Given("format") {
		o.Format = cmp.Or(c.Format, o.Format)
	}
	if !o.Given("context") && c.Context != 0 {
		o.Context = int(c.Context)
	}
}

// readIssue returns the issue that the command line names, or that of the run that is continued.
func (o *solveOptions) readIssue(args []string, past *resumed, d Deps) (input, error) {
	switch {
	case past != nil:
		return input{text: past.settings.Statement, url: past.settings.Issue}, nil
	case !o.demo:
		return readInput(args, o.issueFile, d.In)
	case len(args) > 0:
		return input{}, errors.New("--demo brings its own issue: leave out the argument")
	}
	data, err := fs.ReadFile(d.Demo, demoStatement)
	return input{text: string(data)}, err
}

// autoTest is the value of --test that stands for the tests found in the project's files.
const autoTest = "auto"

// testCommand is the command that runs the project's tests. If it was found, it runs in the user's folder.
type testCommand struct {
	line  string // empty if there is none
	found bool
}

// findTest returns the command of --test, or the one that it finds if the flag is auto.
func (s *solving) findTest(target string) (testCommand, error) {
	if s.o.Test != autoTest {
		return testCommand{line: s.o.Test}, nil
	}
	line := project.TestCommand(target, project.FindMachine(s.d.Getenv), nil)
	if line == "" {
		return testCommand{}, cli.Usagef("--test auto finds no tests in %s: name the command that runs them", target)
	}
	return testCommand{line, true}, nil
}
