package verifycmd

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/agent/llm"
	"deepswe/env"
	"deepswe/env/docker"
	"deepswe/env/kubernetes"
	"deepswe/rl/train/record"
)

// deps are those of the real program, except for Docker's options. As in main, messages and log share one locked
// screen.
func deps(options func() docker.Options, in io.Reader, out, errOut io.Writer, getenv func(string) string) Deps {
	screen := cli.NewScreen(errOut)
	log := cli.NewLog(screen)
	w := cli.World{
		In: in, Out: out, Err: screen, Log: log, Getenv: getenv, Version: "test",
		Sandboxes: []cli.SandboxKind{{Name: cli.EnvDocker, Images: true,
			Open: func(ctx context.Context, _ *slog.Logger, c cli.SandboxChoice) (env.Provider, error) {
				o := options()
				o.Hosts, o.Warm, o.Log = c.Hosts, c.Warm, log
				return docker.New(ctx, o)
			}}, {Name: cli.EnvKubernetes, Images: true,
			Open: func(ctx context.Context, _ *slog.Logger, c cli.SandboxChoice) (env.Provider, error) {
				return kubernetes.New(ctx, kubernetes.Options{
					Contexts: c.Contexts, Namespaces: c.Namespaces, Executable: options().Executable, Warm: c.Warm, Log: log,
				})
			}}},
		OpenModel: func(ctx context.Context, c cli.ModelChoice) (cli.LiveModel, error) {
			client, err := llm.New(llm.Options{BaseURL: c.BaseURL, APIKey: c.APIKey, Model: c.Model, Log: log})
			if err != nil {
				return cli.LiveModel{}, err
			}
			served, err := client.Discover(ctx)
			return cli.LiveModel{Model: client, Name: served.ID, Context: served.Context}, err
		},
	}
	return Deps{World: w, WriteRollouts: record.WriteRollouts}
}

// newRoot is the command line with the commands of this package only.
func newRoot(d Deps, args ...string) *cobra.Command {
	root := &cobra.Command{Use: "deepswe", SilenceUsage: true, SilenceErrors: true}
	root.SetIn(d.In)
	root.SetOut(d.Out)
	root.SetErr(d.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usage(err) })
	root.AddCommand(New(d)...)
	root.SetArgs(args)
	return root
}

// outcome is what a command returned and printed.
type outcome struct {
	code        int
	out, errOut string
}

// deepswe runs a command line.
func deepswe(t testing.TB, args ...string) outcome {
	t.Helper()
	return deepsweWith(t, "", nil, args...)
}

func deepsweWith(t testing.TB, stdin string, environment map[string]string, args ...string) outcome {
	t.Helper()
	var out, errOut bytes.Buffer
	d := deps(func() docker.Options { return dockerOptions(t) }, strings.NewReader(stdin), &out, &errOut,
		func(key string) string { return environment[key] })
	err := newRoot(d, args...).ExecuteContext(t.Context())
	if err != nil && err.Error() != "" {
		errOut.WriteString("deepswe: " + err.Error() + "\n")
	}
	return outcome{cli.ExitCode(err), out.String(), errOut.String()}
}
