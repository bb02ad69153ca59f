package verifycmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
)

type gradeOptions struct {
	tasks       cli.TaskFlags
	sandbox     cli.SandboxFlags
	predictions string
	log         string
	ids         []string
	workers     int
	timeout     time.Duration
	repeat      int
	network     bool
	confirm     confirmFlags
	out         string
	runID       string
	json        bool
}

const gradeHelp = `Grade patches by running tests, by the rules of the official SWE-bench harness.

Each patch is applied in a fresh container of the task's image, and the task's
tests run there. Beside the harness's verdict there is a stricter one, which a
forged log, or a patch that controls its own tests, does not pass: where the
tests pass, they run once more in a fresh container, without changes that are
no part of a fix (tests, configuration, build files), and some of the tests are
wrong there. A patch is rewarded only if the wrong ones are reported as failed.
confirmation in evaluation.json says by what a reward was earned;
docs/grading.md says more.

--predictions takes a file (a JSON list, an object, or JSON lines, of
instance_id, model_name_or_path and model_patch), or one of two words: gold
grades the reference solutions, empty grades no change at all.

The directory (--out) has the harness's files under
logs/run_evaluation/RUN/MODEL/ID, with evaluation.json beside each report.json:
how long it took, what was suspicious, which tests were fixed and which broke.
MODEL.RUN.json is the summary. A second run with the same directory grades only
what has changed: patch, task, grader or limits.

--log grades one saved log instead, and starts nothing: with --json it prints
the harness's report, byte for byte.

EXIT STATUS
  0 graded, whatever the verdicts · 2 wrong usage, or a log that cannot be
  graded · 3 some could not be graded: infrastructure failures ·
  6 none could · 130 interrupted`

func newGrade(d Deps) *cobra.Command {
	var o gradeOptions
	cmd := &cobra.Command{
		Use:   "grade --tasks PATH (--predictions FILE | --log FILE)",
		Short: "Grade patches by running tests",
		Long:  gradeHelp,
		Example: `  deepswe grade --tasks verified.parquet --predictions gold --workers 8
  deepswe grade --tasks verified.parquet --predictions preds.json --out graded
  deepswe grade --tasks verified.parquet --id django__django-11099 --log log.txt`,
		Args: cli.NoArgs("--predictions"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return cli.Usage(err)
			}
			if o.log != "" {
				return gradeLog(d, o)
			}
			return gradePredictions(cmd.Context(), d, o)
		},
	}
	f := cmd.Flags()
	o.tasks.Add(cmd)
	o.sandbox.AddForTasks(cmd)
	f.StringVar(&o.predictions, "predictions", "", "predictions in `FILE`, or gold, or empty")
	f.StringVar(&o.log, "log", "", "grade the test log in `FILE` (- is standard input)")
	f.StringArrayVar(&o.ids, "id", nil, "only the task of this `ID`; may be repeated")
	f.IntVar(&o.workers, "workers", 4, "patches to grade at once")
	f.DurationVar(&o.timeout, "timeout", 0, "longest `TIME` for the tests of a patch (default: the task's own, or 30m)")
	f.IntVar(&o.repeat, "repeat", 1, "grade every patch `N` times, and report flaky tests")
	f.BoolVar(&o.network, "network", false, "open the network while tests run")
	o.confirm.add(f)
	f.StringVar(&o.out, "out", "", "keep results in `DIR`")
	f.StringVar(&o.runID, "run-id", "deepswe", "`NAME` of the run in the names of files")
	f.BoolVar(&o.json, "json", false, "print JSON lines on standard output; with --log, the report itself")
	return cmd
}

func (o *gradeOptions) check() error {
	switch {
	case o.log == "" && o.predictions == "":
		return errors.New("--predictions FILE (or gold, or empty) or --log FILE is missing")
	case o.log != "" && o.predictions != "":
		return errors.New("--log grades a saved log, --predictions grades patches: give one of them")
	case o.workers < 1:
		return errors.New("--workers must be at least 1")
	case o.repeat < 1:
		return errors.New("--repeat must be at least 1")
	case o.timeout < 0:
		return errors.New("--timeout must not be negative")
	case o.runID == "" || filepath.Base(o.runID) != o.runID || o.runID[0] == '.':
		return fmt.Errorf("invalid --run-id %q: must be a file name", o.runID)
	}
	return o.confirm.check()
}

// gradePredictions runs grade once the command line was checked.
func gradePredictions(ctx context.Context, d Deps, o gradeOptions) (err error) {
	g := &grading{session: session{d: d, lines: cli.NewJSONLines(d.Out)}, o: o}
	defer func() { err = errors.Join(err, g.close()) }()
	if err := g.prepare(ctx); err != nil {
		return err
	}
	return g.run(ctx)
}
