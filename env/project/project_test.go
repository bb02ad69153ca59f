package project

import (
	"crypto/sha256"
	"encoding/base64"
	"os"
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
	const mvn = "mvn -B -Denforcer.skip=true -Dmaven.test.failure.ignore=true -Dsurefire.timeout=60 test"
	const pom = `<project><parent><groupId>org.x</groupId><artifactId>parent</artifactId><version>3</version></parent>
		<groupId>org.y</groupId><version>0.9</version>
		<properties><b.version>1.2</b.version></properties>
		<dependencies>
			<dependency><groupId>a</groupId><artifactId>b</artifactId><version>${b.version}</version></dependency>
			<dependency><groupId>a</groupId><artifactId>of-the-parent</artifactId></dependency>
			<dependency>
				<groupId>${project.groupId}</groupId><artifactId>core</artifactId><version>${project.version}</version>
			</dependency>
		</dependencies></project>`
	node := func(more ...string) []string { return append([]string{"package.json", "{}"}, more...) }
	for name, c := range map[string]struct {
		files    []string // name, content, name, content
		home     []string // the same, below the home
		programs string   // on the machine, by default all but pnpm
		want     string
	}{
		"npm":                     {files: node("package-lock.json", "{}"), want: "npm ci"},
		"npm, installed":          {files: node("package-lock.json", "{}", "node_modules/x", "")},
		"npm without packages":    {files: node()},
		"npm without a lock file": {files: []string{"package.json", `{"devDependencies": {"a": "1"}}`}, want: "npm install --no-package-lock"},
		"yarn without a lock file": {files: []string{"package.json", `{"dependencies": {"a": "1"}, "packageManager": "yarn@1.22.0"}`},
			want: "yarn install --no-lockfile"},
		"bun":               {files: []string{"package.json", `{"dependencies": {"a": "1"}}`, "bun.lock", ""}},
		"npm, only a cache": {files: node("package-lock.json", "{}", "node_modules/.cache/x", ""), want: "npm ci"},
		"pnpm":              {files: node("pnpm-lock.yaml", ""), programs: "pnpm", want: "pnpm install --frozen-lockfile"},
		"pnpm, not there":   {files: node("pnpm-lock.yaml", ""), want: "npx --yes pnpm install --frozen-lockfile"},
		"pnpm, by Node":     {files: node("pnpm-lock.yaml", ""), programs: "corepack", want: "corepack pnpm install --frozen-lockfile"},
		"yarn":              {files: node("yarn.lock", "# yarn lockfile v1\n"), want: "yarn install --frozen-lockfile"},
		"yarn 2, its own copy": {
			files:    node("yarn.lock", "", ".yarnrc.yml", "yarnPath: .yarn/releases/yarn-4.cjs\n", ".yarn/releases/yarn-4.cjs", ""),
			programs: "corepack", want: "node .yarn/releases/yarn-4.cjs install --immutable",
		},
		"yarn 2, by its lock":      {files: node("yarn.lock", "# x\n\n__metadata:\n  version: 8\n"), want: "yarn install --immutable"},
		"yarn 2, no archives":      {files: node("yarn.lock", "", ".yarnrc.yml", "", ".pnp.cjs", ""), want: "yarn install --immutable"},
		"yarn 2, archives":         {files: node("yarn.lock", "", ".yarnrc.yml", "", ".pnp.cjs", "", ".yarn/cache/a.zip", "")},
		"yarn 2, archives at home": {files: node("yarn.lock", "", ".yarnrc.yml", "", ".pnp.cjs", ""), home: []string{".yarn/berry/cache/a.zip", ""}},
		"yarn 2":                   {files: node("yarn.lock", "", ".yarnrc.yml", ""), want: "yarn install --immutable"},
		"uv":                       {files: []string{"uv.lock", ""}, want: "uv sync --frozen"},
		"uv, not there": {files: []string{"uv.lock", ""}, programs: "none",
			want: "PATH=$PATH:/tmp/tools/bin; command -v uv >/dev/null || { python3 -m venv /tmp/tools && /tmp/tools/bin/pip install -q uv; } && uv sync --frozen"},
		"poetry":            {files: []string{"poetry.lock", ""}, want: "POETRY_VIRTUALENVS_IN_PROJECT=1 poetry install"},
		"poetry, elsewhere": {files: []string{"poetry.lock", ""}, home: []string{".cache/pypoetry/virtualenvs/x-HASH-py3.11/bin/python", ""}},
		"pip":               {files: []string{"requirements.txt", "a-lib==1\n"}, want: "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"},
		"pip, a project": {files: []string{"requirements.txt", "a-lib==1\n", "requirements/dev.txt", "x\n", "setup.py", "", "tests/test_a.py", ""},
			want: "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt -r requirements/dev.txt -e . pytest"},
		"pip, for developers and tests": {files: []string{"requirements/dev.txt", "pytest\n", "requirements/tests.txt", "pytest\n", "setup.py", ""},
			want: "python3 -m venv .venv && .venv/bin/pip install -r requirements/dev.txt -e . || .venv/bin/pip install -r requirements/tests.txt -e ."},
		"pip, for developers": {files: []string{"dev.requirements.txt", "pytest-of-nobody~=8\n", "pyproject.toml", "[build-system]", "tests/test_a.py", ""},
			want: "python3 -m venv .venv && .venv/bin/pip install -r dev.requirements.txt -e ."},
		"pip, in another venv": {files: []string{"requirements.txt", "a-lib==1\n", ".env3/pyvenv.cfg", ""}},
		"pip, installed":       {files: []string{"requirements.txt", "a-lib[x]==1\nother; python_version<'3'\n"}, home: []string{".local/lib/python3.11/site-packages/A_Lib-1.dist-info/x", ""}},
		"pip, a part installed": {files: []string{"requirements.txt", "a-lib\nb\n"}, home: []string{".local/lib/python3.11/site-packages/a_lib-1.dist-info/x", ""},
			want: "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"},
		"uv, installed": {files: []string{"uv.lock", "", ".venv/pyvenv.cfg", ""}},
		"go":            {files: []string{"go.mod", gomod}, want: "go mod download"},
		"go, installed": {files: []string{"go.mod", gomod}, home: []string{"go/pkg/mod/github.com/!burnt!sushi/toml@v1.4.0/x", ""}},
		"go, a part installed": {files: []string{"go.mod", gomod + "require (\n\tx.org/a v1.0.0\n\tx.org/b v1.0.0\n)\n"},
			home: []string{"go/pkg/mod/github.com/!burnt!sushi/toml@v1.4.0/x", ""}, want: "go mod download"},
		"go, vendored": {files: []string{"go.mod", gomod, "vendor/modules.txt", ""}},
		"cargo":        {files: []string{"Cargo.lock", cargo}, want: "cargo fetch --locked"},
		"cargo without a lock": {files: []string{"Cargo.toml", "[package]\nversion = \"1\"\n[dependencies]\nmine = { path = \"../mine\", version = \"1\" }\n" +
			"itoa = \"1\"\n\n[dev-dependencies]\nserde = { version = \"1\" }\n"}, want: "cargo fetch"},
		"cargo without a lock, installed": {files: []string{"Cargo.toml", "[workspace.dependencies]\nitoa = \"1\"\n"},
			home: []string{".cargo/registry/cache/x/itoa-1.0.11.crate", ""}},
		"cargo without dependencies": {files: []string{"Cargo.toml", "[package]\nname = \"x\"\n[dependencies]\n"}},
		"cargo, installed":           {files: []string{"Cargo.lock", cargo}, home: []string{".cargo/registry/cache/x/itoa-1.0.11.crate", ""}},
		"maven":                      {files: []string{"pom.xml", ""}, want: mvn},
		"maven, installed":           {files: []string{"pom.xml", pom}, home: []string{".m2/repository/org/x/parent/3/x", "", ".m2/repository/a/b/1.2/x", ""}},
		"maven, no parent":           {files: []string{"pom.xml", pom}, home: []string{".m2/repository/a/b/1.2/x", ""}, want: mvn},
		"maven, no dependency":       {files: []string{"pom.xml", pom}, home: []string{".m2/repository/org/x/parent/3/x", ""}, want: mvn},
		"maven, unreadable":          {files: []string{"pom.xml", "<project"}, home: []string{".m2/repository/x", ""}},
		"maven, its own":             {files: []string{"pom.xml", "", "mvnw", ""}, programs: "none", want: "./mvnw" + strings.TrimPrefix(mvn, "mvn")},
		"bundler":                    {files: []string{"Gemfile.lock", gems}, want: "bundle config set --local path vendor/bundle && bundle install"},
		"bundler, installed":         {files: []string{"Gemfile.lock", gems}, home: []string{".gem/ruby/3.1.0/gems/rake-99.0/x", ""}},
		"nothing":                    {},
	} {
		t.Run(name, func(t *testing.T) {
			dir, home := t.TempDir(), t.TempDir()
			hash := poetryHash(t, dir)
			if c.programs == "" {
				c.programs = "npm yarn uv poetry mvn"
			}
			for _, program := range strings.Fields(c.programs) {
				testkit.WriteFile(t, filepath.Join(home, "bin", program), "")
				if err := os.Chmod(filepath.Join(home, "bin", program), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for parent, files := range map[string][]string{dir: c.files, home: c.home} {
				for i := 0; i+1 < len(files); i += 2 {
					testkit.WriteFile(t, filepath.Join(parent, strings.Replace(files[i], "HASH", hash, 1)), files[i+1])
				}
			}
			m := FindMachine(func(key string) string {
				return map[string]string{"HOME": home, "PATH": filepath.Join(home, "bin")}[key]
			})
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

// poetryHash returns the hash in the name of a project's Poetry environment, which comes before Python's version.
func poetryHash(t *testing.T, dir string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(dir))
	return base64.URLEncoding.EncodeToString(sum[:])[:8]
}

// TestPoetryEnv checks a name that Poetry 2.5 has made.
func TestPoetryEnv(t *testing.T) {
	if got := poetryName("/home/deepswe-ci/real13/src/cleo"); got != "*-wdAGO0f4-py*" {
		t.Errorf("got %s", got)
	}
}

// TestDueInAnImage: an image may lack any tool, so the commands bring what they need.
func TestDueInAnImage(t *testing.T) {
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "package.json"), "{}")
	testkit.WriteFile(t, filepath.Join(dir, "pnpm-lock.yaml"), "")
	want := []Step{{
		Command: "npx --yes pnpm install --frozen-lockfile", Lock: "pnpm-lock.yaml", Missing: "node_modules", Local: true,
	}}
	if diff := cmp.Diff(want, Due(dir, Container())); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestTestCommand(t *testing.T) {
	for want, files := range map[string][]string{
		"npm test":                   {"package.json", `{"scripts": {"test": "mocha"}}`},
		"":                           {"package.json", `{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}`},
		"go test -v ./...":           {"go.mod", "module m"},
		"yarn test":                  {"package.json", `{"scripts": {"test": "jest"}}`, "yarn.lock", "", ".yarnrc.yml", "yarnPath: x"},
		"npm test ":                  {"package.json", `{"scripts": {"test": "jest"}}`, "yarn.lock", "", ".yarnrc.yml", "nodeLinker: node-modules"},
		"yarn test ":                 {"package.json", `{"scripts": {"test": "jest"}}`, "yarn.lock", "", ".yarnrc.yml", "nodeLinker: pnp"},
		"python3 -m pytest":          {"setup.py", "", "tests/x", ""},
		".venv/bin/python -m pytest": {"setup.py", "", "tests/x", "", ".venv/bin/python", ""},
		"bundle exec rspec":          {"Gemfile", "", "spec/x", ""},
		"python3 manage.py test -v 2 --noinput": {
			"manage.py", "from django.core.management import execute_from_command_line\n", "requirements.txt", "django",
		},
		"rake test": {"Rakefile", "", "test/x", ""},
		// Without metadata, the imports of the tests decide how they are run.
		"python3 -m unittest discover -v":         {"m.py", "", "test_m.py", "import unittest\n"},
		"python3 -m unittest discover -v ":        {"setup.py", "", "test.py", "import unittest\n"},
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
		if got := TestCommand(dir, Machine{}, nil); got != strings.TrimRight(want, " ") {
			t.Errorf("%q: %q, want %q", files, got, want)
		}
	}
}

// TestTestCommandAfterSetup: the tests run with what a set-up has installed in the sandbox.
func TestTestCommandAfterSetup(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "setup.py"), "")
	testkit.WriteFile(t, filepath.Join(dir, "tests/test_a.py"), "")
	testkit.WriteFile(t, filepath.Join(dir, "poetry.lock"), "")
	m := Machine{Home: home}
	if got := TestCommand(dir, m, []string{"x.egg-info", ".venv"}); got != ".venv/bin/python -m pytest" {
		t.Errorf("after a set-up: %s", got)
	}
	env := filepath.Join(home, ".cache/pypoetry/virtualenvs/x-"+poetryHash(t, dir)+"-py3.11")
	testkit.WriteFile(t, filepath.Join(env, "bin/python"), "")
	if got := TestCommand(dir, m, nil); got != "poetry run python -m pytest" {
		t.Errorf("with Poetry: %s", got)
	}
	m.Path = []string{home}
	if got := TestCommand(dir, m, nil); got != env+"/bin/python -m pytest" {
		t.Errorf("without Poetry: %s", got)
	}
}
