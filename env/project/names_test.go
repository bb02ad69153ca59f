package project

import (
	"path/filepath"
	"slices"
	"testing"

	"deepswe/env/testkit"
)

// The packages that files belong to are named by the manifests above them.
func TestNames(t *testing.T) {
	for name, c := range map[string]struct {
		manifest, text string
		want           []string
	}{
		"npm":              {"package.json", `{"name": "@a/b"}`, []string{"b"}},
		"a package of npm": {"packages/x/package.json", `{"name": "x"}`, []string{"x"}},
		"another package":  {"packages/y/package.json", `{"name": "y"}`, nil},
		"composer":         {"composer.json", `{"name": "a/b"}`, []string{"b"}},
		"go":               {"go.mod", "// a\nmodule a.org/b/v3\n\ngo 1.20\n", []string{"b"}},
		"go, with capital": {"go.mod", "module a.org/Be\n", []string{"Be", "!be"}},
		"cargo":            {"Cargo.toml", "[package]\nname = \"b\"\n[lib]\nname = \"c\"\n", []string{"b"}},
		"python":           {"pyproject.toml", "[project]\nname='b-c'\n", []string{"b-c"}},
		"setup.cfg":        {"setup.cfg", "[metadata]\nname = b.c\n", []string{"b.c"}},
		"setup.py":         {"setup.py", "setup(\n    name=\"b\",\n", []string{"b"}},
		"gem":              {"b.gemspec", "", []string{"b"}},
		"maven": {"pom.xml", "<project><parent><artifactId>a</artifactId></parent>\n<artifactId>b</artifactId>" +
			"<artifactId>c</artifactId></project>", []string{"b"}},
		"maven, no parent": {"pom.xml", "<project><artifactId>b</artifactId></project>", []string{"b"}},
		"nothing":          {"package.json", "{", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			testkit.WriteFile(t, filepath.Join(dir, c.manifest), c.text)
			if got := Names(dir, []string{"packages/x/src/a.js", "a.js"}); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
