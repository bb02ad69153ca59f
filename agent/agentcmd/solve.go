package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/env"
	"deepswe/tools"
)

// solveOptions are the flags of solve.
type solveOptions struct {
	repo      string
	repoGiven bool
	issueFile string
	demo      bool
	model     string
	baseURL   string
	env       string
	image     string
	network   bool
	hosts     []string
	images    ImageOptions
	choice    ProviderChoice // what complete finds out about images
	maxSteps  int
	context   int
	timeout   time.Duration
	command   time.Duration
	temp      float64
	tempGiven bool
	format    string
	// formatGiven tells that the format is not to be taken from a recording.
	formatGiven bool
	promptPack  string
	apply       bool
	branch      string
	out         string
	json        bool
}

const solveHelp = `Fix an issue in a repository.

The issue is a URL (https://HOST/OWNER/REPO/issues/N), a text, a file
(--issue-file), or standard input (-). The repository is the current directory, or
--repo DIR, or the one that the issue's URL belongs to. It is copied, uncommitted
changes included, into a sandbox; nothing on disk changes unless you say --apply or
--branch, which are for work that the agent has finished. The patch goes to standard
output and to the run's directory.

The model is any OpenAI-compatible endpoint: --base-url, else DEEPSWE_BASE_URL,
OPENAI_BASE_URL, base_url in ~/.config/deepswe/config.yaml, and at last
http://localhost:8000/v1, where vLLM listens. The key is OPENAI_API_KEY.

EXIT STATUS
  0 solved · 2 wrong usage · 3 finished without a patch · 4 a limit was reached, the
  patch so far is saved · 5 the endpoint failed · 6 the sandbox failed ·
  130 interrupted, the patch so far is saved`

