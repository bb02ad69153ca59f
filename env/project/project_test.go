package project

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env/testkit"
)

func TestDue(t *testing.T) {
	const gomod = "module m\n\ngo 1.22\n\nrequire github.com/BurntSushi/toml v1.4.0\n\nrequire (\n\tgithub.com/only/windows v1.0.0\n\tgolang.org/x/sys v0.1.0 // indirect\n)\n"
	const cargo = "[[package]]\nname = \"itoa\"\nversion = \"1.0.11\"\nsource = \"registry+https://x\"\n"
	const gems = "GEM\n  remote: https://rubygems.org/\n  specs:\n    rake (99.0)\n      dep (~> 1)\n\nPLATFORMS\n  ruby\n"
	for name, c := range map[string]struct {
		files []string // name, content, name, content
		home  []string // the same, below the home
		want  string
	}{
		"npm":                     {files: []string{"package.json", "{}", "package-lock.json", "{}"}, want: "npm ci"},
		"npm, installed":          {files: []string{"package.json", "{}", "package-lock.json", "{}", "node_modules/x", ""}},
		"npm without a lock file": {files: []string{"package.json", "{}"}},
		"yarn 2":                  {files: []string{"package.json", "{}", "yarn.lock", "", ".yarnrc.yml", ""}, want: "yarn install --immutable"},
		"uv":                      {files: []string{"uv.lock", ""}, want: "uv sync --frozen"},
		"uv, installed":           {files: []string{"uv.lock", "", ".venv/pyvenv.cfg", ""}},
		"go":                      {files: []string{"go.mod", gomod}, want: "go mod download"},
		"go, installed":           {files: []string{"go.mod", gomod}, home: []string{"go/pkg/mod/github.com/!burnt!sushi/toml@v1.4.0/x", ""}},
		"go, vendored":            {files: []string{"go.mod", gomod, "vendor/modules.txt", ""}},
		"cargo":                   {files: []string{"Cargo.lock", cargo}, want: "cargo fetch --locked"},
		"cargo, installed":        {files: []string{"Cargo.lock", cargo}, home: []string{".cargo/registry/cache/x/itoa-1.0.11.crate", ""}},
		"maven":                   {files: []string{"pom.xml", ""}, want: "mvn -B -Dmaven.test.failure.ignore=true -Dsurefire.timeout=60 test"},
		"maven, installed":        {files: []string{"pom.xml", ""}, home: []string{".m2/repository/x", ""}},
		"bundler":                 {files: []string{"Gemfile.lock", gems}, want: "bundle install --path vendor/bundle"},
		"bundler, installed":      {files: []string{"Gemfile.lock", gems}, home: []string{".gem/ruby/3.1.0/gems/rake-99.0/x", ""}},
		"nothing":                 {},
	} {
		t.Run(name, func(t *testing.T) {
			dir, home := t.TempDir(), t.TempDir()
			for parent, files := range map[string][]string{dir: c.files, home: c.home} {
				for i := 0; i+1 < len(files); i += 2 {
					testkit.WriteFile(t, filepath.Join(parent, files[i]), files[i+1])
				}
			}
			m := FindMachine(func(key string) string { return map[string]string{"HOME": home}[key] })
			got := ""
			for _, s := range Due(dir, m) {
				got += s.Command
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestTestCommand(t *testing.T) {
	for want, files := range map[string][]string{
		"npm test":                   {"package.json", `{"scripts": {"test": "mocha"}}`},
		"":                           {"package.json", `{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}`},
		"go test ./...":              {"go.mod", "module m"},
		"python3 -m pytest":          {"setup.py", "", "tests/x", ""},
		".venv/bin/python -m pytest": {"setup.py", "", "tests/x", "", ".venv/bin/python", ""},
		"bundle exec rspec":          {"Gemfile", "", "spec/x", ""},
		"rake test":                  {"Rakefile", "", "test/x", ""},
		// Without any metadata, the tests themselves say what runs them.
		"python3 -m unittest discover -v":         {"m.py", "", "test_m.py", "import unittest\n"},
		"python3 -m unittest discover -v -s test": {"test/test_a.py", "from unittest import TestCase\n", "test/a.py", ""},
		"venv/bin/python -m pytest":               {"tests/test_a.py", "def test_a(): pass\n", "venv/bin/python", ""},
		"python3 -m pytest ":                      {"a_test.py", "import unittest\n"},
		"python3 -m pytest  ":                     {"test_a.py", "import unittest\nimport pytest\n"},
		"python3 -m pytest   ":                    {"setup.py", "", "test_a.py", "import unittest\n"},
		" ":                                       {"a.py", "import unittest\n", "tests/data", ""},
	} {
		dir := t.TempDir()
		for i := 0; i+1 < len(files); i += 2 {
			testkit.WriteFile(t, filepath.Join(dir, files[i]), files[i+1])
		}
		if got := TestCommand(dir); got != strings.TrimRight(want, " ") {
			t.Errorf("%q: %q, want %q", files, got, want)
		}
	}
}
