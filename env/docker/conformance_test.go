package docker

import (
	"testing"

	"deepswe/env"
	"deepswe/env/sandboxtest"
)

// TestConformance runs the suite that every provider passes, over an image with everything and one with next to
// nothing, with commands as root without powers and as a user of their own.
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
