package docker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/testkit"
)

// These images are built by .ci/run. A test that needs one is skipped where it is missing.
const (
	bookworm = "deepswe-test:bookworm"
	busybox  = "deepswe-test:busybox"
)

func TestMain(m *testing.M) {
	if scenario := os.Getenv("DEEPSWE_TEST_CHILD"); scenario != "" {
		os.Exit(child(scenario))
	}
	testkit.Parallel(8)
	testkit.Main(m)
}

// provider opens a provider for one test. At the end it is closed, and must have left nothing.
func provider(t testing.TB, o Options) *Provider {
	t.Helper()
	if o.Executable == "" {
		o.Executable = testkit.Guest(t)
	}
	if o.State == "" {
		o.State = t.TempDir()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	p, err := New(t.Context(), o)
	if err != nil {
		testkit.Skip(t, "docker", err)
	}
	p.waits.back = 0
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("closing the provider: %v", err)
		}
	})
	return p
}

// needImage skips a test whose image is missing.
func needImage(t testing.TB, p *Provider, ref string) {
	t.Helper()
	if _, err := p.daemons[0].cli.ImageInspect(t.Context(), ref); err != nil {
		testkit.Skip(t, "docker", fmt.Errorf("the image %s, which .ci/run builds: %w", ref, err))
	}
}

// start starts a sandbox that is closed at the end of the test.
func start(t testing.TB, p *Provider, s env.Spec) *Sandbox {
	t.Helper()
	needImage(t, p, s.Image)
	sandbox, err := p.Start(t.Context(), s)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		if err := sandbox.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return sandbox.(*Sandbox)
}

// run runs a command, and returns its output and exit code. The command may fail, but the call must not.
func run(t testing.TB, s env.Sandbox, line string) (string, int) {
	t.Helper()
	r, err := s.Run(t.Context(), env.Command{Line: line, Timeout: time.Minute})
	if err != nil {
		t.Fatalf("Run(%s): %v", line, err)
	}
	if r.TimedOut {
		t.Fatalf("Run(%s): timed out", line)
	}
	return string(r.Stdout.Head) + string(r.Stdout.Tail) + string(r.Stderr.Head) + string(r.Stderr.Tail), r.ExitCode
}

// must runs a command that must succeed, and returns its output.
func must(t testing.TB, s env.Sandbox, line string) string {
	t.Helper()
	out, code := run(t, s, line)
	if code != 0 {
		t.Fatalf("Run(%s): exit code %d\n%s", line, code, out)
	}
	return out
}

// ours lists the containers of an owner, by kind.
func ours(t testing.TB, d *daemon, owner string) map[string][]container.Summary {
	t.Helper()
	list, err := d.cli.ContainerList(context.WithoutCancel(t.Context()), client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", labelOwner+"="+owner),
	})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]container.Summary{}
	for _, c := range list.Items {
		_, err := d.cli.ContainerInspect(context.WithoutCancel(t.Context()), c.ID, client.ContainerInspectOptions{})
		if errdefs.IsNotFound(err) {
			continue // a daemon that was killed may list what it has removed while it was starting
		}
		found[c.Labels[labelKind]] = append(found[c.Labels[labelKind]], c)
	}
	return found
}

// hasty makes a provider notice soon that a daemon is down or back. The time for a ping stays as it is, because on a
// busy machine a healthy daemon answers late.
func hasty(p *Provider) *Provider {
	p.waits.watch, p.waits.undo, p.waits.retry = 200*time.Millisecond, 200*time.Millisecond, time.Millisecond
	return p
}

// startPatiently is start for a provider that may take a busy daemon for a dead one.
func startPatiently(t testing.TB, p *Provider, spec env.Spec) (s *Sandbox) {
	t.Helper()
	testkit.Eventually(t, "a sandbox starts", func() bool {
		sandbox, err := p.Start(t.Context(), spec)
		if err != nil {
			return false
		}
		s = sandbox.(*Sandbox)
		return true
	})
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}
