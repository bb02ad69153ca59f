package agentcmd

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env"
)

func TestImageOptions(t *testing.T) {
	config := Config{RegistryMirror: "mirror.local:5000", ImageBudget: "1.5TB"}
	for name, c := range map[string]struct {
		flags  ImageOptions
		config Config
		mirror string
		budget int64
		fails  string
	}{
		"nothing":           {},
		"the configuration": {config: config, mirror: "mirror.local:5000", budget: 1_500_000_000_000},
		"flags":             {flags: ImageOptions{"other", "200GB"}, config: config, mirror: "other", budget: 200_000_000_000},
		"no size":           {flags: ImageOptions{Budget: "much"}, fails: "--image-budget"},
		"no room at all":    {flags: ImageOptions{Budget: "0"}, fails: "--image-budget"},
		"a bad key":         {config: Config{ImageBudget: "-3GB"}, fails: "image_budget of the configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			var got ProviderChoice
			err := c.flags.Complete(c.config, &got)
			if (err != nil) != (c.fails != "") || err != nil && (!strings.Contains(err.Error(), c.fails) || ExitCode(err) != ExitUsage) {
				t.Fatalf("error = %v, want one about %q", err, c.fails)
			}
			if got.Mirror != c.mirror || got.ImageBudget != c.budget {
				t.Errorf("mirror %q, budget %d, want %q and %d", got.Mirror, got.ImageBudget, c.mirror, c.budget)
			}
		})
	}
}

// The flags reach the provider, and what it tells about pulls reaches the screen.
func TestSolvePulls(t *testing.T) {
	w := newWorld(t)
	var got ProviderChoice
	w.deps.Provider = func(_ context.Context, c ProviderChoice) (env.Provider, error) {
		got = c
		c.Progress(env.Progress{Action: env.Pulling, Image: "python:3.12", Total: 52_000_000, Done: true})
		c.Progress(env.Progress{Action: env.Pulling, Image: "python:3.13", Done: true, Err: errors.New("no such image")})
		return nil, errors.New("that is enough")
	}
	args := []string{"solve", "an issue", "--repo", t.TempDir(), "--image", "python:3.12", "--registry-mirror", "m", "--image-budget", "9GB", "--out", t.TempDir() + "/run"}
	w.run(t, args...)
	if got.Mirror != "m" || got.ImageBudget != 9_000_000_000 || got.Image != "python:3.12" {
		t.Errorf("the provider was asked for %+v", got)
	}
	if said := w.err.String(); !strings.Contains(said, "pulled python:3.12, 52MB") || strings.Contains(said, "3.13") {
		t.Errorf("the screen says\n%s", said)
	}
	w.run(t, append(args, "--json")...)
	if said := w.out.String(); !strings.Contains(said, `"type":"pull"`) || !strings.Contains(said, "pulled python:3.12, 52MB") {
		t.Errorf("the lines are\n%s", said)
	}
}

// imaged is a scratch directory that takes itself for a container.
type imaged struct {
	env.Provider
	images []string
}

func (p *imaged) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	p.images = append(p.images, s.Image)
	s.Image = ""
	return p.Provider.Start(ctx, s)
}

// The demo works, and is checked, in the image that is asked for.
func TestDemoInAnImage(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the demo's tests need go")
	}
	w := newWorld(t)
	p := &imaged{}
	open := w.deps.Provider
	w.deps.Provider = func(ctx context.Context, _ ProviderChoice) (env.Provider, error) {
		host, err := open(ctx, ProviderChoice{Env: envHost})
		p.Provider = host
		return p, err
	}
	if code := w.run(t, "solve", "--demo", "--image", "i", "--out", t.TempDir()+"/run"); code != 0 {
		t.Fatalf("exit code %d\n%s", code, w.err.String())
	}
	if diff := cmp.Diff([]string{"i", "i"}, p.images); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
}

func TestPulling(t *testing.T) {
	for want, p := range map[string]env.Progress{
		"pulling a":               {Image: "a"},
		"pulling a, 5MB of 1.2GB": {Image: "a", Bytes: 5_000_000, Total: 1_200_000_000},
		"pulled a":                {Image: "a", Done: true},
		"building the image of a": {Action: env.Building, Image: "a"},
		"built the image of a":    {Action: env.Building, Image: "a", Done: true},
		"pulled a, 1.2GB":         {Image: "a", Bytes: 1_200_000_000, Total: 1_200_000_000, Done: true},
	} {
		if got := Pulling(p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
