package mine

import (
	"slices"
	"testing"

	"deepswe/env/project"
)

// A copy of the project stays installed if the base commit pins it: the version that only the commit itself pins may
// have its change.
func TestSetUpSpares(t *testing.T) {
	t.Parallel()
	dir := history(t, `change package.json '{"name": "ufo", "devDependencies": {"vitest": "1"}}'
change pnpm-lock.yaml '  ufo@1.0.0: {}'; change ufo.js '//'; commit root
change ufo.js '// Two'; change ufo.test.js '// Two'; commit 'two is missing'
change ufo.js '// Three'; change ufo.test.js '// Three'; change pnpm-lock.yaml '  ufo@1.3.0: {}'; commit 'three'
change ufo.js '// Four'; change ufo.test.js '// Four'; commit 'four is missing'`)
	commits, err := Walk(t.Context(), dir, "", 3)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{"1.0.0", "1.3.0"}, {"1.0.0"}, {"1.0.0"}} {
		s, err := Builder{Repository: dir}.SetUp(t.Context(), Candidate{Commit: commits[i]})
		if err != nil || !slices.Equal(s.Spared, want) ||
			!slices.Contains(s.After, project.TakeOut("*/node_modules/ufo", want)) {
			t.Errorf("%s: %q with %q, %v, want %q", commits[i].Hash, s.Spared, s.After, err, want)
		}
	}
}
