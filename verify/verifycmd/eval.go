package verifycmd

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/verify/swe"
)

type evalOptions struct {
	tasks    cli.TaskFlags
	sandbox  cli.SandboxFlags
	model    cli.ModelFlags
	verifier cli.VerifierFlags
	agent    cli.AgentFlags

	warm         int
	attempts     int
	workers      int
	gradeWorkers int
	modelCalls   int
	seed         uint64
	network      bool
	noGrade      bool
	gradeTimeout time.Duration
	gradeNetwork bool
	confirm      confirmFlags
	census       bool
	mutants      int
	soundOnly    bool
	out          string
	resume       bool
	json         bool
	recipe       string
	maxCost      float64
}

const evalHelp = `Let the agent work on the tasks of a dataset, and grade what it did.

Each attempt at a task has a container of its own; its patch is graded in
another one, by the rules of the official SWE-bench harness and by a stricter
reading, which a forged log does not pass. The run's directory has every
trajectory, patch and test log (rollouts/TASK/ATTEMPT), preds.json for the
official harness, and report.json: pass@k with its confidence interval, why
rollouts ended, where the time and the tokens went, and which tasks were solved
never, sometimes and always.

With --verifier, one attempt at each task is then chosen, as rank does it: see
rank --help. --temperature is then 1 unless it is given.

--context 16k,32k,64k makes the attempts once at each length, and the report has
the score against the context length. Everything else is about the largest.

--recipe deepswe is the published evaluation of DeepSWE-Preview in one flag:
temperature 1, 64k of context, 100 steps, 16 attempts, and the prompts that the
checkpoint was trained with, which are fetched by address and digest. It says
what is not bundled, and what differs. With --recipe or --max-cost, tokens,
time and cost are estimated before the rollouts start.

A run that was stopped or killed is resumed with --resume --out DIR: finished
rollouts are not repeated, and unfinished ones continue where they were.

--census checks the soundness of the tasks before anything else: it grades no
change at all, and the reference solutions, and lists the tasks that pass
without a change or fail with the solution, and those whose rewards no canary
can confirm. Then the solutions of sound tasks are made wrong, a line at a
time (--mutants), and the tests run with each: what they accept is a wrong fix
that would be rewarded. With -k 0 nothing else is done, and no model is needed.

EXIT STATUS
  0 done, whatever was solved · 2 wrong usage · 3 some attempts had an
  infrastructure failure, or --verifier had no scores, or no test results, to go
  by · 4 the cost limit was reached · 5 the endpoint failed · 6 the sandboxes
  failed · 130 interrupted`

