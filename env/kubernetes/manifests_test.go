package kubernetes

import (
	"os"
	"path/filepath"
	"testing"

	"deepswe/env/testkit"
)

// A cluster accepts the manifests of docs/kubernetes in a dry run on the server, which validates and admits them.
func TestManifests(t *testing.T) {
	l := testkit.OpenKubelab(t)
	files, err := filepath.Glob("../../docs/kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s", l.Kubectl(t, string(data), "apply", "--dry-run=server", "--validate=strict", "-f", "-"))
	}
}
