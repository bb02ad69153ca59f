// Command deepswe fixes software issues with a language model, measures how well it does, and trains the model.
//
// This file is the composition root: it joins the commands of the *cmd packages with the streams, the environment and
// the signals of the process, and turns an error into a message and an exit code. The same binary, executed with
// guest.Arg, is the program inside a sandbox.
package main

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"deepswe/agent/agentcmd"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/env/guest"
	"deepswe/env/guest/inside"
	"deepswe/rl/pages"
	"deepswe/rl/rlcmd"
	"deepswe/rl/train/record"
	"deepswe/verify"
	"deepswe/verify/allowlist"
	"deepswe/verify/swe"
	"deepswe/verify/verifycmd"
)

// bundled is what the program brings: the demo, and example configurations of train.
//
//go:embed all:testdata/demo testdata/*.yaml
var bundled embed.FS

func main() {
	// Before anything else: a guest must start within milliseconds, and must not know any of what follows.
	if len(os.Args) > 1 && os.Args[1] == guest.Arg {
		os.Exit(inside.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(run(os.Args[1:]))
}

// run executes one command line and returns the exit code.
func run(args []string) int {
	screen := cli.NewScreen(os.Stderr)
	ctx, abandon, stop := interrupts(screen)
	defer stop()
	begun := false
	root, err := newRoot(&begun, cli.World{
		In: os.Stdin, Out: cli.Stdout{File: os.Stdout}, Err: screen, Log: cli.NewLog(screen), Getenv: os.Getenv,
		Abandon: abandon, Version: version(),
	})
	if err != nil {
		fmt.Fprintf(screen, "deepswe: %v\n", err)
		return cli.ExitInternal
	}
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	if !begun {
		err = cli.Usage(err) // an unknown command, flag or argument
	}
	if err != nil && err.Error() != "" && !errors.Is(err, cli.ErrReaderGone) {
		message := err.Error()
		if before, ok := strings.CutSuffix(message, context.Canceled.Error()); ok && ctx.Err() != nil {
			message = before + "interrupted"
		}
		cli.Say(screen, message)
	}
	return cli.ExitCode(err)
}

// echo is less than a person needs to press Ctrl-C again.
const echo = 200 * time.Millisecond

// interrupts turns the signals that ask to stop into a context that ends with the first one, and a channel that is
// closed with the second. A third one leaves at once. What comes within an echo of the one before is the same one:
// timeout(1) signals its command and then the group that the command is in.
func interrupts(errOut io.Writer) (context.Context, <-chan struct{}, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	abandon := make(chan struct{})
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A reader that goes away (| head) is an error of the write, and must not kill us before we have cleaned up. To
	// ignore the signal would be inherited by every command that we start.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		var last time.Time
		for n := 0; ; {
			select {
			case <-done:
				return
			case <-signals:
			}
			if time.Since(last) < echo {
				continue
			}
			last = time.Now()
			n++
			switch n {
			case 1:
				cli.Say(errOut, "stopping (once more to leave at once)")
				cancel()
			case 2:
				close(abandon)
			default:
				os.Exit(cli.ExitInterrupted)
			}
		}
	}()
	return ctx, abandon, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}

// newRoot makes the tree of commands. begun is set when one of them has been found and its command line accepted.
func newRoot(begun *bool, w cli.World) (*cobra.Command, error) {
	configs, err := fs.Sub(bundled, "testdata")
	if err != nil {
		return nil, err
	}
	demo, err := fs.Sub(configs, "demo")
	if err != nil {
		return nil, err
	}
	root := &cobra.Command{
		Use:           "deepswe",
		Short:         "An open coding agent that is trained, not only prompted",
		Long:          rootHelp,
		Version:       w.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(w.In)
	root.SetOut(w.Out)
	root.SetErr(w.Err)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())
	})
	agentDeps := agentDepsOf(w, demo)
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		*begun = true
		if !agentcmd.CanBegin(agentDeps) {
			return cmd.Help()
		}
		return agentcmd.Begin(cmd.Context(), agentDeps)
	}
	add(root, "Fix an issue", agentcmd.New(agentDeps)...)
	add(root, "Measure", verifycmd.New(verifycmd.Deps{World: w, WriteRollouts: record.WriteRollouts})...)
	add(root, "Look after this machine", agentcmd.NewMachine(agentDeps)...)
	add(root, "Train a model", rlcmd.New(rlcmd.Deps{World: w, Configs: configs})...)
	add(root, "Look after this machine", newVersion(w))
	root.AddCommand(newManual(root))
	for _, c := range root.Commands() {
		execute := c.RunE
		if execute == nil {
			continue // a page of the help
		}
		c.RunE = func(cmd *cobra.Command, args []string) error {
			*begun = true
			return execute(cmd, args)
		}
	}
	addBuiltins(root)
	return root, nil
}