func newEval(d Deps) *cobra.Command {
	var o evalOptions
	cmd := &cobra.Command{
		Use:   "eval --tasks PATH",
		Short: "Measure the agent on a dataset",
		Long:  evalHelp,
		Example: `  deepswe eval --tasks verified.parquet --workers 16 --out runs/verified
  deepswe eval --tasks verified.parquet --slice :50 --shuffle 1 -k 4
  deepswe eval --tasks verified.parquet -k 16 --verifier hybrid
  deepswe eval --tasks verified.parquet --context 16k,32k,64k,128k
  deepswe eval --tasks verified.parquet --recipe deepswe --workers 48
  deepswe eval --resume --out runs/verified
  deepswe eval --tasks tasks.jsonl --census -k 0`,
		Args: cli.NoArgs("--tasks"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runEval(cmd.Context(), d, &o, cmd)
		},
	}
	f := cmd.Flags()
	o.tasks.Add(cmd)
	o.sandbox.AddForTasks(cmd)
	f.IntVar(&o.warm, "warm", 0, "sandboxes to start ahead of time")
	o.model.SeveralContexts = true
	o.model.Add(cmd)
	o.model.AddTokens(cmd, "write rollouts.jsonl with token ids and logprobs; every prompt is made of the\n"+
		"`TOKENS` before it (extend), or written anew by the chat template (template), as the endpoint allows (auto)")
	o.verifier.Add(cmd, "")
	o.agent.Add(cmd)
	f.IntVarP(&o.attempts, "attempts", "k", 1, "attempts at each task")
	f.IntVar(&o.workers, "workers", 4, "rollouts at once")
	f.IntVar(&o.gradeWorkers, "grade-workers", 0, "gradings at once (0: as many as rollouts)")
	f.IntVar(&o.modelCalls, "model-calls", 0, "requests to the endpoint at once (0: as many as rollouts)")
	f.Uint64Var(&o.seed, "seed", 0,
		"sampling seed of the run; every attempt gets its own from it (default: the endpoint's)")
	f.BoolVar(&o.network, "network", false, "open the network of the agent's sandboxes")
	f.BoolVar(&o.noGrade, "no-grade", false, "collect patches and do not grade them")
	f.DurationVar(&o.gradeTimeout, "grade-timeout", 0,
		"longest `TIME` for the tests of a patch (default: the task's own, or 30m)")
	f.BoolVar(&o.gradeNetwork, "grade-network", false, "open the network while tests run")
	o.confirm.add(f)
	f.BoolVar(&o.census, "census", false, "first check the tasks: grade no change, and the reference solutions")
	f.IntVar(&o.mutants, "mutants", swe.DefaultMutants,
		"with --census: wrong solutions to try for each sound task, by which its tests are measured")
	f.BoolVar(&o.soundOnly, "sound-only", false, "leave out the tasks that the soundness check rejects")
	f.StringVar(&o.recipe, "recipe", "", "evaluate as the published `RECIPE` does, unless other flags are given: deepswe")
	f.Float64Var(&o.maxCost, "max-cost", 0, "stop when the replies have cost `AMOUNT`, by the configuration's prices")
	f.StringVar(&o.out, "out", "", "keep the run in `DIR`")
	f.BoolVar(&o.resume, "resume", false, "resume the run in the directory")
	f.BoolVar(&o.json, "json", false, "print JSON lines on standard output: one per rollout, and the report at the end")
	return cmd
}

// settled are the flags that decide about a run's results. A resumed run has the values that it began with.
var settled = []string{
	"agent", "agent-setup",
	"tasks", "filter", "slice", "shuffle", "exclude-repos-of", "image", "strict", "env",
	"model", "format", "prompt-pack", "max-steps", "context", "timeout", "command-timeout", "temperature", "tokens",
	"attempts", "verifier", "top", "judge-model", "judge-context", "judge-samples",
	"judge-pack", "test", "test-parser", "test-timeout", "write-tests",
	"seed", "network", "no-grade", "grade-timeout", "grade-network", "census", "mutants", "sound-only",
	"canary", "evidence", "odds", "training", "recipe", "compact",
}

func (o *evalOptions) check() error {
	switch {
	case o.attempts < 0:
		return errors.New("-k must not be negative")
	case o.attempts == 0 && !o.census:
		return errors.New("-k 0 makes no attempt and requires --census")
	case o.soundOnly && !o.census:
		return errors.New("--sound-only requires --census")
	case o.mutants < 0:
		return errors.New("--mutants must not be negative")
	case o.workers < 1:
		return errors.New("--workers must be at least 1")
	case o.gradeWorkers < 0 || o.modelCalls < 0 || o.warm < 0:
		return errors.New("--grade-workers, --model-calls and --warm must not be negative")
	case o.maxCost < 0:
		return errors.New("--max-cost must not be negative")
	case o.gradeTimeout < 0:
		return errors.New("--grade-timeout must not be negative")
	case o.tasks.Path == "":
		return errors.New("--tasks PATH is missing: deepswe data NAME fetches a published dataset, deepswe mine makes " +
			"one of your own repository, and --recipe deepswe is the published evaluation")
	}
	if o.verifier.Verifier != "" && o.attempts < 1 {
		return errors.New("--verifier chooses among attempts and requires -k")
	}
	return errors.Join(o.confirm.check(), o.verifier.Check(), o.model.Check(), o.agent.Check())
}

// runEval is eval from its command line to its exit code.
func runEval(ctx context.Context, d Deps, o *evalOptions, cmd *cobra.Command) (err error) {
	e := &evaluation{session: session{d: d, lines: cli.NewJSONLines(d.Out)}, o: o}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.follow(ctx, cmd.Flags()); err != nil {
		return err
	}
	if err := e.open(ctx, cmd.Flags()); err != nil {
		return err
	}
	if err := e.prepare(ctx, cmd.Flags()); err != nil {
		return err
	}
	return e.run(ctx)
}
