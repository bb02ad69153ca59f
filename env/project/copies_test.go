package project

import (
	"os/exec"
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

// Links to a copy that goes go as well, and those to one that stays stay.
func TestTakeOut(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		testkit.Skip(t, "node", err)
	}
	const places = `cd node_modules && find . -path '*/node_modules/a' -o -path ./a | sort | tr '\n' ' '`
	for want, versions := range map[string][]string{
		"": nil,
		"./.pnpm/a@1.0.0/node_modules/a ./.pnpm/b/node_modules/a ": {"1.0.0", "3.0.0"},
		"./a ": {"2.0.0"},
	} {
		dir := t.TempDir()
		for place, manifest := range map[string]string{
			"a": `{"version": "2.0.0"}`, ".pnpm/a@1.0.0/node_modules/a": `{"version": "1.0.0"}`,
			"c/node_modules/a": `{}`, "d": `{"version": "9.0.0"}`,
		} {
			testkit.WriteFile(t, filepath.Join(dir, "node_modules", place, "package.json"), manifest)
		}
		c := exec.Command("sh", "-ec", "mkdir -p node_modules/.pnpm/b/node_modules\n"+
			"ln -s ../../a@1.0.0/node_modules/a node_modules/.pnpm/b/node_modules/a\n"+
			TakeOut("*/node_modules/a", versions)+"\n"+places)
		c.Dir = dir
		if got, err := c.Output(); err != nil || string(got) != want {
			t.Errorf("with %q: %q, %v, want %q", versions, got, err, want)
		}
	}
}