func newSolve(d Deps) *cobra.Command {
	var o solveOptions
	cmd := &cobra.Command{
		Use:   "solve [URL | TEXT | -]",
		Short: "Fix an issue in a repository",
		Long:  solveHelp,
		Example: `  deepswe solve --demo
  deepswe solve "Latest() prefers rc.9 to rc.10" --apply
  deepswe solve https://github.com/owner/repo/issues/12
  deepswe solve https://github.com/owner/repo/issues/12 --repo . --branch fix-12
  deepswe solve --issue-file issue.md --image python:3.12 --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			o.repoGiven, o.tempGiven, o.formatGiven = given("repo"), given("temperature"), given("format")
			return runSolve(cmd.Context(), d, o, func(o *solveOptions) (input, error) {
				if err := o.complete(given, d); err != nil {
					return input{}, err
				}
				in, err := o.input(args, d)
				return in, Usage(err)
			})
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *solveOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.repo, "repo", ".", "work on the repository in `DIR`")
	f.StringVar(&o.issueFile, "issue-file", "", "read the issue from `FILE`")
	f.BoolVar(&o.demo, "demo", false, "fix the bundled repository with recorded answers of a model")
	f.StringVar(&o.model, "model", "", "model `NAME` as the endpoint serves it, or replay:FILE")
	f.StringVar(&o.baseURL, "base-url", "", "`URL` of the OpenAI-compatible endpoint")
	f.StringVar(&o.env, "env", "auto", "sandbox: auto, docker, bwrap or host (no isolation)")
	f.StringVar(&o.image, "image", "", "container image `REF` to work in (docker)")
	f.BoolVar(&o.network, "network", false, "open the sandbox's network")
	f.StringArrayVar(&o.hosts, "docker-host", nil, "Docker daemon `ADDRESS`; may be given more than once")
	o.images.AddFlags(f)
	f.IntVar(&o.maxSteps, "max-steps", 100, "most replies of the model")
	f.IntVar(&o.context, "context", 65536, "most tokens of the conversation; less where the endpoint has less")
	f.DurationVar(&o.timeout, "timeout", 2*time.Hour, "longest `TIME` for the whole of it")
	f.DurationVar(&o.command, "command-timeout", 90*time.Second, "longest `TIME` for one command")
	f.Float64Var(&o.temp, "temperature", 0, "sampling temperature; the endpoint's own when not given")
	f.StringVar(&o.format, "format", "auto", "how the model calls tools: auto, xml or tools")
	f.StringVar(&o.promptPack, "prompt-pack", "", "prompts from the YAML `FILE`")
	f.BoolVar(&o.apply, "apply", false, "apply the patch to the repository, all of it or nothing")
	f.StringVar(&o.branch, "branch", "", "commit the patch as the new branch `NAME`")
	f.StringVar(&o.out, "out", "", "keep the run in `DIR`, which must not hold one yet")
	f.BoolVar(&o.json, "json", false, "print events as JSON lines; the last one is the result")
	cmd.MarkFlagsMutuallyExclusive("demo", "repo")
	cmd.MarkFlagsMutuallyExclusive("demo", "issue-file")
	cmd.MarkFlagsMutuallyExclusive("demo", "apply")
	cmd.MarkFlagsMutuallyExclusive("demo", "branch")
}

// complete fills the flags that were not given from the user's configuration, and checks them. The demo is the same
// everywhere: no configuration changes it.
func (o *solveOptions) complete(given func(string) bool, d Deps) error {
	var c Config
	if !o.demo {
		var err error
		if c, err = LoadConfig(d.Getenv); err != nil {
			return err
		}
		o.fill(given, c)
	}
	if err := o.images.Complete(c, &o.choice); err != nil {
		return err
	}
	switch {
	case o.maxSteps < 1:
		return Usage(errors.New("--max-steps must be at least 1"))
	case o.context < 0:
		return Usage(errors.New("--context must not be negative"))
	case o.timeout <= 0 || o.command <= 0:
		return Usage(errors.New("--timeout and --command-timeout must be positive"))
	case o.temp < 0 || o.temp > 2:
		return Usage(errors.New("--temperature must lie between 0 and 2"))
	}
	if _, err := o.actionFormat(); err != nil {
		return Usage(err)
	}
	return checkProvider(ProviderChoice{Env: o.env, Image: o.image})
}

// fill takes from the configuration what was not given.
func (o *solveOptions) fill(given func(string) bool, c Config) {
	if !given("env") {
		o.env = first(c.Env, o.env)
	}
	// Who asks for a sandbox that takes no image by name does not mean the configured one.
	if !given("image") && (o.env == envAuto || o.env == envDocker) {
		o.image = c.Image
	}
	if !given("format") {
		o.format = first(c.Format, o.format)
	}
	if !given("context") && c.Context != 0 {
		o.context = c.Context
	}
}

// actionFormat is the format that the flags ask for; nil where the model's name decides.
func (o *solveOptions) actionFormat() (agent.Format, error) {
	if o.format == "auto" {
		return nil, nil
	}
	f, ok := agent.FormatNamed(o.format)
	if !ok {
		return nil, fmt.Errorf("--format %q: choose auto, xml or tools", o.format)
	}
	return f, nil
}

func (o *solveOptions) input(args []string, d Deps) (input, error) {
	if !o.demo {
		return readInput(args, o.issueFile, d.In)
	}
	if len(args) > 0 {
		return input{}, errors.New("--demo brings its own issue: leave out the argument")
	}
	return demoIssue(d.Demo)
}

// runSolve is solve with everything about the command line behind it. What begin finds wrong is told like every other
// failure: also with --json, the last line is the result.
func runSolve(ctx context.Context, d Deps, o solveOptions, begin func(*solveOptions) (input, error)) error {
	in, err := begin(&o)
	j := &job{d: d, o: o, in: in, watch: newWatcher(d, o)}
	var report outcome
	if err == nil {
		report, err = j.work(ctx)
	} else {
		report = failed(ctx, err)
	}
	// Nothing of ours is left when the result is told.
	if cerr := j.close(); cerr != nil {
		err = errors.Join(err, cerr)
	}
	return j.end(report, err)
}

// work does the job, and tells what it came to.
func (j *job) work(ctx context.Context) (outcome, error) {
	if err := j.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			err = &codeError{code: ExitInterrupted, err: errors.New("interrupted before the first step; nothing was changed")}
		}
		return failed(ctx, err), err
	}
	result, err := j.attempt.Make(ctx, j.task, attempt.Source{Snapshot: j.snapshot}, j.dir)
	return j.finish(ctx, result, err)
}

// newAttempt says how the task is attempted.
func (j *job) newAttempt(provider env.Provider, m LiveModel) (*attempt.Attempt, error) {
	format, err := j.o.actionFormat()
	if err != nil {
		return nil, err
	}
	a := &attempt.Attempt{
		Provider: provider, Model: m.Model, ModelName: m.Name, Prompt: j.prompts.messages, Format: format,
		Limits: agent.Limits{Steps: j.o.maxSteps, Wall: j.o.timeout, Context: contextLimit(j.o.context, m.Context)},
		Tools:  tools.Options{CommandTimeout: j.o.command}, Network: j.o.network, Version: j.d.Version,
		Run: j.id, Abandon: j.d.Abandon, OnEvent: j.watch.event, OnPhase: j.watch.phase,
		OnReady: j.watch.ready, Stream: j.watch.streams(), Log: j.d.Log,
	}
	if j.o.tempGiven {
		a.Sampling.Temperature = &j.o.temp
	}
	return a, nil
}

// contextLimit is the smaller of what was asked for and what the endpoint has; 0 of either is unknown.
func contextLimit(asked, served int) int {
	if asked == 0 || served > 0 && served < asked {
		return served
	}
	return asked
}
