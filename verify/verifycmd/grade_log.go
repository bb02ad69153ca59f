package verifycmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/verify"
)

// maxLog is the longest log that is read.
const maxLog = 1 << 30

func gradeLog(d Deps, o gradeOptions) error {
	task, err := o.oneTask(d)
	if err != nil {
		return err
	}
	log, err := readLog(d.In, o.log)
	if err != nil {
		return cli.Usage(err)
	}
	g, err := verify.GradeLog(task, verify.Evidence{Log: log})
	if err != nil {
		return cli.Usage(err)
	}
	if o.json {
		_, err := d.Out.Write(g.Report.JSON())
		return err
	}
	verdict := verify.Unresolved
	if g.Report.Resolved {
		verdict = verify.Resolved
	}
	fmt.Fprintf(d.Out, "%s: %s\n", cli.Plain(task.ID), verdict)
	if t := g.Report.Tests; t != nil {
		fmt.Fprintf(d.Out, "FAIL_TO_PASS %d of %d pass, PASS_TO_PASS %d of %d pass\n",
			len(t.FailToPass.Success), len(t.FailToPass.Success)+len(t.FailToPass.Failure),
			len(t.PassToPass.Success), len(t.PassToPass.Success)+len(t.PassToPass.Failure))
		for _, id := range slices.Concat(t.FailToPass.Failure, t.PassToPass.Failure) {
			fmt.Fprintf(d.Out, "fails: %s\n", cli.Plain(id))
		}
	} else {
		fmt.Fprintln(d.Out, "the log does not show that tests ran")
	}
	if g.Report.InfraReason != "" {
		fmt.Fprintf(d.Out, "the environment: %s\n", g.Report.InfraReason)
	}
	for _, s := range g.Suspicious {
		fmt.Fprintf(d.Out, "suspicious: %s: %s\n", s.Kind, cli.Plain(s.Detail))
	}
	return nil
}

func (o *gradeOptions) oneTask(d Deps) (env.Task, error) {
	tasks, counts, err := o.tasks.Read(d.World)
	if err != nil {
		return env.Task{}, err
	}
	if len(o.ids) > 1 {
		return env.Task{}, cli.Usagef("a log is of one task: give --id once")
	}
	var found []env.Task
	for t, err := range tasks {
		if err != nil {
			return env.Task{}, err
		}
		if len(o.ids) == 0 || t.ID == o.ids[0] {
			found = append(found, t)
		}
		if len(found) == 2 || len(found) == 1 && len(o.ids) > 0 {
			break
		}
	}
	switch {
	case len(found) == 2:
		return env.Task{}, cli.Usagef("a log is of one task, and there are several, such as %s and %s: say which with --id",
			found[0].ID, found[1].ID)
	case len(found) == 1:
		return found[0], nil
	case len(o.ids) > 0:
		return env.Task{}, cli.Usagef("%s has no task %s", o.tasks.Path, o.ids[0])
	}
	return env.Task{}, o.tasks.NoTasks(counts)
}

func readLog(stdin io.Reader, path string) ([]byte, error) {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	log, err := io.ReadAll(io.LimitReader(in, maxLog+1))
	if err == nil && len(log) > maxLog {
		err = errors.New("the log is longer than 1 GiB")
	}
	if err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	return log, nil
}
