//go:build linux

package inside

import (
	"os/exec"
	"strings"
	"testing"
)

// TestStandardLibraryOnly: whatever the guest links is carried into every container.
func TestStandardLibraryOnly(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command")
	}
	out, err := exec.CommandContext(t.Context(), goTool, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, path := range strings.Fields(string(out)) {
		if !strings.HasPrefix(path, "deepswe/env") {
			t.Errorf("env/guest/inside links %s", path)
		}
	}
}
