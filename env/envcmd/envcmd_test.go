package envcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"deepswe/env"
	"deepswe/env/docker"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares what a command printed with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// fake is a provider whose leftovers and sandboxes are made up.
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

// noDaemon is what a machine without Docker answers.
func noDaemon(context.Context, []string) (env.Provider, error) { return nil, daemonError{} }

type daemonError struct{}

func (daemonError) Error() string { return "docker daemon: nothing listens there" }

func (daemonError) Fix() (problem, fix string) {
	return "unix:///var/run/docker.sock: nothing listens there", "sudo systemctl start docker"
}

// execute runs one command line.
func execute(t *testing.T, d Deps, args ...string) (out, errOut string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	d.Out, d.Err = &stdout, &stderr
	root := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(New(d)...)
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	err = root.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// code is the exit code that main would use.
func code(err error) int {
	var coder interface{ ExitCode() int }
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coder):
		return coder.ExitCode()
	}
	return 1
}

func TestClean(t *testing.T) {
	left := []env.Leftover{
		{Provider: "bwrap", Kind: "directory", ID: "/tmp/deepswe-bwrap-0123456789abcdef", Run: "r<1>", Rollout: "task/2", Owner: "me@host pid 12", Age: 90 * time.Second},
		{Provider: "bwrap", Kind: "cgroup", ID: "/sys/fs/cgroup/memory/deepswe-0123456789abcdef", Owner: "me@host pid 12", Age: 50 * time.Hour},
	}
	for _, c := range []struct {
		name string
		args []string
		left []env.Leftover
		err  error
		want env.ReapOptions
		code int
	}{
		{name: "clean", left: left, want: env.ReapOptions{Stale: 2 * time.Minute}},
		{name: "clean-dry-run", args: []string{"--dry-run"}, left: left, want: env.ReapOptions{DryRun: true, Stale: 2 * time.Minute}},
		{name: "clean-json", args: []string{"--json", "--all", "--stale", "1h"}, left: left, want: env.ReapOptions{All: true, Stale: time.Hour}},
		{name: "clean-nothing", want: env.ReapOptions{Stale: 2 * time.Minute}},
		{name: "clean-failing", left: left[:1], err: fmt.Errorf("%w: busy", env.ErrInfrastructure), want: env.ReapOptions{Stale: 2 * time.Minute}, code: 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{name: "bwrap", left: c.left, err: c.err}
			d := Deps{Docker: noDaemon, Local: []Local{
				{Name: "bwrap", Open: func() (env.Provider, error) { return f, nil }},
				{Name: "host", Open: func() (env.Provider, error) { return nil, errors.New("not on this system") }},
			}}
			out, errOut, err := execute(t, d, append([]string{"clean"}, c.args...)...)
			if code(err) != c.code {
				t.Errorf("exit code %d (%v), want %d", code(err), err, c.code)
			}
			golden(t, c.name+".txt", out+"--- stderr\n"+errOut)
			if diff := cmp.Diff([]env.ReapOptions{c.want}, f.reaped); diff != "" {
				t.Errorf("Reap was called with (-want +got):\n%s", diff)
			}
			if f.closed != 1 {
				t.Errorf("the provider was closed %d times", f.closed)
			}
		})
	}
	// A daemon that was named must be there.
	if _, _, err := execute(t, Deps{Docker: noDaemon}, "clean", "--docker-host", "unix:///nowhere"); code(err) != 6 {
		t.Errorf("clean of a daemon that is not there: %v, want exit code 6", err)
	}
}

func TestDoctorReports(t *testing.T) {
	d := Deps{
		Docker: noDaemon,
		Local: []Local{
			{Name: "bwrap", Fix: "apt-get install bubblewrap", Open: func() (env.Provider, error) { return nil, errors.New("bubblewrap is not installed") }},
			{Name: "host", Open: func() (env.Provider, error) { return &fake{name: "host"}, nil }},
		},
		Endpoint: func(_ context.Context, url, model string) []env.Finding {
			return []env.Finding{
				{Check: "endpoint", Status: env.OK, Detail: url + " answers"},
				{Check: "model", Status: env.Warning, Detail: model + ": a context of 8192 tokens is short for an agent, and this explanation is long enough to be wrapped", Fix: "vllm serve --max-model-len 65536"},
			}
		},
	}
	for name, args := range map[string][]string{"doctor": nil, "doctor-json": {"--json"}} {
		out, _, err := execute(t, d, append([]string{"doctor", "--base-url", "http://h:1/v1", "--model", "m"}, args...)...)
		if code(err) != 3 || err.Error() != "" {
			t.Errorf("%s: %v, want exit code 3 without further words", name, err)
		}
		golden(t, name+".txt", steady(out))
	}
}

