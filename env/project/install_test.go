package project

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/env/testkit"
)

// Dependencies are installed below the project, or in caches that move with it. Installed copies of the project itself
// are recognised by their paths.
func TestInstall(t *testing.T) {
	const venv = "python3 -m venv .venv && .venv/bin/python -m pip install -q -U pip && .venv/bin/pip install"
	for name, c := range map[string]struct {
		language                    string
		repo                        []string // names and contents
		commands, variables, copies []string
	}{
		"a lock file": {
			"typescript", []string{"package.json", `{"name": "a"}`, "package-lock.json", "", "go.mod", ""},
			[]string{"npm ci"}, nil, []string{"*/node_modules/a"},
		},
		"an extra": {
			"python", []string{"pyproject.toml", "[project]\n[project.optional-dependencies]\ndev = [\"tox\"]\ntests = [\n\"x\"]",
				"src/a/__init__.py", ""},
			[]string{venv + " -e '.[tests]' pytest"}, nil, []string{"*/site-packages/a"},
		},
		"an extra, with a dotted key": {
			"python", []string{"pyproject.toml", "[project]\nname = 'a'\noptional-dependencies.tests = [\n  \"x\",\n]\n[tool.x]\ndev = []\n"},
			[]string{venv + " -e '.[tests]' pytest"}, nil, nil,
		},
		"an extra of Poetry": {
			"python", []string{"pyproject.toml", "[build-system]\n[tool.poetry]\nname = 'a'\n[tool.poetry.extras]\ntest = ['x']\n"},
			[]string{venv + " -e '.[test]' pytest"}, nil, nil,
		},
		"an extra of setup.py": {
			"python", []string{"setup.py", "EXTRAS = {\n    'dev': ['a'],\n}"}, []string{venv + " -e '.[dev]' pytest"}, nil, nil,
		},
		"extras of what it can do": {
			"python", []string{"setup.cfg", "[options.extras_require]\ndocs =\n    x\ncrypto =\n    y>=3\n\n[x]\na = 1\n",
				"pyproject.toml", "[build-system]\n[project.optional-dependencies]\n\"fast-json\" = [\n  \"z\",\n]\ntest = [\"x\"]\n"},
			[]string{venv + " -e '.[test,fast-json,crypto]' pytest || .venv/bin/pip install -e '.[test]' pytest"}, nil, nil,
		},
		"many extras": {
			"python", []string{"pyproject.toml", "[project]\n[project.optional-dependencies]\na = []\nb = []\nc = []\nd = []\ne = []"},
			[]string{venv + " -e '.' pytest"}, nil, nil,
		},
		"a group": {
			"python", []string{"pyproject.toml", "[build-system]\n[dependency-groups]\ntest = [\"x\"]\n\n[tool.x]\n"},
			[]string{venv + " -e '.' --group test pytest"}, nil, nil,
		},
		"groups": {
			"python", []string{"pyproject.toml", "[project]\n[dependency-groups]\ntests = [\"x\"]\ndev = [{include-group = \"tests\"}, \"rich\"]\n"},
			[]string{venv + " -e '.' --group tests --group dev pytest || .venv/bin/pip install -e '.' --group tests pytest"}, nil, nil,
		},
		"requirements": {
			"python", []string{"requirements.txt", "x\n", "tests/test_a.py", "", "setup.cfg", ""},
			[]string{"python3 -m venv .venv && .venv/bin/pip install -r requirements.txt pytest"}, nil, nil,
		},
		"go": {
			"go", []string{"go.mod", ""}, []string{"go mod download"},
			[]string{"GOMODCACHE=/testbed/.deps/go", "GOTOOLCHAIN=auto"}, nil,
		},
		"go, vendored": {"go", []string{"go.mod", "", "vendor/modules.txt", ""}, nil, nil, nil},
		"rust": {
			"rust", []string{"Cargo.toml", ""}, []string{"cargo fetch"}, []string{"CARGO_HOME=/testbed/.deps/cargo", "CARGO_TARGET_DIR=/tmp/target"}, nil,
		},
		"java": {
			"java", []string{"pom.xml", "<project/>"},
			[]string{"mvn -B -Denforcer.skip=true -Dmaven.test.failure.ignore=true -Dsurefire.timeout=60 test"},
			[]string{"MAVEN_OPTS=-Dmaven.repo.local=/testbed/.deps/m2 -Drat.skip=true -Dlicense.skip=true " +
				"-Dcheckstyle.skip=true -Dspotless.check.skip=true -Danimal.sniffer.skip=true -XX:TieredStopAtLevel=1"}, nil,
		},
		"java, by gradle": {
			"java", []string{"build.gradle.kts", "", "gradlew", ""},
			[]string{"mkdir -p /tmp/gradle && echo 'allprojects { tasks.withType(Test) { doFirst { throw new " +
				"StopExecutionException() } } }' >/tmp/gradle/init.gradle && " +
				"./gradlew --console=plain --no-daemon -Dorg.gradle.caching=false test"},
			[]string{"GRADLE_USER_HOME=/tmp/gradle"}, nil,
		},
		"nothing": {"c", []string{"CMakeLists.txt", ""}, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for i := 0; i+1 < len(c.repo); i += 2 {
				testkit.WriteFile(t, filepath.Join(dir, c.repo[i]), c.repo[i+1])
			}
			commands, variables := Install(dir, "/testbed", c.language, Machine{})
			if !slices.Equal(commands, c.commands) || !slices.Equal(variables, c.variables) {
				t.Errorf("%q with %q, want %q with %q", commands, variables, c.commands, c.variables)
			}
			if copies := Copies(dir); !slices.Equal(copies, c.copies) {
				t.Errorf("copies are at %q, want %q", copies, c.copies)
			}
		})
	}
}

