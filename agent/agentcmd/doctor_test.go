package agentcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/agent/llm/llmtest"
	"deepswe/env"
	"deepswe/env/docker"
	"deepswe/env/testkit"
)

// fake is a provider with made-up leftovers.
type fake struct {
	name string
	left []env.Leftover
	err  error

	reaped []env.ReapOptions
	closed int
}

func (f *fake) Name() string                   { return f.name }
func (f *fake) Capabilities() env.Capabilities { return env.Capabilities{} }
func (f *fake) Start(context.Context, env.Spec) (env.Sandbox, error) {
	return nil, fmt.Errorf("%w: nothing is real here", env.ErrInfrastructure)
}

func (f *fake) Prefetch(context.Context, env.Spec) error { return nil }

func (f *fake) Reap(_ context.Context, o env.ReapOptions) ([]env.Leftover, error) {
	f.reaped = append(f.reaped, o)
	return f.left, f.err
}

func (f *fake) Close() error {
	f.closed++
	return nil
}

// kind is an entry of the table behind --env.
func kind(name string, p env.Provider, err error) cli.SandboxKind {
	return cli.SandboxKind{Name: name, Images: name == cli.EnvDocker,
		Open: func(context.Context, *slog.Logger, cli.SandboxChoice) (env.Provider, error) {
			return p, err
		}}
}

// noDaemon is a machine without Docker.
func noDaemon() cli.SandboxKind { return kind(cli.EnvDocker, nil, daemonError{}) }

type daemonError struct{}

func (daemonError) Error() string { return "docker daemon: nothing listens there" }

func (daemonError) Fix() (problem, fix string) {
	return "unix:///var/run/docker.sock: nothing listens there", "sudo systemctl start docker"
}

// onMachine runs one command line on a machine with these sandboxes.
func onMachine(t *testing.T, kinds []cli.SandboxKind, vars map[string]string, args ...string) (out, errOut string,
	err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(NewMachine(Deps{World: cli.World{Out: &stdout, Err: &stderr, Getenv: environment(vars),
		Sandboxes: kinds}})...)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestClean(t *testing.T) {
	left := []env.Leftover{
		{Provider: "bwrap", Kind: "directory", ID: "/tmp/deepswe-bwrap-0123456789abcdef", Run: "r<1>", Rollout: "task/2",
			Owner: "me@host pid 12", Age: 90 * time.Second},
		{Provider: "bwrap", Kind: "cgroup", ID: "/sys/fs/cgroup/memory/deepswe-0123456789abcdef", Owner: "me@host pid 12",
			Age: 50 * time.Hour},
	}
	t.Setenv("TMPDIR", t.TempDir()) // where nobody has left anything
	for _, c := range []struct {
		name string
		args []string
		left []env.Leftover
		err  error
		want env.ReapOptions
		code int
	}{
		{name: "clean", left: left, want: env.ReapOptions{Stale: 2 * time.Minute}},
		{name: "clean-dry-run", args: []string{"--dry-run"}, left: left,
			want: env.ReapOptions{DryRun: true, Stale: 2 * time.Minute}},
		{name: "clean-json", args: []string{"--json", "--all", "--stale", "1h"}, left: left,
			want: env.ReapOptions{All: true, Stale: time.Hour}},
		{name: "clean-nothing", want: env.ReapOptions{Stale: 2 * time.Minute}},
		{name: "clean-failing", left: left[:1], err: fmt.Errorf("%w: busy", env.ErrInfrastructure),
			want: env.ReapOptions{Stale: 2 * time.Minute}, code: 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{name: "bwrap", left: c.left, err: c.err}
			kinds := []cli.SandboxKind{noDaemon(), kind("bwrap", f, nil),
				kind("host", nil, errors.New("host: not on this system"))}
			out, errOut, err := onMachine(t, kinds, nil, append([]string{"clean"}, c.args...)...)
			if cli.ExitCode(err) != c.code {
				t.Errorf("exit code %d (%v), want %d", cli.ExitCode(err), err, c.code)
			}
			testkit.Golden(t, "testdata/"+c.name+".txt", out+"--- stderr\n"+errOut)
			if diff := cmp.Diff([]env.ReapOptions{c.want}, f.reaped); diff != "" {
				t.Errorf("Reap was called with (-want +got):\n%s", diff)
			}
			if f.closed != 1 {
				t.Errorf("the provider was closed %d times", f.closed)
			}
		})
	}
	// If a daemon is named, it must be there.
	if _, _, err := onMachine(t, []cli.SandboxKind{noDaemon()}, nil, "clean", "--docker-host",
		"unix:///nowhere"); cli.ExitCode(err) != 6 {
		t.Errorf("clean of a daemon that is not there: %v, want exit code 6", err)
	}
}

