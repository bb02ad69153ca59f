//go:build linux

package inside

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestStandardLibraryOnly: whatever the guest links is carried into every container.
func TestStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command")
	}
	const notStandard = "{{if not .Standard}}{{.ImportPath}}{{end}}"
	out, err := exec.CommandContext(t.Context(), goTool, "list", "-deps", "-f", notStandard, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := []string{"deepswe/env/disk", "deepswe/env/guest", "deepswe/env/guest/inside"}
	if got := strings.Fields(string(out)); !slices.Equal(got, want) {
		t.Errorf("links %q, want %q and the standard library", got, want)
	}
}