// A build that a package runs before its tests also runs before a part of them.
func TestBuild(t *testing.T) {
	for manifest, want := range map[string][]string{
		`{"scripts": {"pretest": "npm run build && npm run lint", "test": "mocha"}}`: {"npm run build >/dev/null 2>&1"},
		`{"scripts": {"test": "yarn build:node && jest"}}`:                           {"npm run build:node >/dev/null 2>&1"},
		`{"scripts": {"build": "tsc", "test": "jest"}}`:                              nil,
		`{"scripts": {"pretest": "rimraf b && tsc -p t.json", "test": "c8 mocha b/*.js && tsc"}}`: {
			`PATH="$PWD/node_modules/.bin:$PATH" tsc -p t.json >/dev/null 2>&1`},
		`{"scripts": {"pretest": "rimraf b && cross-env NODE_ENV=test npm run build"}}`: {
			"NODE_ENV=test npm run build >/dev/null 2>&1"},
		`{"scripts": {"prepare": "tshy", "pretest": "npm run prepare"}}`:              {"npm run prepare >/dev/null 2>&1"},
		`{"scripts": {"compile": "tsc", "test": "mocha 'out/**/*.spec.js' -s 0"}}`:    {"npm run compile >/dev/null 2>&1"},
		`{"scripts": {"pretest": "tsc --noEmit", "test": "mocha -r babel-register"}}`: nil,
	} {
		dir := t.TempDir()
		testkit.WriteFile(t, filepath.Join(dir, "package.json"), manifest)
		if got := Build(dir, "javascript"); !slices.Equal(got, want) {
			t.Errorf("%s is built by %q, want %q", manifest, got, want)
		}
	}
}

// What Gradle has downloaded in a set-up is there in later sandboxes. The rest of its directory is not.
func TestKeepGradle(t *testing.T) {
	dir, home := t.TempDir(), filepath.Join(t.TempDir(), "gradle")
	run := func(line string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(line, gradleHome, home))
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	run(KeepGradle)
	if lines := Prepare(dir); lines != nil {
		t.Errorf("nothing is kept, but %q", lines)
	}
	for _, name := range []string{"caches/modules-2/a/b.jar", "caches/8.5/javaCompile/x", "wrapper/dists/y"} {
		testkit.WriteFile(t, filepath.Join(home, name), name)
	}
	run(KeepGradle)
	if err := os.RemoveAll(home); err != nil {
		t.Fatal(err)
	}
	for _, line := range Prepare(dir) {
		run(strings.Replace(line, " /tmp ", " "+filepath.Dir(home)+" ", 1))
	}
	for name, want := range map[string]bool{
		"caches/modules-2/a/b.jar": true, "caches/8.5/javaCompile/x": false, "wrapper/dists/y": true,
	} {
		if got := exists(filepath.Join(home, name)); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}
