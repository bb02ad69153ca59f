package agentcmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/repo"
	"deepswe/tools"
)

const replayHelp = `Run a recorded trajectory's actions again, in a fresh sandbox, and show where
the results differ from the recorded ones. Times, addresses and temporary names
do not count as differences.

The repository is the current directory or --repo DIR, in the state that the
recording began with; with --image and --dir it is the one in the image.

EXIT STATUS
  0 all results are the recorded ones · 3 some differ · 6 the sandbox failed`

type replayOptions struct {
	cli.SandboxFlags
	repo    string
	dir     string
	demo    bool
	timeout time.Duration
	json    bool
}

func newReplay(d Deps) *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:     "replay TRAJECTORY",
		Short:   "Run a recorded trajectory's actions again and show differences",
		Long:    replayHelp,
		Example: "  deepswe replay trajectory.json --repo .\n  deepswe replay steps.jsonl --image python:3.12 --dir /testbed",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 && !o.demo {
				return cli.Usagef("replay takes one trajectory: a trajectory.json or a steps.jsonl")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runReplay(cmd.Context(), d, o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.repo, "repo", ".", "the repository in `DIR`")
	o.Add(cmd)
	f.StringVar(&o.dir, "dir", "", "the repository is in the image, at `PATH`")
	f.BoolVar(&o.demo, "demo", false, "replay the bundled demo")
	cli.AddCommandTimeout(cmd, &o.timeout)
	f.BoolVar(&o.json, "json", false, "print a JSON line for every call; the last one is the result")
	return cmd
}

func runReplay(ctx context.Context, d Deps, o replayOptions, args []string) (err error) {
	choice := cli.SandboxChoice{Env: o.Env, Image: o.Image, Demo: o.demo, Places: o.Places}
	open := &opened{d: d}
	defer open.closeAll()
	var rec *trajectory.Recording
	if o.demo {
		rec, err = openDemo(d.Demo)
	} else {
		rec, err = trajectory.Open(args[0])
	}
	if err != nil {
		return cli.Usage(err)
	}
	if err := choice.Check(); err != nil {
		return err
	}
	// Everything that needs no model is the same as in solve.
	s := &solving{d: d, o: &solveOptions{SandboxFlags: o.SandboxFlags, repo: o.repo, demo: o.demo, choice: choice}}
	s.watch = &jsonWatcher{cli.NewJSONLines(io.Discard)}
	job, err := s.openTask(ctx, input{}, open)
	if err != nil {
		return err
	}
	job.id = d.RunID()
	at, err := s.openPlace(ctx, job, o.dir == "", open)
	if err != nil {
		return err
	}
	spec := env.Spec{Image: o.Image, Dir: o.dir, Network: o.Network, Run: job.id, Rollout: "replay"}
	if at.snapshot != nil {
		at.snapshot.Place(&spec)
	}
	sb, err := at.provider.Start(ctx, spec)
	if err != nil {
		return fmt.Errorf("start sandbox: %w", err)
	}
	defer func() { err = errors.Join(err, sb.Close(context.WithoutCancel(ctx))) }()
	return compare(ctx, d, o, rec, sb)
}

// compared is a line of --json.
type compared struct {
	Type     string            `json:"type"` // "call"
	Step     int               `json:"step"`
	Tool     string            `json:"tool"`
	Args     map[string]string `json:"args"`
	Same     bool              `json:"same"`
	Recorded string            `json:"recorded,omitempty"`
	Got      string            `json:"got,omitempty"`
}

// replayed is the last line of --json.
type replayed struct {
	Type      string `json:"type"` // "result"
	Version   int    `json:"version"`
	Calls     int    `json:"calls"`
	Different int    `json:"different"`
	ExitCode  int    `json:"exit_code"`
}

func compare(ctx context.Context, d Deps, o replayOptions, rec *trajectory.Recording, sb env.Sandbox) error {
	sum := replayed{Type: "result", Version: 1}
	lines := cli.NewJSONLines(d.Out)
	set := tools.New(tools.Options{CommandTimeout: o.timeout, Native: rec.Header.Format == trajectory.FormatTools})
	for c, err := range agent.Rerun(ctx, rec, set, sb) {
		if err != nil {
			return err
		}
		sum.Calls++
		if !c.Same {
			sum.Different++
		}
		if o.json {
			line := compared{Type: "call", Step: c.Step, Tool: c.Call.Name, Args: c.Call.Args, Same: c.Same}
			if !c.Same {
				line.Recorded, line.Got = c.Recorded.Output, c.Got.Output
			}
			if err := lines.Print(line); err != nil {
				return err
			}
			continue
		}
		if err := printComparison(ctx, d, c, sb.Dir()); err != nil {
			return err
		}
	}
	if sum.Different > 0 {
		sum.ExitCode = cli.ExitUnsolved
	}
	var err error
	if o.json {
		err = lines.Print(sum)
	} else {
		_, err = fmt.Fprintf(d.Out, "%d calls, %d with another result than recorded\n", sum.Calls, sum.Different)
	}
	return cmp.Or(err, cli.Exit(sum.ExitCode))
}

func printComparison(ctx context.Context, d Deps, c agent.Comparison, dir string) error {
	mark := "same"
	if !c.Same {
		mark = "DIFFERENT"
	}
	fmt.Fprintf(d.Out, "%3d  %-9s  %s\n", c.Step, mark, cli.Cut(describe(&c.Call, dir), 64))
	if c.Same {
		return nil
	}
	diff, err := repo.Compare(ctx, []byte(c.Recorded.Output), []byte(c.Got.Output))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(diff) {
		fmt.Fprintln(d.Out, "     "+cli.Plain(strings.TrimRight(string(line), "\r\n")))
	}
	return nil
}
