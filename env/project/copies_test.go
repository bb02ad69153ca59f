package project

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"deepswe/env/testkit"
)

func TestPinned(t *testing.T) {
	t.Parallel()
	const npm = `    "node_modules/ufo": {
      "version": "1.5.4",
      "resolved": "https://registry.npmjs.org/ufo/-/ufo-1.5.4.tgz",
      "resolved": "https://packages.example.org/npm/ufo/-/ufo-1.6.0-rc.1.tgz",
      "resolved": "https://registry.npmjs.org/@other/ufo/-/ufo-9.0.0.tgz",
      "resolved": "https://registry.npmjs.org/not-ufo/-/not-ufo-9.0.0.tgz",
      "resolved": "https://registry.npmjs.org/@a/b/-/b-2.0.0.tgz",
`
	const pnpm = "  ufo@1.6.1:\n  ufo@1.5.3: {}\n  '@a/b@2.0.0(ufo@9.0.0)':\n  /ufo/1.5.4_x@9.0.0:\n  /ufo@1.6.1:\n" +
		"      ufo: 9.0.0\n  not-ufo@9.0.0:\n  '@other/ufo@9.0.0':\n"
	const yarn = "ufo@^1.0.0:\n  version \"1.5.4\"\n" +
		"  resolved \"https://registry.yarnpkg.com/ufo/-/ufo-1.5.4.tgz#0123\"\n" +
		"\"ufo@npm:^1.6.0\":\n  resolution: \"ufo@npm:1.6.1\"\n  resolution: \"@a/b@npm:2.0.0\"\n"
	for name, c := range map[string]struct {
		locks, pattern string
		want           []string
	}{
		"npm":           {npm, "*/node_modules/ufo", []string{"1.5.4", "1.6.0-rc.1"}},
		"npm, scoped":   {npm, "*/node_modules/@a/b", []string{"2.0.0"}},
		"pnpm":          {pnpm, "*/node_modules/ufo", []string{"1.5.3", "1.5.4", "1.6.1"}},
		"pnpm, scoped":  {pnpm, "*/node_modules/@a/b", []string{"2.0.0"}},
		"yarn":          {yarn, "*/node_modules/ufo", []string{"1.5.4", "1.6.1"}},
		"yarn, scoped":  {yarn, "*/node_modules/@a/b", []string{"2.0.0"}},
		"not there":     {npm + pnpm + yarn, "*/node_modules/uf", nil},
		"not of Node":   {npm, "*/site-packages/ufo", nil},
		"no lock file":  {"", "*/node_modules/ufo", nil},
		"not a pattern": {"  u+o@1.0.0:\n  uuo@9.0.0:\n", "*/node_modules/u+o", []string{"1.0.0"}},
	} {
		if got := Pinned(c.locks, c.pattern); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestTagged(t *testing.T) {
	t.Parallel()
	const tags = "v1.0.0\n2.0.0-rc.1\nufo@3.0.0\n@a/ufo@4.0.0\nufo-v5.0.0\nother@9.0.0\nv9\nlatest\n"
	for pattern, want := range map[string][]string{
		"*/node_modules/ufo":    {"1.0.0", "2.0.0-rc.1", "3.0.0", "5.0.0"},
		"*/node_modules/@a/ufo": {"1.0.0", "2.0.0-rc.1", "3.0.0", "4.0.0", "5.0.0"},
		"*/site-packages/ufo":   nil,
	} {
		if got := Tagged(tags, pattern); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
}

// The copies that other packages depend on are found wherever managers of packages put them.
func TestOtherCopies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for place, manifest := range map[string]string{
		"a": `{"version": "2.0.0"}`, ".pnpm/a@1.0.0/node_modules/a": `{"version": "1.0.0"}`,
		"c/node_modules/a": `{}`, "@d/e/node_modules/f/node_modules/a": `{"version": "1.0.0"}`, "g": `{"version": "9.0.0"}`,
	} {
		testkit.WriteFile(t, filepath.Join(dir, "node_modules", place, "package.json"), manifest)
	}
	for _, at := range []string{".pnpm/b/node_modules", "h/node_modules"} {
		link := filepath.Join(dir, "node_modules", at, "a")
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(dir, link); err != nil { // also one to the project itself
			t.Fatal(err)
		}
	}
	const pnpm, nested = "node_modules/.pnpm/a@1.0.0/node_modules/a", "node_modules/@d/e/node_modules/f/node_modules/a"
	for _, c := range []struct{ versions, want []string }{
		{nil, []string{pnpm, nested, "node_modules/a", "node_modules/c/node_modules/a"}},
		{[]string{"1.0.0", "3.0.0"}, []string{"node_modules/a", "node_modules/c/node_modules/a"}},
		{[]string{"2.0.0"}, []string{pnpm, nested, "node_modules/c/node_modules/a"}},
	} {
		got := OtherCopies(dir, "*/node_modules/a", c.versions)
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("without %q: %q, want %q", c.versions, got, c.want)
		}
	}
	if got := OtherCopies(dir, "*/site-packages/a", nil); got != nil {
		t.Errorf("of Python: %q", got)
	}
}