// agentDepsOf returns what the agent's commands need from higher floors.
func agentDepsOf(w cli.World, demo fs.FS) agentcmd.Deps {
	return agentcmd.Deps{
		World: w, Demo: demo, Race: verifycmd.Race,
		ReadTests:      func(log []byte) attempt.Tests { return verify.ReadTests(log) },
		IsTest:         func(path string) bool { return allowlist.ByName(path) == allowlist.Tests },
		InspectTrainer: rlcmd.InspectTrainer(w),
		Training:       record.Overview,
		Glance:         swe.Glance,
		Pages: func(prices *cli.Prices, paths ...string) (agentcmd.Pages, error) {
			return pages.New(pages.Options{Paths: paths, Prices: prices})
		},
	}
}

// addBuiltins adds cobra's own commands, which print help and succeed when they are asked about a command that does not
// exist.
func addBuiltins(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, topic []string) error {
				_, _, err := root.Find(topic)
				return err
			}
		case "completion":
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// add puts commands under a heading of the root's help.
func add(root *cobra.Command, heading string, commands ...*cobra.Command) {
	if !root.ContainsGroup(heading) {
		root.AddGroup(&cobra.Group{ID: heading, Title: heading + ":"})
	}
	for _, c := range commands {
		c.GroupID = heading
		root.AddCommand(c)
	}
}

const rootHelp = `deepswe fixes software issues with a language model, measures how well it does,
and trains the model. (The benchmark of the same name is another project.)

Without a command, on a terminal, it says what is here and what is missing, asks
for what it needs, and writes the configuration.

EXIT STATUS
  0    solved (a patch, submitted by the agent), or done
  1    internal error
  2    wrong usage
  3    finished without a patch, or some tasks failed
  4    a limit was reached; the patch so far was saved
  5    the model endpoint failed
  6    the sandbox failed
  130  interrupted`

// newVersion makes the command that says which build this is, as a report of a bug needs it.
func newVersion(w cli.World) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version, the commit and the platform of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(w.Out, "deepswe %s\ncommit %s\n%s %s/%s\n", w.Version, commit(), runtime.Version(),
				runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// newManual makes the command that writes the manual pages of all others, for those who package deepswe.
func newManual(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write manual pages into a folder",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			root.DisableAutoGenTag = true
			for _, c := range append(root.Commands(), root) {
				c.Long = "```\n" + cmp.Or(c.Long, c.Short) + "\n```" // its lines are laid out already
			}
			// The day comes from SOURCE_DATE_EPOCH, so that two builds of a commit are alike.
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "deepswe", Manual: "deepswe"}, args[0])
		},
	}
}

// version returns that of the release, or the pseudo-version of the commit, which the go command takes from git.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// commit returns what the go command recorded of the commit: its hash, its time, and whether files differed from it.
func commit() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return "unknown"
	}
	vcs := map[string]string{}
	for _, s := range info.Settings {
		vcs[s.Key] = s.Value
	}
	if vcs["vcs.revision"] == "" {
		return "unknown (built without git)"
	}
	said := vcs["vcs.revision"] + " of " + vcs["vcs.time"]
	if vcs["vcs.modified"] == "true" {
		said += ", with changes"
	}
	return said
}
