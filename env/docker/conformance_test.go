package docker

import (
	"os"
	"path/filepath"
	"testing"

	"deepswe/env"
	"deepswe/env/sandboxtest"
)

// TestConformance runs the suite for all providers with a complete image and a minimal one, and with commands as root
// without capabilities and as an ordinary user.
func TestConformance(t *testing.T) {
	t.Parallel()
	repository := write(t, map[string]string{"README": "a repository\n"})
	for name, spec := range map[string]env.Spec{
		"bookworm":           {Image: bookworm},
		"busybox":            {Image: busybox},
		"bookworm copied in": {Image: bookworm, CopyIn: repository},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sandboxtest.Run(t, func(t *testing.T) env.Provider {
				state := t.TempDir()
				p := provider(t, Options{State: state})
				needImage(t, p, spec.Image)
				t.Cleanup(func() { removePrepared(t, p, state) })
				return p
			}, sandboxtest.Options{Spec: spec})
		})
	}
}

// TestOwnPath: a copy of a user's repository is at its original path, unless the image has something there.
func TestOwnPath(t *testing.T) {
	p := provider(t, Options{})
	needImage(t, p, bookworm)
	source := filepath.Join(t.TempDir(), "a b")
	if err := os.MkdirAll(source, 0o755); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{
		source: source, "/usr/src/app": "/testbed", "/home": "/testbed", "": "/testbed", "/root/src/app": "/root/src/app",
	} {
		sb, err := p.Start(t.Context(), env.Spec{Image: bookworm, CopyIn: source, Source: from})
		if err != nil {
			t.Fatal(err)
		}
		r, err := sb.Run(t.Context(), env.Command{Line: "pwd && touch x"})
		if err != nil || string(r.Stdout.Head) != want+"\n" || r.ExitCode != 0 || sb.Dir() != want {
			t.Errorf("%q: %+v, %v, want %s", from, r, err, want)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
