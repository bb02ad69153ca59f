package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"deepswe/env"
	"deepswe/env/sandboxtest"
	"deepswe/env/testkit"
)

// These images are built by .ci/run and loaded into its cluster, which has this namespace.
const (
	bookworm = "deepswe-test:bookworm"
	busybox  = "deepswe-test:busybox"

	namespace = "deepswe"
)

func TestMain(m *testing.M) {
	if scenario := os.Getenv("DEEPSWE_TEST_CHILD"); scenario != "" {
		os.Exit(child(scenario))
	}
	// client-go watches the files of a client certificate until the process ends.
	testkit.Main(m, "k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop",
		"k8s.io/client-go/transport.(*dynamicClientCert).run", "k8s.io/client-go/transport.(*dynamicClientCert).runWorker",
		"k8s.io/apimachinery/pkg/util/wait.PollImmediateUntil",
		"k8s.io/apimachinery/pkg/util/wait.PollImmediateUntilWithContext.poller.func1.1")
}

// onCluster completes options for the real cluster, whose kubeconfig DEEPSWE_TEST_KUBECONFIG names. Without one, it
// skips the test.
func onCluster(t testing.TB, o Options) Options {
	t.Helper()
	path := os.Getenv("DEEPSWE_TEST_KUBECONFIG")
	if path == "" {
		testkit.Skip(t, "kubernetes", "DEEPSWE_TEST_KUBECONFIG names no kubeconfig; .ci/run starts a cluster")
	}
	var err error
	if o.config, err = clientcmd.BuildConfigFromFlags("", path); err != nil {
		testkit.Skip(t, "kubernetes", err)
	}
	if o.Executable == "" {
		o.Executable = testkit.Guest(t)
	}
	if o.Namespaces == nil {
		o.Namespaces = []string{namespace}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	o.Pods.PullPolicy = "Never" // the images were loaded
	if o.Pods.Requests == 0 {
		o.Pods.Requests = 0.01
	}
	return o
}

// provider opens a provider on the real cluster for one test.
func provider(t testing.TB, o Options) *Provider {
	t.Helper()
	p, err := New(t.Context(), onCluster(t, o))
	if err != nil {
		testkit.Skip(t, "kubernetes", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("closing the provider: %v", err)
		}
	})
	return p
}

// start starts a sandbox that is closed at the end of the test.
func start(t testing.TB, p *Provider, s env.Spec) *Sandbox {
	t.Helper()
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

// must runs a command that must succeed, and returns its output.
func must(t testing.TB, s env.Sandbox, line string) string {
	t.Helper()
	r, err := s.Run(t.Context(), env.Command{Line: line, Timeout: time.Minute})
	if err != nil {
		t.Fatalf("Run(%s): %v", line, err)
	}
	if r.ExitCode != 0 || r.TimedOut {
		t.Fatalf("Run(%s): exit code %d\n%s%s", line, r.ExitCode, r.Stdout.Head, r.Stderr.Head)
	}
	return string(r.Stdout.Head)
}

// TestConformance runs the suite for all providers with a complete image and a minimal one, and with commands as root
// without capabilities and as an ordinary user. With DEEPSWE_TEST_FULL, it runs both users in both images.
func TestConformance(t *testing.T) {
	t.Parallel()
	onCluster(t, Options{}) // or skips
	repository := t.TempDir()
	testkit.WriteFile(t, filepath.Join(repository, "README"), "a repository\n")
	specs := map[string]env.Spec{
		"bookworm":          {Image: bookworm},
		"busybox copied in": {Image: busybox, CopyIn: repository},
	}
	if os.Getenv("DEEPSWE_TEST_FULL") != "" {
		specs["busybox"] = env.Spec{Image: busybox}
		specs["bookworm copied in"] = env.Spec{Image: bookworm, CopyIn: repository}
	}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sandboxtest.Run(t, func(t *testing.T) env.Provider { return provider(t, Options{}) },
				sandboxtest.Options{Spec: spec, EndsTogether: true})
		})
	}
}

// A folder of this machine that a sandbox shows is copied into the pod, with or without a repository.
func TestShownFolder(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	agent, repository := t.TempDir(), t.TempDir()
	testkit.WriteFile(t, filepath.Join(agent, "bin", "agent"), "#!/bin/sh\necho works on $1\n")
	if err := os.Chmod(filepath.Join(agent, "bin", "agent"), 0o555); err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, filepath.Join(repository, "f"), "x")
	shown := []env.Shown{{Host: agent, Path: "/opt/deepswe/agent"}}
	s := start(t, p, env.Spec{Image: busybox, CopyIn: repository, Shown: shown})
	if out := must(t, s, "/opt/deepswe/agent/bin/agent $(cat f)"); out != "works on x\n" {
		t.Errorf("beside a repository: %q", out)
	}
	s = start(t, p, env.Spec{Image: bookworm, Shown: shown})
	if out := must(t, s, "/opt/deepswe/agent/bin/agent it"); out != "works on it\n" {
		t.Errorf("in an image: %q", out)
	}
	s = start(t, p, env.Spec{Image: busybox, Shown: append(shown, env.Shown{Path: "/opt/deepswe/agent/bin"},
		env.Shown{Path: "/etc/network"}, env.Shown{Path: "/srv", Writable: true})})
	if out := must(t, s, "ls -A /opt/deepswe/agent/bin /etc/network"); out != "/etc/network:\n\n/opt/deepswe/agent/bin:\n" {
		t.Errorf("empty folders: %q", out)
	}
	must(t, s, "touch /srv/f && ! touch /etc/network/f")
	shown[0].Writable = true
	if _, err := p.Start(t.Context(), env.Spec{Image: busybox, Shown: shown}); !errors.Is(err, env.ErrUnsupported) {
		t.Errorf("a folder to fill: %v", err)
	}
}
