package rlcmd

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/spf13/pflag"

	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/dataset"
	"deepswe/verify/rank/examples"
	"deepswe/verify/rank/judge"
	"deepswe/verify/rank/ranking"
)

// judgeOptions are the flags of --format verifier.
type judgeOptions struct {
	tasks    string
	evalSets []string
	pack     string
}

func (o *judgeOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.tasks, "tasks", "", "verifier: tasks at `PATH` (default: those of the run)")
	f.StringArrayVar(&o.evalSets, "eval-set", nil, "verifier: leave out the tasks at `PATH`; may be repeated")
	f.StringVar(&o.pack, "judge-pack", "", "verifier: what the judge is told, from the YAML `FILE`")
}

// verifier writes the training set of a judge.
func (x *export) verifier(ctx context.Context, changed func(string) bool) error {
	if err := x.applies(changed); err != nil {
		return cli.Usage(err)
	}
	switch {
	case x.run == "":
		return cli.Usagef("--format verifier reads the trajectories of a run: give --run DIR")
	case x.maxLength < 0:
		return cli.Usagef("--max-length is %d; it must be positive, or 0 for %d", x.maxLength, judge.DefaultContext)
	}
	source, err := ranking.Read(x.run)
	if err != nil {
		return cli.Usage(err)
	}
	o := examples.Options{Context: x.maxLength, Tasks: map[string]env.Task{}}
	if o.Pack, err = judge.Builtin(); x.judge.pack != "" {
		o.Pack, err = judge.Load(x.judge.pack)
	}
	if err != nil {
		return cli.Usage(err)
	}
	for _, path := range x.judge.evalSets {
		if err := eachTask(path, true, o.Held.Add); err != nil {
			return cli.Usage(err)
		}
	}
	tasks := cmp.Or(x.judge.tasks, source.Setting("tasks"))
	if tasks == "" {
		return cli.Usagef("%s does not say which tasks it is of: give --tasks PATH", x.run)
	}
	wanted := map[string]bool{}
	for _, set := range source.Tasks {
		wanted[set.Task] = true
	}
	err = eachTask(tasks, false, func(t env.Task) {
		if wanted[t.ID] {
			o.Tasks[t.ID] = t
		}
	})
	if err != nil {
		return cli.Usage(err)
	}
	return x.write(func(w io.Writer) error {
		rep, err := examples.Write(ctx, w, source, o)
		if err == nil {
			x.reportExamples(rep)
		}
		return err
	})
}

// eachTask reads the tasks at the path. Records that cannot be understood are left out, unless strict is set: nothing
// of an evaluation set may be overlooked.
func eachTask(path string, strict bool, do func(env.Task)) error {
	for t, err := range dataset.Read(path, dataset.Options{Strict: strict}) {
		if _, bad := errors.AsType[*dataset.RecordError](err); bad && !strict {
			continue
		}
		if err != nil {
			return err
		}
		do(t)
	}
	return nil
}

// reportExamples prints how many examples were written, and why other candidates did not become one.
func (x *export) reportExamples(r examples.Report) {
	x.say("%s of %s, half of them YES", cli.Plural(r.Examples, "example"), cli.Plural(r.Tasks, "task"))
	for _, left := range []struct {
		n    int
		says string
	}{
		{r.HeldOut, "tasks are left out, because they are of an evaluation set"},
		{r.Unknown, "tasks are left out, because the dataset does not have them"},
		{r.OneSided, "tasks are left out, because all of their attempts solve them or none does"},
		{r.Untold, "attempts were not graded"},
		{r.Empty, "attempts changed nothing"},
		{r.Twice, "attempts have the patch of another one"},
		{r.Contradicted, "patches solve their task once and not another time, and are left out"},
		{r.Blind, "attempts have no trajectory that can be read"},
		{r.TooLong, "attempts do not fit into the judge's context, even condensed"},
		{r.Unmatched, "attempts are left out, so that as many solve a task as do not"},
	} {
		if left.n > 0 {
			x.say("  %d %s", left.n, left.says)
		}
	}
	if len(x.judge.evalSets) == 0 {
		x.say("no --eval-set was given: only tasks of the repositories of SWE-bench were held out")
	}
}
