package kubernetes

import (
	"path/filepath"
	"testing"

	"deepswe/env"
	"deepswe/env/sandboxtest"
	"deepswe/env/testkit"
)

// TestConformance runs the suite that every provider passes, over an image with everything and one with next to
// nothing, with commands as root without powers and as a user of their own.
func TestConformance(t *testing.T) {
	t.Parallel()
	repository := t.TempDir()
	testkit.WriteFile(t, filepath.Join(repository, "README"), "a repository\n")
	for name, spec := range map[string]env.Spec{
		"bookworm":           {Image: bookworm},
		"busybox":            {Image: busybox},
		"bookworm copied in": {Image: bookworm, CopyIn: repository},
		"busybox copied in":  {Image: busybox, CopyIn: repository},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sandboxtest.Run(t, func(t *testing.T) env.Provider { return provider(t, Options{}) },
				sandboxtest.Options{Spec: spec})
		})
	}
}
