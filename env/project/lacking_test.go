package project

import (
	"path/filepath"
	"slices"
	"testing"

	"deepswe/env/testkit"
)

// What tests lack is installed if the project names it somewhere, and is not a part of the project.
func TestLacking(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"tox.ini":                  "[testenv]\ndeps =\n    FreezeGun>=1\n    pytest-mock\n    python-dateutil; python_version < '4'\n",
		".github/workflows/ci.yml": "run: pip install PyYAML tests utilities",
		"tests/test_a.py":          "import unnamed",
		"src/utilities/a.py":       "",
	} {
		testkit.WriteFile(t, filepath.Join(dir, name), text)
	}
	const missing = "E   ModuleNotFoundError: No module named '"
	for name, c := range map[string]struct {
		log  string
		want []string
	}{
		"a module":                    {missing + "freezegun'\n" + missing + "freezegun.api'\n", []string{"FreezeGun"}},
		"packages with another name":  {missing + "yaml'\n" + missing + "dateutil'\n", []string{"PyYAML", "python-dateutil"}},
		"the project's own":           {missing + "tests'\n" + missing + "utilities.b'\n", nil},
		"a name that is nowhere":      {missing + "unnamed'\n", nil},
		"what came with Python":       {missing + "distutils'\n", []string{"setuptools<81"}},
		"a plugin":                    {"E       fixture 'mocker' not found\n", []string{"pytest-mock"}},
		"nothing, and pytest's words": {"2 passed in 0.1s\n", nil},
	} {
		if got := Lacking(dir, c.log); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWith(t *testing.T) {
	t.Parallel()
	const line = "python3 -m venv .venv && .venv/bin/pip install -e . pytest"
	got, ok := With([]string{line, "go mod download"}, []string{"a", "b<2"})
	want := []string{
		line + ` && for one in 'a' 'b<2'; do .venv/bin/pip install "$one" || :; done`, "go mod download",
	}
	if !ok || !slices.Equal(got, want) {
		t.Errorf("%q, %t, want %q", got, ok, want)
	}
	if got, ok := With([]string{"npm ci"}, []string{"a"}); ok {
		t.Errorf("%q, although pip installs nothing", got)
	}
}
