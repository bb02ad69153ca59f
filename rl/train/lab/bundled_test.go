package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
)

// Every bundled configuration with rollouts takes 20 steps on a simulated cluster, with the same result each time.
func TestBundledConfigurationsOnASimulatedCluster(t *testing.T) {
	files, err := filepath.Glob("../../../testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no bundled configuration is there: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := config.Load(data, builtin.Parts())
			if err != nil {
				t.Fatal(err)
			}
			if c.Objective == config.Imitation {
				t.Skip("no rollouts: TestScripts/recipes and the tests of sft have it")
			}
			c.Steps = 20
			s, err := Simulate(t.Context(), c, nil)
			if err != nil || s.Steps != 20 {
				t.Fatalf("%d steps: %v", s.Steps, err)
			}
			if s.Started < 1 || s.Step <= 0 || s.MaxStaleness > float64(c.Rollouts.MaxStaleness) {
				t.Errorf("no cluster of %d workers does this:\n%s", c.Rollouts.Workers, s)
			}
			again, err := Simulate(t.Context(), c, nil)
			if err != nil || again != s {
				t.Errorf("%v, and the second time it took %+v, not %+v", err, again, s)
			}
		})
	}
}
