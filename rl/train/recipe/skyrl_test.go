package recipe_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"deepswe/env/testkit"
	"deepswe/rl/train/recipe"
)

var backendConfig = regexp.MustCompile(`--backend-config='([^']*)'`)

// SkyRL's own code accepts the configuration of every recipe. DEEPSWE_TEST_SKYRL is a Python that has SkyRL.
func TestSkyRLTakesTheConfiguration(t *testing.T) {
	python := os.Getenv("DEEPSWE_TEST_SKYRL")
	if python == "" {
		testkit.Skip(t, "skyrl", "DEEPSWE_TEST_SKYRL has a Python with SkyRL's GPU backends")
	}
	var lines strings.Builder
	for _, c := range clusters {
		text, settings := printed(t, recipe.Kubernetes, c.nodes, c.gpus, c.set)
		keys, err := settings.Keys()
		if err != nil {
			t.Fatal(err)
		}
		found := backendConfig.FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("%s: no --backend-config", c.name)
		}
		fmt.Fprintf(&lines, "%s %s\n", keys["trainer.rank"], found[1])
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/build.py")
	cmd.Stdin = strings.NewReader(lines.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
