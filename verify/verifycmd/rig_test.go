package verifycmd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"testing"

	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/docker"
	"deepswe/env/kubernetes"
	"deepswe/env/testkit"
	"deepswe/env/testkit/images"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("DEEPSWE_TEST_KUBECONFIG"); path != "" {
		if err := os.Setenv("KUBECONFIG", path); err != nil {
			panic(err)
		}
	}
	if os.Getenv("DEEPSWE_TEST_STATE") != "" {
		// The test runs this binary again, as the command.
		os.Exit(asCommand(os.Args[1:]))
	}
	images.Main(func() int {
		testkit.Main(m) // exits
		return 0
	})
}

// asCommand does what main does, as far as the tests need it.
func asCommand(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	options := func() docker.Options {
		return docker.Options{Executable: os.Getenv("DEEPSWE_TEST_GUEST"), State: os.Getenv("DEEPSWE_TEST_STATE")}
	}
	err := newRoot(deps(options, os.Stdin, os.Stdout, os.Stderr, os.Getenv), args...).ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, "deepswe:", err)
	}
	return cli.ExitCode(err)
}

// dockerOptions name the guest and the directory of Docker's state, which all tests share.
func dockerOptions(t testing.TB) docker.Options {
	t.Helper()
	return docker.Options{Executable: testkit.Guest(t), State: filepath.Join(testkit.Scratch(t), "state")}
}

// openDocker opens a provider that is closed at the end of the test.
func openDocker(t testing.TB, images ...string) env.Provider {
	t.Helper()
	testkit.Images(t, images...)
	o := dockerOptions(t)
	o.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	p, err := docker.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close the provider: %v", err)
		}
	})
	return p
}

// openKubernetes opens a provider for the cluster of DEEPSWE_TEST_KUBECONFIG, which the commands use as well.
func openKubernetes(t testing.TB) env.Provider {
	t.Helper()
	if os.Getenv("DEEPSWE_TEST_KUBECONFIG") == "" {
		testkit.Skip(t, cli.EnvKubernetes, "DEEPSWE_TEST_KUBECONFIG names no kubeconfig; .ci/run starts a cluster")
	}
	p, err := kubernetes.New(t.Context(), kubernetes.Options{Executable: testkit.Guest(t)})
	if err != nil {
		testkit.Skip(t, cli.EnvKubernetes, err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close the provider: %v", err)
		}
	})
	return p
}
