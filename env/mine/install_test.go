package mine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env/testkit"
)

// Tasks hide the installed copies of the project, except those of versions that the base commit pins or that were
// tagged before it: the version that only the commit itself pins may have its change.
func TestDraftHidesCopies(t *testing.T) {
	t.Parallel()
	dir := history(t, `change package.json '{"name": "ufo", "devDependencies": {"vitest": "1"}}'
change pnpm-lock.yaml '  ufo@1.0.0: {}'; change ufo.js 'one()'; commit root; git tag v1.1.0
change ufo.js 'two()'; change ufo.test.js 'two()'; commit 'two is missing'; git tag v1.2.0
change ufo.js 'three()'; change ufo.test.js 'three()'; change pnpm-lock.yaml '  ufo@1.3.0: {}'; commit 'three'; git tag v1.4.0
change ufo.js 'four()'; change ufo.test.js 'four()'; commit 'four is missing'`)
	installed := t.TempDir()
	for _, v := range []string{"1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0"} {
		manifest := fmt.Sprintf(`{"name": "ufo", "version": %q}`, v)
		testkit.WriteFile(t, filepath.Join(installed, "node_modules", v, "node_modules/ufo/package.json"), manifest)
	}
	all, _ := candidatesOf(t, dir, 3)
	for i, want := range [][]string{nil, {"1.3.0", "1.4.0"}, {"1.2.0", "1.3.0", "1.4.0"}} {
		d, why, err := Builder{Repository: dir, Name: "ufo"}.Draft(t.Context(), all[i], Installation{Dir: installed})
		if err != nil || why != "" {
			t.Fatal(why, err)
		}
		var hidden []string
		for _, v := range want {
			hidden = append(hidden, "/testbed/node_modules/"+v+"/node_modules/ufo")
		}
		if !slices.Equal(d.Task.Hides, hidden) {
			t.Errorf("%s hides %q, want %q", all[i].Subject(), d.Task.Hides, hidden)
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
