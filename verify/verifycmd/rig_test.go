package verifycmd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/docker"
)

// rig is what the tests of a run share.
type rig struct {
	guest string // the guest's binary
	state string // where the docker provider keeps its notes
	err   error
}

// shared is set before the tests run and only read by them.
var shared rig

func TestMain(m *testing.M) {
	if guest := os.Getenv("DEEPSWE_TEST_COMMAND"); guest != "" {
		// A test runs this binary again, as the command.
		shared = rig{guest: guest, state: os.Getenv("DEEPSWE_TEST_STATE")}
		os.Exit(asCommand(os.Args[1:]))
	}
	dir, err := os.MkdirTemp("", "deepswe-verifycmd-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shared = buildGuest(dir)
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left over:", err)
			code = 1
		}
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// asCommand is what main does, as far as tests need it.
func asCommand(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := newRoot(deps(os.Stdin, os.Stdout, os.Stderr, os.Getenv), args...).ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, "deepswe:", err)
	}
	return cli.ExitCode(err)
}

// buildGuest builds a static program that can be a guest: this one is not static under the race detector.
func buildGuest(dir string) rig {
	r := rig{guest: os.Getenv("DEEPSWE_TEST_GUEST"), state: filepath.Join(dir, "state")}
	if r.guest != "" {
		return r
	}
	r.guest = filepath.Join(dir, "guest")
	build := exec.Command("go", "build", "-trimpath", "-o", r.guest, "../../env/docker/testdata/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		r.err = fmt.Errorf("building the guest: %w\n%s", err, out)
	}
	return r
}

// needDocker skips a test where there is no daemon, or no image.
func needDocker(t testing.TB, images ...string) {
	t.Helper()
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	reason := ""
	if out, err := exec.CommandContext(t.Context(), "docker", "version").CombinedOutput(); err != nil {
		reason = fmt.Sprintf("needs a Docker daemon: %v: %s", err, out)
	}
	for _, image := range images {
		if reason == "" && exec.CommandContext(t.Context(), "docker", "image", "inspect", image).Run() != nil {
			reason = "needs the image " + image + ", which .ci/run builds"
		}
	}
	switch {
	case reason == "":
	case slices.Contains(strings.Split(os.Getenv("DEEPSWE_TEST_REQUIRE"), ","), "docker"):
		t.Fatalf("%s (DEEPSWE_TEST_REQUIRE names docker)", reason)
	default:
		t.Skip(reason)
	}
}

// openDocker opens a provider that is closed at the end of the test.
func openDocker(t testing.TB, images ...string) env.Provider {
	t.Helper()
	needDocker(t, images...)
	p, err := docker.New(t.Context(), docker.Options{
		Executable: shared.guest, State: shared.state, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
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
