package agentcmd

import (
	"context"
	"io"
	"io/fs"
	"net/http"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/agent/llm"
	"deepswe/env"
	"deepswe/env/forge"
)

// Deps are the dependencies of the commands.
type Deps struct {
	cli.World
	// Demo holds the demo's repository, issue and recording.
	Demo fs.FS
	// ReadTests parses the output of a test run, and returns for each test whether it passed.
	ReadTests func(log []byte) attempt.Tests
	// IsTest reports whether a path of a repository is that of a test, or of data for tests.
	IsTest func(path string) bool
	// Race plays several attempts and chooses one, for -k.
	Race func(ctx context.Context, r cli.Race) (cli.RaceResult, error)
	// InspectTrainer checks a trainer's server for doctor, and compares it with the endpoint.
	InspectTrainer func(ctx context.Context, c cli.TrainerCheck) []env.Finding
	// Training writes the steps of a training run, for view.
	Training func(out io.Writer, dir string) error
	// Glance writes the results of a run of eval or grade in a few lines, for view.
	Glance func(out io.Writer, dir string) error
	// Pages returns the pages of the runs at the paths or in folders there, for view --serve and --html.
	Pages func(prices *cli.Prices, paths ...string) (Pages, error)
}

// Pages show runs.
type Pages interface {
	http.Handler
	// WriteFile writes a run, or an attempt, as a page that needs no other file.
	WriteFile(w io.Writer, path string) error
}

// New returns the commands about a rollout.
func New(d Deps) []*cobra.Command {
	solve := solveCommand(d, new(solveOptions))
	all := []*cobra.Command{solve, newRuns(d), newApply(d), newBranch(d), newPR(d), newACP(d), newUndo(d)}
	all = append(all, newReplay(d), newView(d))
	return append(all, newTopics(solve)...)
}

// NewMachine returns the commands about this machine.
func NewMachine(d Deps) []*cobra.Command {
	return []*cobra.Command{newConfig(d), newDoctor(d), newClean(d)}
}

type solveOptions struct {
	cli.ModelFlags
	cli.SandboxFlags
	cli.CheckoutFlags

	repo      string
	repoGiven bool
	issueFile string
	demo      bool
	apply     string // how the patch is applied: applyAll or, without --apply, empty
	branch    string
	pull      string // how a pull request is opened; empty without --pr
	allow     []string
	// dockerfile is the file that the user wants an image built from.
	dockerfile string
	resume     string // the run to go on with
	further    string // the run to go on with after a further instruction
	out        string
	json       bool
	verbose    bool
	confirm    bool
	maxCost    float64
	attempts   int
	verifier   cli.VerifierFlags
	agent      cli.AgentFlags

	flags *pflag.FlagSet

	choice cli.SandboxChoice // of the flags and the configuration
}

// The values of --apply. The flag without a value means applyAll.
const (
	applyAll = "all"
	applyAsk = "ask"
)

const solveHelp = `Fix an issue in a repository.

The issue is a URL (https://HOST/OWNER/REPO/issues/N), a text, a file
(--issue-file), or standard input (-). The address of a pull request stands
for its open review threads and failed checks. The repository is the current
directory, or --repo DIR, or the one that the issue's URL belongs to. It is
copied, uncommitted changes included, into a sandbox; nothing on disk changes
without --apply or --branch, and nothing leaves the machine without --pr, which
are for work that the agent has finished. The patch goes to standard output and
to the run's directory. deepswe pr --help says what --pr does.

Dependencies that are not installed yet are installed by --setup CMD, once, in
the sandbox, which has a network for that alone: an HTTP proxy that leads
neither to this machine nor to metadata addresses. --setup auto runs what the
lock files call for; on a terminal you are asked. The result is kept for as
long as lock files and tools stay the same, and the commands are remembered
for the repository until --setup none.

With -k, several attempts run at once, and --verifier chooses one of them.
--continue goes on with a run after a further instruction, --resume with one
that did not reach its end. RUN is an id (deepswe runs lists them), a path, or
last.

The model is any OpenAI-compatible endpoint. deepswe alone finds one and writes
the configuration.

EXIT STATUS
  0 solved · 2 wrong usage · 3 finished without a patch · 4 a limit was
  reached, the patch so far is saved · 5 the endpoint failed · 6 the sandbox
  failed · 130 interrupted, the patch so far is saved`

