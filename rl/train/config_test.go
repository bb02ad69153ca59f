package train

import (
	"path/filepath"
	"strings"
	"testing"
)

const least = "environment: {name: frozenlake}\ntrainer: {name: embedded}\n"

// The embedded policy reads only the compact rendering, so chat is refused.
func TestEmbeddedPolicyReadsCompactOnly(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, least, "environment.rendering=chat", "algorithm.max_length=100")
	if _, err := Start(t.Context(), c,
		Options{Dir: filepath.Join(t.TempDir(), "run")}); err == nil || !strings.Contains(err.Error(), "compact") {
		t.Errorf("got %v", err)
	}
}
