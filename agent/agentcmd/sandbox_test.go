package agentcmd

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/cli"
	"deepswe/env"
)

// The flags reach the provider, and its messages about pulls reach the screen.
func TestSolvePulls(t *testing.T) {
	w := newWorld(t)
	var got cli.SandboxChoice
	w.sandbox(cli.EnvDocker, true, func(_ context.Context, _ *slog.Logger, c cli.SandboxChoice) (env.Provider, error) {
		got = c
		c.Progress(env.Progress{Action: env.Pulling, Image: "python:3.12", Total: 52_000_000, Done: true})
		c.Progress(env.Progress{Action: env.Pulling, Image: "python:3.13", Done: true, Err: errors.New("no such image")})
		return nil, errors.New("that is enough")
	})
	args := []string{"solve", "an issue", "--repo", t.TempDir(), "--image", "python:3.12", "--registry-mirror", "m",
		"--image-budget", "9GB", "--out", t.TempDir() + "/run"}
	w.run(t, args...)
	if got.Mirror != "m" || got.ImageBudget != 9_000_000_000 || got.Image != "python:3.12" {
		t.Errorf("the provider was asked for %+v", got)
	}
	if said := w.err.String(); !strings.Contains(said, "pulled python:3.12, 52MB") || strings.Contains(said, "3.13") {
		t.Errorf("the screen says\n%s", said)
	}
	w.run(t, append(args, "--json")...)
	if said := w.out.String(); !strings.Contains(said, `"type":"pull"`) ||
		!strings.Contains(said, "pulled python:3.12, 52MB") {
		t.Errorf("the lines are\n%s", said)
	}
}

// imaged is a provider of scratch directories that claims to have images.
type imaged struct {
	env.Provider
	images []string
}

func (p *imaged) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	p.images = append(p.images, s.Image)
	s.Image = ""
	return p.Provider.Start(ctx, s)
}

// The demo runs, and is checked, in the image that was asked for.
func TestDemoInAnImage(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the demo's tests need go")
	}
	w := newWorld(t)
	p := &imaged{}
	w.sandbox(cli.EnvDocker, true, func(ctx context.Context, _ *slog.Logger, _ cli.SandboxChoice) (env.Provider, error) {
		host, err := cli.World{}.Sandbox(ctx, cli.SandboxChoice{Env: cli.EnvHost})
		p.Provider = host
		return p, err
	})
	if code := w.run(t, "solve", "--demo", "--image", "i", "--out", t.TempDir()+"/run"); code != 0 {
		t.Fatalf("exit code %d\n%s", code, w.err.String())
	}
	if diff := cmp.Diff([]string{"i", "i"}, p.images); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
}
