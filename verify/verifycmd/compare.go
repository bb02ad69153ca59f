package verifycmd

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/verify/compare"
	"deepswe/verify/plot"
)

const compareHelp = `Compare runs of eval or grade on the same tasks: pass@1, the tasks that one
solves and another does not, the exact McNemar test of the first attempts, and
the 95% bootstrap interval over tasks of the difference, with all attempts;
tokens, time and cost for each solved attempt; and why attempts ended.

RUN is a directory, or the id of a run in the default directory. Runs with other
tasks, graded by other rules or with other limits are refused, and what differs
is named; --anyway compares the tasks that they have in common.

EXIT STATUS
  0 done · 2 wrong usage, or the runs are not comparable`

type compareOptions struct {
	json, anyway bool
	html         string
	sizes        []string
}

func newCompare(d Deps) *cobra.Command {
	var o compareOptions
	cmd := &cobra.Command{
		Use:   "compare RUN RUN...",
		Short: "Compare runs on the same tasks",
		Long:  compareHelp,
		Example: `  deepswe compare runs/before runs/after
  deepswe compare --html sizes.html runs/8b runs/14b runs/mine --size mine=32`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cli.Usagef("compare takes two runs or more")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return runCompare(d, &o, args) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "print the comparison as a line of JSON")
	f.StringVar(&o.html, "html", "", "write the comparison as a page to `FILE`, too")
	f.BoolVar(&o.anyway, "anyway", false, "compare runs that are not comparable, on the tasks that they have in common")
	f.StringArrayVar(&o.sizes, "size", nil, "size of a run's model in billions of parameters, `RUN=32`, where its name "+
		"does not have it")
	return cmd
}

func runCompare(d Deps, o *compareOptions, args []string) error {
	runs, err := readRuns(d, o, args)
	if err != nil {
		return err
	}
	rep, err := compare.Compare(runs, o.anyway)
	if _, refused := errors.AsType[*compare.NotComparableError](err); refused {
		return cli.Usagef("%w\n(--anyway compares the tasks that they have in common)", err)
	}
	if err != nil {
		return err
	}
	if o.html != "" {
		if err := disk.WriteStream(o.html, rep.Page().Write); err != nil {
			return cli.Usage(err)
		}
	}
	if o.json {
		lines := cli.NewJSONLines(d.Out)
		_ = lines.Print(rep)
		return lines.Err()
	}
	return printComparison(d.Out, rep)
}

// readRuns reads the runs, with the sizes and prices of their models.
func readRuns(d Deps, o *compareOptions, args []string) ([]*compare.Run, error) {
	config, err := d.LoadConfig()
	if err != nil {
		return nil, err
	}
	var runs []*compare.Run
	for _, arg := range args {
		path := arg
		if !run.Exists(path) && run.Exists(d.RunDir(path)) {
			path = d.RunDir(path)
		}
		r, err := compare.Read(path)
		if err != nil {
			return nil, cli.Usage(err)
		}
		if price, ok := config.Prices.Of(r.Model); ok {
			r.Price = price.Cost
		}
		runs = append(runs, r)
	}
	for _, given := range o.sizes {
		name, text, _ := strings.Cut(given, "=")
		size, err := strconv.ParseFloat(text, 64)
		at := slices.IndexFunc(runs, func(r *compare.Run) bool { return r.Name == name || r.Path == name })
		if err != nil || size <= 0 || at < 0 {
			return nil, cli.Usagef("invalid --size %q: want RUN=32, of one of these runs", given)
		}
		runs[at].Size = size
	}
	return runs, nil
}

func printComparison(out io.Writer, rep *compare.Report) error {
	for _, d := range rep.Differences {
		fmt.Fprintf(out, "not comparable: %s\n", cli.Plain(d))
	}
	fmt.Fprintf(out, "%s with a verdict in all runs", cli.Plural(rep.Tasks, "task"))
	if n := len(rep.LeftOut); n > 0 {
		fmt.Fprintf(out, "; %d without are left out", n)
	}
	fmt.Fprint(out, "\n\n")
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tMODEL\tPASS@1\t95%\tTOKENS/SOLVED\tTIME\tCOST")
	for _, r := range rep.Runs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cli.Plain(r.Name), cli.Plain(r.Model),
			plot.Percent(r.Rate.Rate), plot.Interval(r.Rate.Low, r.Rate.High), compare.Each(r.Tokens, plot.Count),
			compare.Each(r.Seconds, plot.Duration), compare.Each(r.Cost, plot.Number))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range rep.Pairs {
		a, b := cli.Plain(p.A), cli.Plain(p.B)
		fmt.Fprintf(out, "\n%s against %s: %s points (95%%: %s to %s), McNemar p %s\n", b, a, compare.Points(p.Difference),
			compare.Points(p.Low), compare.Points(p.High), compare.PValue(p.P))
		fmt.Fprintf(out, "  solved by both %d, by neither %d, only by %s %d, only by %s %d\n", p.Both, p.Neither, a,
			len(p.OnlyA), b, len(p.OnlyB))
		printOnly(out, a, p.OnlyA)
		printOnly(out, b, p.OnlyB)
	}
	fmt.Fprintln(out)
	w = tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprint(w, "WHY ATTEMPTS ENDED")
	for _, r := range rep.Runs {
		fmt.Fprintf(w, "\t%s", cli.Plain(r.Name))
	}
	fmt.Fprintln(w)
	for _, stop := range rep.Stops() {
		fmt.Fprint(w, strings.ReplaceAll(stop, "_", " "))
		for _, r := range rep.Runs {
			fmt.Fprintf(w, "\t%d", r.Stops[stop])
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// mostOnly is how many of the tasks that only one run solves are named.
const mostOnly = 20

func printOnly(out io.Writer, name string, ids []string) {
	for i, id := range ids {
		if i == mostOnly {
			fmt.Fprintf(out, "  only %s: %d more (--json has all)\n", name, len(ids)-i)
			return
		}
		fmt.Fprintf(out, "  only %s: %s\n", name, cli.Plain(id))
	}
}