// steady leaves out what differs from machine to machine.
func steady(out string) string {
	var kept []string
	for line := range strings.Lines(out) {
		for _, varying := range []string{"GiB free", "git version"} {
			if i := strings.Index(line, varying); i >= 0 {
				line = line[:0]
			}
		}
		if line != "" {
			kept = append(kept, line)
		}
	}
	// How many file systems there are differs, and with it the number of checks.
	last := kept[len(kept)-1]
	if strings.HasPrefix(last, "{") {
		return strings.Join(kept[:len(kept)-1], "")
	}
	return strings.Join(kept[:len(kept)-2], "")
}

func TestWrap(t *testing.T) {
	long := "https://a.very.long/address/that/cannot/be/broken"
	got := wrap("one two three "+long+" four", 10)
	if diff := cmp.Diff([]string{"one two", "three", long, "four"}, got); diff != "" {
		t.Errorf("wrap (-want +got):\n%s", diff)
	}
}

func TestParseTimes(t *testing.T) {
	for said, want := range map[string]time.Duration{
		"0m0.480s 0m0.020s\n0m0.000s 0m0.000s\n": 500 * time.Millisecond, "1m1s 0m0s": 61 * time.Second, "": 0, "nonsense here": 0,
	} {
		if got, ok := parseTimes(said); got != want || ok != (want > 0) {
			t.Errorf("parseTimes(%q) = %v, %v, want %v", said, got, ok, want)
		}
	}
}

// openDocker opens the real daemon, with a guest that is built for the test.
func openDocker(t *testing.T) func(context.Context, []string) (env.Provider, error) {
	t.Helper()
	guest := filepath.Join(t.TempDir(), "guest")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", guest, "../docker/testdata/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the guest: %v\n%s", err, out)
	}
	state := t.TempDir()
	open := func(ctx context.Context, hosts []string) (env.Provider, error) {
		return docker.New(ctx, docker.Options{Hosts: hosts, Executable: guest, State: state})
	}
	if err := exec.CommandContext(t.Context(), "docker", "image", "inspect", busybox).Run(); err != nil {
		if slices.Contains(strings.Split(os.Getenv("DEEPSWE_TEST_REQUIRE"), ","), "docker") {
			t.Fatal(err)
		}
		t.Skip("needs Docker and the test images: ", err)
	}
	return open
}

const busybox = "deepswe-test:busybox"

// TestDoctorTries runs against the real daemon: every limit has to bite.
func TestDoctorTries(t *testing.T) {
	d := Deps{Docker: openDocker(t)}
	out, _, err := execute(t, d, "doctor", "--json", "--image", busybox)
	if err != nil {
		t.Errorf("doctor: exit code %d\n%s", code(err), out)
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
		"docker memory limit": "was killed, and recognised", "docker CPU limit": "bites", "docker process limit": "bites",
	} {
		if f := status[check]; f.Status != env.OK || !strings.Contains(f.Detail, want) {
			t.Errorf("%s: %+v, want ok and %q", check, f, want)
		}
	}
	out, _, err = execute(t, d, "doctor", "--image", "127.0.0.1:1/no/such:image")
	if code(err) != 3 || !strings.Contains(out, "cannot be pulled") {
		t.Errorf("doctor with an image that is not there: exit code %d\n%s", code(err), out)
	}
}

// sample is a provider that has only the image that it is told of to try, and that image is empty.
type sample struct {
	env.Provider
	image string
}

func (s sample) Diagnose(context.Context) []env.Finding { return nil }

func (s sample) Sample(context.Context) (env.Spec, string, error) {
	return env.Spec{Image: s.image, Dir: "/lease"}, "there is no image", nil
}

// With no program in the image, what can be tried is tried.
func TestDoctorTriesEmpty(t *testing.T) {
	open := openDocker(t)
	p, err := open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Prefetch(t.Context(), env.Spec{Image: busybox}); err != nil { // which brings the empty image
		t.Fatal(err)
	}
	d := Deps{Docker: func(ctx context.Context, hosts []string) (env.Provider, error) {
		inner, err := open(ctx, hosts)
		return sample{inner, "deepswe-lease:1"}, err
	}}
	out, _, err := execute(t, d, "doctor")
	if err != nil || !strings.Contains(out, "in an empty image") || !strings.Contains(out, "there is no image") {
		t.Errorf("doctor in an empty image: exit code %d\n%s", code(err), out)
	}
}
