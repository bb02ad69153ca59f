package verifycmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"deepswe/agent/cli"
)

type rankOptions struct {
	tasks    cli.TaskFlags
	sandbox  cli.SandboxFlags
	model    cli.ModelFlags
	verifier cli.VerifierFlags

	run      []string
	recorded bool
	workers  int
	out      string
	json     bool
}

const rankHelp = `Choose one of several attempts at each task, and report what the choice is
worth.

--run takes the directory of a run of eval, a file of predictions, a directory
of such files (each one attempt at its tasks), or a directory of patches:
TASK/NAME.diff, or TASK.diff. Beside NAME.diff, NAME.json may be its trajectory.
The attempts of several runs of eval at the same tasks (--run A --run B) are
pooled.

  none    the patch that most attempts agree on
  free    the score of a judge model, which reads issue, trajectory and patch:
          P(YES) / (P(YES) + P(NO)) at the token of its answer
  exec    tests, each run on each distinct patch in a pristine sandbox: the
          repository's own that pass without a patch, and tests that the agent
          writes for the issue, on the repository alone, kept if they fail there
  hybrid  patches that break no test that passed before, of these the best half
          by score, at least three (--top), then the most regression tests
          passed, then the most reproduction tests, then the score

The model judges itself, unless --judge-url or --judge-model names another.
Scores and results are kept in the ranking's directory (--out, RUN/rank), so
that a ranking that was stopped goes on where it was, and a second one costs
nothing; --recorded asks and runs nothing at all. The directory then has
ranking.json, preds.json (the choice), and report.html: Best@k of each verifier
beside Pass@k where it is known which attempts solve their task.

Where a run of eval was given --top, --write-tests, --test, --test-parser,
--test-timeout or the judge's context, samples and pack, rank takes these over
unless they are given again.

EXIT STATUS
  0 done · 2 wrong usage · 3 some candidates were not judged or tested, because
  of infrastructure failures, or the choice was made without any scores, or test
  results, that the verifier goes by · 5 the endpoint failed · 6 the sandboxes
  failed · 130 interrupted`

func newRank(d Deps) *cobra.Command {
	var o rankOptions
	cmd := &cobra.Command{
		Use:   "rank --run PATH",
		Short: "Choose the best of several attempts",
		Long:  rankHelp,
		Example: `  deepswe rank --run runs/verified --judge-url http://gpu:8000/v1
  deepswe rank --run runs/verified --verifier free --recorded
  deepswe rank --run runs/a --run runs/b --out runs/both --verifier none
  deepswe rank --run patches/ --tasks tasks.jsonl --verifier exec`,
		Args: cli.NoArgs("--run"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return cli.Usage(err)
			}
			return runRank(cmd.Context(), d, &o, cmd.Flags())
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.run, "run", nil, "candidates at `PATH`: a run, predictions, or patches (repeat: several runs)")
	o.tasks.Add(cmd)
	f.Lookup("tasks").Usage = "tasks at `PATH` (default: those of the run)"
	o.verifier.Add(cmd, "hybrid")
	o.model.Add(cmd)
	o.sandbox.AddForTasks(cmd)
	f.BoolVar(&o.recorded, "recorded", false, "use what is on record; ask no judge and run no tests")
	f.IntVar(&o.workers, "workers", 4, "requests or sandboxes at once")
	f.StringVar(&o.out, "out", "", "keep the ranking in `DIR` (default: rank in the run's directory)")
	f.BoolVar(&o.json, "json", false, "print the ranking as JSON lines: one per task, and the summary")
	return cmd
}

func (o *rankOptions) check() error {
	switch {
	case len(o.run) == 0:
		return errors.New("--run PATH is missing")
	case len(o.run) > 1 && o.out == "":
		return errors.New("several --run require --out DIR, which keeps their ranking")
	case o.workers < 1:
		return errors.New("--workers must be at least 1")
	}
	if err := o.verifier.Check(); err != nil {
		return err
	}
	return o.model.Check()
}

// runRank runs rank once the command line was checked.
func runRank(ctx context.Context, d Deps, o *rankOptions, flags *pflag.FlagSet) (err error) {
	r := &ranker{session: session{d: d, lines: cli.NewJSONLines(d.Out)}, o: o, flags: flags}
	defer func() { err = errors.Join(err, r.close()) }()
	err = r.run(ctx)
	if cli.Interrupted(ctx, err) {
		fmt.Fprintf(d.Err, "stopped; to go on, run the same command again\n")
		return cli.Exit(cli.ExitInterrupted)
	}
	return err
}

// run ranks and prints the ranking.
func (r *ranker) run(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	rep, err := r.ranking.Run(ctx)
	if err != nil {
		return err
	}
	r.progress.plan("", 0)
	for _, note := range rep.Notes[len(r.ranking.Source.Notes):] { // the others were shown before
		r.progress.note("%s", note)
	}
	if r.o.json {
		printRankingJSON(r.lines, rep)
	} else {
		printRanking(r.d.Out, rep, r.store.Path())
	}
	if rep.Cost.Failures > 0 || len(rep.Lacks) > 0 {
		return cli.Exit(cli.ExitUnsolved)
	}
	return nil
}