// solveCommand returns the command, whose flags set o.
func solveCommand(d Deps, o *solveOptions) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "solve [URL | TEXT | -]",
		Short: "Fix an issue in a repository",
		Long:  solveHelp,
		Example: `  deepswe solve --demo
  deepswe solve "Latest() prefers rc.9 to rc.10" --apply
  deepswe solve https://github.com/owner/repo/issues/12
  deepswe solve https://github.com/owner/repo/issues/12 --repo . --branch fix-12
  deepswe solve https://codeberg.org/owner/repo/issues/7 --pr
  deepswe solve https://github.com/owner/repo/pull/9 --pr
  deepswe solve --issue-file issue.md -k 8 --verifier hybrid
  deepswe solve --issue-file issue.md --image python:3.12 --json`,
		Args: refuseLooseValue,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all {
				return cmd.Help()
			}
			o.keepParsed(cmd)
			return runSolve(cmd.Context(), d, o, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.repo, "repo", ".", "work on the repository in `DIR`")
	f.StringVar(&o.issueFile, "issue-file", "", "read the issue from `FILE`")
	f.BoolVar(&o.demo, "demo", false, "fix the bundled repository with recorded answers of a model")
	o.SandboxFlags.Add(cmd)
	o.CheckoutFlags.Add(cmd)
	o.AddImages(cmd)
	f.StringVar(&o.dockerfile, "dockerfile", "", "work in an image that is built from `FILE`")
	o.ModelFlags.Add(cmd)
	o.agent.Add(cmd)
	o.AddTokens(cmd, "record token ids and logprobs; every prompt is made of the `TOKENS` before it (extend), or\n"+
		"written anew by the chat template (template), as the endpoint allows (auto)")
	f.IntVarP(&o.attempts, "attempts", "k", 1, "make `N` attempts at once and choose one, by --verifier (default hybrid)")
	o.verifier.Add(cmd, "")
	f.StringVar(&o.apply, "apply", "",
		"apply the patch to the repository, all of it or nothing; ask as `HOW` shows it first")
	f.Lookup("apply").NoOptDefVal = applyAll
	f.StringVar(&o.branch, "branch", "", "commit the patch as the new branch `NAME`")
	f.StringVar(&o.pull, "pr", "", "open a draft pull request with the patch; branch, fork or agit as `HOW`")
	f.Lookup("pr").NoOptDefVal = string(forge.Auto)
	f.StringSliceVar(&o.allow, "allow", nil, "let the pull request change what needs a yes: `CLASS` (see pr --help)")
	f.StringVar(&o.resume, "resume", "", "go on with the `RUN` that was killed, interrupted or stopped by a limit")
	f.StringVar(&o.further, "continue", "", "go on with `RUN` after a further instruction, which is the argument")
	f.StringVar(&o.out, "out", "", "keep the run in `DIR`, which must not hold one yet")
	f.BoolVar(&o.confirm, "confirm", false, "ask before each command and edit; an answer can go to the model in its place")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show thoughts and outputs in full")
	f.Float64Var(&o.maxCost, "max-cost", 0, "stop when the replies have cost `AMOUNT`, by the configuration's prices")
	f.BoolVar(&o.json, "json", false, "print events as JSON lines; the last one is the result")
	f.BoolVar(&all, "help-all", false, "help for all flags")
	relateFlags(d, cmd)
	return cmd
}

// refuseLooseValue refuses --apply ask, which would mean --apply and a word of the issue: a flag whose value is
// optional takes it only after "=".
func refuseLooseValue(cmd *cobra.Command, args []string) error {
	for flag, values := range map[string][]string{
		"apply":  {applyAll, applyAsk, "true", "false"},
		"pr":     {string(forge.Auto), string(forge.Branch), string(forge.Fork), string(forge.AGit)},
		"tokens": {string(llm.Auto), string(llm.Extend), string(llm.Template)},
	} {
		for _, word := range args {
			if cmd.Flags().Changed(flag) && slices.Contains(values, word) {
				return cli.Usagef("--%s %s: to fix: --%s=%s (%q would be part of the issue)", flag, word, flag, word, word)
			}
		}
	}
	return nil
}

// relateFlags says which flags exclude each other, and completes those that name a run.
func relateFlags(d Deps, cmd *cobra.Command) {
	cmd.MarkFlagsMutuallyExclusive("dockerfile", "image")
	for _, other := range []string{"repo", "issue-file", "apply", "branch", "pr", "dockerfile", "setup"} {
		cmd.MarkFlagsMutuallyExclusive("demo", other)
	}
	for _, other := range []string{"continue", "issue-file", "demo", "out"} {
		cmd.MarkFlagsMutuallyExclusive("resume", other)
	}
	for _, other := range []string{"demo", "out"} {
		cmd.MarkFlagsMutuallyExclusive("continue", other)
	}
	for _, flag := range []string{"resume", "continue"} {
		if err := cmd.RegisterFlagCompletionFunc(flag, completeRuns(d)); err != nil {
			panic(err) // the flag does not exist: a defect of the lines above
		}
	}
}

// keepParsed remembers which flags the command line sets.
func (o *solveOptions) keepParsed(cmd *cobra.Command) {
	o.repoGiven, o.flags = o.Given("repo"), cmd.Flags()
}