func TestDoctorReports(t *testing.T) {
	bwrap := kind("bwrap", nil, errors.New("bwrap: bubblewrap is not installed"))
	bwrap.Fix = "apt-get install bubblewrap"
	kinds := []cli.SandboxKind{noDaemon(), bwrap, kind("host", &fake{name: "host"}, nil)}
	server := llmtest.New(slices.Repeat([]llmtest.Reply{llmtest.Text("Hello.")}, 8)...)
	server.Models = []llmtest.Model{{ID: "m", Context: 8192}}
	endpoint := httptest.NewServer(server)
	defer endpoint.Close()
	vars := map[string]string{"XDG_STATE_HOME": t.TempDir()}
	for name, args := range map[string][]string{"doctor": nil, "doctor-json": {"--json"}} {
		out, _, err := onMachine(t, kinds, vars, append([]string{"doctor", "--base-url", endpoint.URL + "/v1"}, args...)...)
		if cli.ExitCode(err) != 3 || err.Error() != "" {
			t.Errorf("%s: %v, want exit code 3 without further words", name, err)
		}
		testkit.Golden(t, "testdata/"+name+".txt",
			steady(regexp.MustCompile(`\d+ ms`).ReplaceAllString(strings.ReplaceAll(out, endpoint.URL, "http://h:1"), "5 ms")))
	}
}

// steady leaves out what differs between machines.
func steady(out string) string {
	var kept []string
	left := false
	for line := range strings.Lines(out) {
		continued := strings.HasPrefix(line, "          ")
		left = strings.Contains(line, "GiB free") || strings.Contains(line, "git version") || left && continued
		if !left {
			kept = append(kept, line)
		}
	}
	// The number of file systems differs, and with it the number of checks.
	last := kept[len(kept)-1]
	if strings.HasPrefix(last, "{") {
		return strings.Join(kept[:len(kept)-1], "")
	}
	return strings.Join(kept[:len(kept)-2], "")
}

func TestParseTimes(t *testing.T) {
	for said, want := range map[string]time.Duration{
		"0m0.480s 0m0.020s\n0m0.000s 0m0.000s\n": 500 * time.Millisecond, "1m1s 0m0s": 61 * time.Second, "": 0,
		"nonsense here": 0,
	} {
		if got, ok := parseTimes(said); got != want || ok != (want > 0) {
			t.Errorf("parseTimes(%q) = %v, %v, want %v", said, got, ok, want)
		}
	}
}

// openDocker opens the real daemon with a guest built for the test.
func openDocker(t *testing.T) func(context.Context, *slog.Logger, cli.SandboxChoice) (env.Provider, error) {
	t.Helper()
	testkit.Images(t, busybox)
	guest, state := testkit.Guest(t), t.TempDir()
	open := func(ctx context.Context, _ *slog.Logger, _ cli.SandboxChoice) (env.Provider, error) {
		return docker.New(ctx, docker.Options{Executable: guest, State: state})
	}
	return open
}

const busybox = "deepswe-test:busybox"

// TestDoctorTries runs against the real daemon, where every limit must be enforced.
func TestDoctorTries(t *testing.T) {
	kinds := []cli.SandboxKind{{Name: cli.EnvDocker, Images: true, Open: openDocker(t)}}
	out, _, err := onMachine(t, kinds, nil, "doctor", "--json", "--image", busybox)
	if err != nil {
		t.Errorf("doctor: exit code %d\n%s", cli.ExitCode(err), out)
	}
	status := map[string]env.Finding{}
	for line := range strings.Lines(out) {
		var f struct {
			Type string
			env.Finding
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		status[f.Check] = f.Finding
	}
	for check, want := range map[string]string{
		"docker": "Docker ", "docker sandbox": "the guest is installed", "docker network off": "no interface",
		"docker memory limit": "was killed, and recognised", "docker CPU limit": "enforced",
		"docker process limit": "enforced",
	} {
		if f := status[check]; f.Status != env.OK || !strings.Contains(f.Detail, want) {
			t.Errorf("%s: %+v, want ok and %q", check, f, want)
		}
	}
	out, _, err = onMachine(t, kinds, nil, "doctor", "--image", "127.0.0.1:1/no/such:image")
	if cli.ExitCode(err) != 3 || !strings.Contains(out, "cannot be pulled") {
		t.Errorf("doctor with an image that is not there: exit code %d\n%s", cli.ExitCode(err), out)
	}
}

// sample is a provider whose only image is the one to try, which is empty.
type sample struct {
	env.Provider
	image string
}

func (s sample) Diagnose(context.Context) []env.Finding { return nil }

func (s sample) Sample(context.Context) (env.Spec, string, error) {
	return env.Spec{Image: s.image, Dir: "/lease"}, "there is no image", nil
}

// In an image without any program, everything that needs none is tried.
func TestDoctorTriesEmpty(t *testing.T) {
	open := openDocker(t)
	p, err := open(t.Context(), nil, cli.SandboxChoice{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Prefetch(t.Context(), env.Spec{Image: busybox}); err != nil { // which makes the empty image
		t.Fatal(err)
	}
	kinds := []cli.SandboxKind{kind(cli.EnvDocker, sample{p, "deepswe-lease:1"}, nil)}
	out, _, err := onMachine(t, kinds, nil, "doctor")
	if err != nil || !strings.Contains(out, "in an empty image") || !strings.Contains(out, "there is no image") {
		t.Errorf("doctor in an empty image: exit code %d\n%s", cli.ExitCode(err), out)
	}
}
