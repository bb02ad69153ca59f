package mine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// The caches of an era also get what the manifests of its first commit's parent ask for.
func TestSetUpParents(t *testing.T) {
	t.Parallel()
	dir := history(t, `change go.mod 'module a.org/calc'; change calc.go 'package calc'; commit root
change calc.go 'const two = 2'; change calc_test.go 'package calc'; change go.mod 'require x'; commit 'two is missing'
change calc.go 'const three = 3'; change calc_test.go '// Three'; commit 'three is missing'`)
	all, _ := candidatesOf(t, dir, 2)
	if len(all) != 2 {
		t.Fatal(all)
	}
	eras, err := Eras(t.Context(), dir, []string{all[1].Hash})
	if err != nil {
		t.Fatal(err)
	}
	era := eras[all[1].Hash]
	for i := range all {
		all[i].Labels["era"] = era
	}
	b := Builder{Repository: dir}
	got, err := b.Parents(t.Context(), all)
	parents := []string{all[1].Base}
	if diff := cmp.Diff(map[[2]string][]string{{era, "go"}: parents}, got); diff != "" || err != nil {
		t.Fatalf("the parents, %v (-want +got):\n%s", err, diff)
	}
	for _, c := range all {
		s, err := b.SetUp(t.Context(), c)
		if err == nil {
			err = b.AddParents(t.Context(), &s, c.Language(), parents, t.TempDir())
		}
		if err != nil || len(s.Spec.Shown) != 1 || s.Spec.Shown[0].Path != "/parents/"+parents[0] ||
			!strings.HasSuffix(s.Before[len(s.Before)-1], "&& go mod download && rm -rf /tmp/"+parents[0]+") || :") {
			t.Errorf("%s: %q shows %v, %v", c.Subject(), s.Before, s.Spec.Shown, err)
		}
		if data, err := os.ReadFile(filepath.Join(s.Spec.Shown[0].Host, "go.mod")); string(data) != "module a.org/calc\n" {
			t.Errorf("%s: go.mod of the parent is %q, %v", c.Subject(), data, err)
		}
	}
}
