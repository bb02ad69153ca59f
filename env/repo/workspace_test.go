package repo

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/env/testkit"
)

// TestNeighbours: what build files refer to outside the repository is shown, if it is a project of the same kind and
// not in a hidden directory.
func TestNeighbours(t *testing.T) {
	parent, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"ws/go.work":              "go 1.24\n\nuse (\n\t./repo\n\t./other // with a remark\n\t./none\n)\n",
		"ws/go.work.sum":          "",
		"ws/other/go.mod":         "module other\n",
		"ws/repo/go.mod":          "module m\nreplace example.com/a => ../../lib v1.0.0\nreplace (\n example.com/b => ../../lib\n example.com/c => ./inner\n example.com/d => ../../.ssh\n example.com/e => ../../secrets\n)\n",
		"ws/repo/inner/go.mod":    "module inner\n",
		"lib/go.mod":              "module lib\n",
		".ssh/go.mod":             "module trap\n",
		"secrets/key":             "",
		"ws/repo/sub/Cargo.toml":  "[dependencies]\nx = { path = \"../../../crate\" }\ny = { path = \"../here\" }\n[target.'cfg(unix)'.dependencies]\nz = { path = \"" + parent + "/abs\" }\n",
		"ws/repo/here/Cargo.toml": "",
		"crate/Cargo.toml":        "",
		"abs/Cargo.toml":          "",
		"ws/repo/broken/go.work":  "use (((\nuse ../../../lib\x00",
	} {
		testkit.WriteFile(t, filepath.Join(parent, name), text)
	}
	names := []string{"go.mod", "inner/go.mod", "sub/Cargo.toml", "here/Cargo.toml", "broken/go.work"}
	var got []string
	for _, path := range neighbours(filepath.Join(parent, "ws", "repo"), names) {
		got = append(got, strings.TrimPrefix(path, parent+"/"))
	}
	if want := []string{"abs", "crate", "lib", "ws/go.work", "ws/go.work.sum", "ws/other"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
