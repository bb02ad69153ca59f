package record

import (
	"path/filepath"
	"slices"
	"testing"

	"deepswe/env/testkit"
)

// A step is listed while its rollouts exist, compressed or not, whatever the name of the run's directory.
func TestSteps(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run [1]")
	for _, file := range []string{"000002/rollouts.jsonl", "000010/rollouts.jsonl.zst", "000003/validation.jsonl", "x/y"} {
		testkit.WriteFile(t, filepath.Join(dir, StepsDir, file), "{}\n")
	}
	if steps, err := Steps(dir); err != nil || !slices.Equal(steps, []int{2, 10}) {
		t.Errorf("steps %v, %v", steps, err)
	}
	if steps, err := Steps(t.TempDir()); err != nil || len(steps) > 0 {
		t.Errorf("a run that has not begun: %v, %v", steps, err)
	}
}
