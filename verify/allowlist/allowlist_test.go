package allowlist

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"deepswe/env"
)

func text(s string) Version { return Version{Kind: env.KindFile, Data: []byte(s)} }

// Each group of names is withheld for the reason before it, in any repository. Names without a reason are taken.
func TestByName(t *testing.T) {
	t.Parallel()
	for reason, names := range map[Reason]string{
		Tests: "tests/test_a.py test_a.py pkg/a_test.py django/tests.py tests/data/x.json x/__tests__/y.js a_test.go src/a.test.tsx " +
			"src/a.spec.ts spec/a.rb test/fixtures/a.json FooTest.java test/support.py test.js lib/__snapshots__/a.snap",
		Configuration: "conftest.py a/b/conftest.py pytest.ini pytest.toml .pytest.toml tox.ini setup.cfg pyproject.toml " +
			"sitecustomize.py jest.config.mjs karma.conf.js .mocharc.yml vitest.workspace.ts jest.setup.js .babelrc.json .nycrc " +
			".cargo/config.toml .mvn/jvm.config tsconfig.json tsconfig.build.json .env .envrc .yarnrc.yml .pnp.cjs .pnpmfile.cjs " +
			"packages/a/.babelrc.js .github/workflows/test.yml web/.swcrc",
		Build: "package.json web/package.json setup.py go.mod go.work Makefile pom.xml build.gradle build.rs Cargo.toml " +
			"requirements.txt requirements-dev.txt dev-requirements.txt Gemfile Gruntfile.js gulpfile.babel.js CMakeLists.txt x.cmake",
		Metadata: "layered-1.0.dist-info/entry_points.txt a.egg-info/PKG-INFO evil.pth src/x.egg-link " +
			"src/main/resources/META-INF/services/org.junit.platform.launcher.LauncherSessionListener",
		Compiled: "__pycache__/a.cpython-311.pyc a.pyc a.cpython-311-x86_64-linux-gnu.so libx.so.1 a.syso a.node A.class lib/a.jar",
		ThirdParty: ".venv/lib/python3/site-packages/x.py node_modules/jest/index.js vendor/github.com/a/b.go venv/x.py " +
			"tools/vendor/a/b.go tools/vendor/modules.txt vendor/pytest/__init__.py api/venv/bin/python " +
			"x/site-packages/pytest/__init__.py",
		"": "src/a.py django/test/client.py testing/mod.py latest.js contest.py attest.go README.md jest.md src/conf.py " +
			"babel/core.py karma.py lib/configuration.rb ABTest.tsx commands/test.py data/defaults.json defaults.toml go.sum " +
			"layered/fixtures/a.json index.js bin/tool CONTRIBUTING.md docs/conf.py assets/logo.png a_pb2.py gen/tables.go " +
			"LICENSE.txt templates/base.html locale/de.po invoke/vendor/yaml/__init__.py web/vendor/jquery.js " +
			"desk/venv/__init__.py locale/units.so.json unit_spec.go desk/units.spec.json",
	} {
		for name := range strings.FieldsSeq(names) {
			if got := ByName(name); got != reason {
				t.Errorf("ByName(%q) = %q, want %q", name, got, reason)
			}
		}
	}
}

// A file of the product may be named like a test: the sources that load it show what it is.
func TestLoads(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		source, line, target string
		want                 bool
	}{
		{"src/weft/render.py", "from .tests import TESTS", "src/weft/tests.py", true},
		{"src/weft/render.py", "from . import filters, tests  # the checks", "src/weft/tests.py", true},
		{"src/weft/ext/a.py", "    from ..tests import TESTS as T", "src/weft/tests.py", true},
		{"docs/extra.py", "import weft.tests", "src/weft/tests.py", true},
		{"weft/a.py", "from weft import (tests, filters)", "weft/tests.py", true},
		{"weft/a.py", "from .tests.runner import Runner", "weft/tests/runner.py", true},
		{"weft/a.py", "from .tests import runner", "weft/tests/__init__.py", true},
		{"weft/a.py", "import tests", "weft/tests.py", false},
		{"weft/a.py", "# from .tests import TESTS", "weft/tests.py", false},
		{"weft/a.py", "from .x import TESTS", "weft/tests.py", false},
		{"weft/tests.py", "from .tests import TESTS", "weft/tests.py", false},
		{"tests/test_a.py", "from weft.tests import TESTS", "weft/tests.py", false},
		{"conftest.py", "from weft.tests import TESTS", "weft/tests.py", false},
		{"lib/reporters/index.js", "exports.Spec = require('./spec');", "lib/reporters/spec.js", true},
		{"index.js", "export * from './lib/spec/index.js'", "lib/spec/index.js", true},
		{"src/a.ts", `import {unit} from "../src/spec/unit.js";`, "src/spec/unit.ts", true},
		{"src/a.ts", `const s = await import("./spec")`, "src/spec/index.ts", true},
		{"src/a.ts", "import {a} from './spec/units'", "src/spec/unit.ts", false},
		{"src/a.ts", "import {a} from 'spec/unit'", "src/spec/unit.ts", false},
		{"src/a.test.ts", "import {a} from './spec/unit'", "src/spec/unit.ts", false},
	} {
		if got := Loads(tc.source, tc.line, tc.target); got != tc.want {
			t.Errorf("Loads(%q, %q, %q) = %v, want %v", tc.source, tc.line, tc.target, got, tc.want)
		}
		term, _, ok := Loaders(tc.target)
		if !ok || tc.want && !regexp.MustCompile(term).MatchString(tc.line) {
			t.Errorf("a search for %s does not find %q", term, tc.line)
		}
	}
	for _, name := range []string{"a_test.go", "tests/helpers.py", "test/support.js"} {
		if _, _, ok := Loaders(name); ok {
			t.Errorf("Loaders(%q) found a search, want none", name)
		}
	}
}

// A patch may add product code with the name of a test if other sources of the patch load it.
func TestAdopt(t *testing.T) {
	t.Parallel()
	const lib = "lib/index.js"
	for _, tc := range []struct {
		name, path, text, by, line string
		want                       Reason
	}{
		{"a new directory", "lib/spec/parse.js", "", lib, "const p = require('./spec/parse');", ""},
		{"a directory for each package", "packages/a/src/spec/a.ts", "", "packages/a/src/b.ts", "import a from './spec/a.js'", ""},
		{"a module called spec", "lib/spec.mjs", "", "lib/index.mjs", "export * from './spec.mjs'", ""},
		{"a module called tests", "weft/tests.py", "def test_odd(n):\n    return n % 2\n", "weft/a.py", "from .tests import test_odd", ""},
		{"nothing loads it", "lib/spec/parse.js", "", lib, "const p = require('./parse');", Tests},
		{"only a test loads it", "lib/spec/parse.js", "", "lib/a.test.js", "const p = require('./spec/parse');", Tests},
		{"it is at the root", "spec/parse.js", "", lib, "const p = require('../spec/parse');", Tests},
		{"the directory has tests", "web/spec/parse.js", "", "web/a.js", "const p = require('./spec/parse');", Tests},
		{"hidden tests come there", "api/test/parse.js", "", "api/a.js", "const p = require('./test/parse');", Tests},
		{"the script names the directory", "bin/spec/parse.js", "", "bin/a.js", "const p = require('./spec/parse');", Tests},
		{"the name of a runner's test", "lib/spec/parse.spec.js", "", lib, "const p = require('./spec/parse.spec');", Tests},
		{"the name of pytest's tests", "weft/test_odd.py", "", "weft/a.py", "from . import test_odd", ""},
		{"another such name", "src/weft/ab_test.py", "class Split:\n    x = 1\n", "src/weft/a.py",
			"from .ab_test import Split", ""},
		{"a script with such a name", "lib/ab-test.js", "", lib, "require('./ab-test')", ""},
		{"the name of a test, with a test", "weft/test_odd.py", "def test_a():\n    pass\n", "weft/a.py",
			"from . import test_odd", Tests},
		{"the name of a test, with a plugin", "weft/test_odd.py", "pytest_plugins = 'x'\n", "weft/a.py",
			"from . import test_odd", Tests},
		{"the name of a test, beside tests", "web/py/test_odd.py", "", "web/py/a.py", "from . import test_odd", Tests},
		{"the name of a test, at the root", "test_odd.py", "", "a.py", "import test_odd", Tests},
		{"the name of a hidden test", "api/app/test_odd.py", "", "api/app/a.py", "from . import test_odd", Tests},
		{"the name of Go's tests", "ab_test.go", "package a\n", "a.go", "package a\n", Tests},
		{"data that is embedded", "testdata/a.txt", "x", "a.go", "//go:embed testdata/a.txt\nvar a string", ""},
		{"data that is embedded with others", "x/testdata/b/a.txt", "x", "x/a.go",
			"//go:embed \"testdata\"\nvar a embed.FS", ""},
		{"data that a test embeds", "testdata/a.txt", "x", "a_test.go", "//go:embed testdata/a.txt\nvar a string", Tests},
		{"other data than is embedded", "testdata/a.txt", "x", "a.go", "//go:embed testdata/b.txt\nvar a string", Tests},
		{"settings that are embedded", "testdata/conftest.py", "x", "a.go", "//go:embed testdata\nvar a embed.FS", Tests},
		{"data that a module reads", "weft/testdata/a.txt", "x",
			"weft/a.py", `P = Path(__file__).parent / "testdata" / "a.txt"`, ""},
		{"data that another package reads", "weft/testdata/a.txt", "x", "other/a.py", `P = Path("testdata")`, Tests},
		{"a directory of tests", "weft/tests/odd.py", "", "weft/a.py", "from .tests import odd", Tests},
		{"it declares tests", "lib/spec/parse.js", "describe('a', () => {})", lib, "const p = require('./spec/parse');", Tests},
		{"a directory for modules of the product", "src/specs/b.ts", "", "src/a.ts", "import b from './specs/b'", ""},
		{"tests in one for modules of the product", "src/specs/b.test.ts", "", "src/a.ts", "import b from './specs/b.test'", Tests},
		{"a directory in one of tests", "tests/spec/b.js", "", lib, "require('../tests/spec/b')", Tests},
		{"a directory in one of tests, further down", "web/tests/spec/b.js", "", lib, "require('../web/tests/spec/b')", Tests},
		{"a command that is found by its name", "lib/commands/test.js", "", lib, "require(path.join(__dirname, 'commands', name))", ""},
		{"one of a list", "lib/commands/test.js", "", "lib/commands/a.js", "for (const f of fs.readdirSync(__dirname))", ""},
		{"one that is imported", "lib/commands/test.js", "", lib, "await import(`./commands/${name}.js`)", ""},
		{"a plugin that is found by its package", "weft/ops/paint_test.py", "", "weft/ops/__init__.py",
			"for m in pkgutil.iter_modules(__path__):", ""},
		{"one of a package below", "weft/ops/paint_test.py", "", "weft/a.py",
			`import_module(f"weft.ops.{name}")`, ""},
		{"a plugin of another package", "weft/ops/paint_test.py", "", "weft/a.py",
			`import_module(f"weft.other.{name}")`, Tests},
		{"a plugin elsewhere", "weft/ops/paint_test.py", "", "other/a.py", "iter_modules(ops)", Tests},
		{"a plugin with a test", "weft/ops/paint_test.py", "def test_a():\n    pass\n", "weft/ops/__init__.py",
			"for m in pkgutil.iter_modules(__path__):", Tests},
		{"a file that was there", "lib/old/spec.js", "", lib, "require('./old/spec')", Tests},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := New(Repository{
				Files:    []string{lib, "web/spec/a.spec.js", "lib/old/spec.js", "src/specs/a.ts", "web/py/test_a.py"},
				Products: []string{"src/specs"}, Hidden: []string{"api/test/a.js", "api/app/test_odd.py"},
				Script: "mocha bin/spec\n",
			})
			all := []Change{{Path: tc.path, After: text(tc.text)}, {Path: tc.by, After: text("\n" + tc.line + "\n")}}
			if tc.path == "lib/old/spec.js" {
				all[0].Before = text("x")
			}
			l.Adopt(all)
			if got := l.Judge(all[0]); got.Reason != tc.want {
				t.Errorf("withheld for %q, want %q", got.Reason, tc.want)
			}
		})
	}
	l := New(Repository{})
	chain := []Change{
		{Path: "lib/spec/b.js", After: text("")}, {Path: "lib/spec/a.js", After: text("require('./b')\n")},
		{Path: lib, After: text("require('./spec/a')\n")},
	}
	if l.Adopt(chain); l.Judge(chain[0]).Reason != "" {
		t.Error("a module of a module of the product is withheld")
	}
	// A long chain of modules is followed to its end, even if the patch lists the last module first.
	const links = 2000
	chain = []Change{{Path: lib, After: text("require('./spec/m0')\n")}}
	for i := range links {
		chain = append(chain, Change{
			Path: fmt.Sprintf("lib/spec/m%d.js", i), After: text(fmt.Sprintf("require('./m%d')\n", i+1)),
		})
	}
	slices.Reverse(chain)
	l = New(Repository{})
	if l.Adopt(chain); l.Judge(chain[0]).Reason != "" {
		t.Error("the last module of a long chain is withheld")
	}
}

// The parts of an honest fix are taken, and files that could affect the test runner are withheld.
func TestJudge(t *testing.T) {
	t.Parallel()
	library := Repository{
		Files: []string{
			"layered/__init__.py", "layered/merge.py", "coverage/__init__.py", "io.py", "json/data.txt", "src/x/__init__.py",
			"bin/test", "checks/odd.py", "checks/sub/deep.py", "lib/a.py",
		},
		Solution: []string{"layered/merge.py", "odd/solved.py"},
		Expected: []string{
			"checks/odd.py::test_a", "layered/docs.py::layered.docs.Merge.over", "layered/merge.py::layered.merge.merge",
			"odd/solved.py::test_b", "checks/test_odd.py::test_c",
			"test_b (module.Case)",
		},
		Hidden: []string{"checks/odd.py"},
		Loaded: []string{"layered/tests.py", "checks/test_odd.py"},
		Script: "cd /testbed\nPYTHONPATH=extra bin/test -C --verbose ./tools/run.py\npytest checks/odd.py\n",
	}
	binary := func(s string) Version { return text(s) }
	link := func(target string) Version { return Version{Kind: env.KindSymlink, Target: target} }
	for _, tc := range []struct {
		name   string
		change Change
		want   Reason
	}{
		{"a source", Change{Path: "layered/merge.py", Before: text("a"), After: text("b")}, ""},
		{"a new module at the root", Change{Path: "helpers.py", After: text("b")}, ""},
		{"a new package", Change{Path: "layered/json/__init__.py", After: text("")}, ""},
		{"a module of a package, named like Python's", Change{Path: "layered/types.py", After: text("")}, ""},
		{"a data file that the fix loads", Change{Path: "layered/table.json", After: text("{}")}, ""},
		{"an archive that the fix loads", Change{Path: "layered/zones.zip", After: text("PK\x03\x04")}, ""},
		{"a source called tests", Change{Path: "layered/tests.py", Before: text("a"), After: text("b")}, ""},
		{"one with expected tests", Change{Path: "checks/test_odd.py", Before: text("a"), After: text("b")}, Tests},
		{"a document", Change{Path: "CONTRIBUTING.md", After: text("= short test summary info =")}, ""},
		{"a link inside", Change{Path: "docs/README.md", After: link("../README.md")}, ""},
		{"a removed source", Change{Path: "layered/old.py", Before: text("a")}, ""},
		{"a link out", Change{Path: "layered/etc", After: link("/etc")}, ThirdParty},
		{"a relative link out", Change{Path: "layered/etc", After: link("../../etc")}, ThirdParty},
		{"a link in the place of the tests", Change{Path: "tests", After: link("layered")}, Tests},
		{"a link that shadows", Change{Path: "unittest", After: link("layered")}, Shadow},
		{"a module that shadows Python's", Change{Path: "difflib.py", After: text("")}, Shadow},
		{"a package that shadows", Change{Path: "iniconfig/__init__.py", After: text("")}, Shadow},
		{"a shadow below src", Change{Path: "src/fnmatch.py", After: text("")}, Shadow},
		{"a shadow beside the tests", Change{Path: "checks/sub/re.py", After: text("")}, ""},
		{"a shadow in the tests' own directory", Change{Path: "checks/re.py", After: text("")}, Shadow},
		{"a shadow in the script's path", Change{Path: "extra/re.py", After: text("")}, Shadow},
		{"a shadow beside the script's program", Change{Path: "tools/enum.py", After: text("")}, Shadow},
		{"a plugin's name", Change{Path: "pytest_evil.py", After: text("")}, Shadow},
		{"a directory that becomes a package", Change{Path: "json/__init__.py", After: text("")}, Shadow},
		{"a module that the repository has", Change{Path: "io.py", Before: text("a"), After: text("b")}, ""},
		{"a part of the repository's own package", Change{Path: "coverage/control.py", After: text("b")}, ""},
		{"a command of another language", Change{Path: "cmd/tool/main.go", After: text("package main")}, ""},
		{"not a module", Change{Path: "pytest.md", After: text("b")}, ""},
		{"a program", Change{Path: "layered/tool", After: binary("\x7fELF\x02")}, Compiled},
		{"a first C file", Change{Path: "layered/speed.c", After: text("int x;")}, Compiled},
		{"an expected test", Change{Path: "checks/odd.py", Before: text("a"), After: text("b")}, Tests},
		{"an expected test in what the solution changes", Change{Path: "odd/solved.py", After: text("b")}, ""},
		{"code with its tests in its documentation", Change{Path: "layered/docs.py", After: text("b")}, ""},
		{"the script's program", Change{Path: "bin/test", Before: text("a"), After: text("b")}, Scripted},
		{"the script's other program", Change{Path: "tools/run.py", After: text("b")}, Scripted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := New(library).Judge(tc.change); got.Reason != tc.want {
				t.Errorf("withheld for %q, want %q", got.Reason, tc.want)
			}
		})
	}
}

// A module shadows another only in a directory from which the runner imports: for pytest, that is the first directory
// above a test that is not a package, and the one above its conftest.py, but none further up.
func TestJudgeShadows(t *testing.T) {
	t.Parallel()
	r := Repository{
		Files: []string{
			"tools/gen.py", "tools/tests/test_gen.py", "api/v1/checks/__init__.py", "api/v1/app.py", "jobs/conftest.py",
			"jobs/daily/checks/odd.py", "web/app/__init__.py", "web/app/checks/__init__.py", "web/app/checks/odd.py",
			"cli/app/__init__.py", "bin/tool",
		},
		Expected: []string{
			"tools/tests/test_gen.py::test_a", "api/v1/checks/odd.py::test_b", "jobs/daily/checks/odd.py::test_c",
			"web/app/checks/odd.py::test_d",
		},
		Hidden: []string{"api/v1/checks/odd.py"},
		Script: "python scripts/db/setup.py\nbin/tool\npytest cli/app/checks\n",
	}
	first, removed := Change{After: text("")}, Change{Before: text("")}
	first.Path, removed.Path = "tools/tests/__init__.py", "web/app/checks/__init__.py"
	for _, tc := range []struct {
		path string
		also []Change
		want Reason
	}{
		{"tools/types.py", nil, ""},
		{"tools/types.py", []Change{{Path: "jobs/daily/__init__.py", After: text("")}}, ""},
		{"tools/types.py", []Change{first}, Shadow},
		{"tools/tests/types.py", nil, Tests},
		{"api/types.py", nil, ""},
		{"api/v1/types.py", nil, Shadow},
		{"api/v1/checks/types.py", nil, ""},
		{"jobs/types.py", nil, Shadow},
		{"jobs/daily/types.py", nil, ""},
		{"jobs/daily/checks/types.py", nil, Shadow},
		{"web/types.py", nil, Shadow},
		{"web/app/checks/types.py", nil, ""},
		{"web/app/checks/types.py", []Change{removed}, Shadow},
		{"scripts/types.py", nil, ""},
		{"scripts/db/types.py", nil, Shadow},
		{"types.py", nil, Shadow},
		{"bin/types.py", nil, Shadow},
		{"cli/app/checks/types.py", nil, Shadow},
		{"cli/types.py", nil, ""},
		{"cli/types.py", []Change{{Path: "cli/app/checks/__init__.py", After: text("")}}, Shadow},
	} {
		l := New(r)
		c := Change{Path: tc.path, After: text("")}
		l.Adopt(append([]Change{c}, tc.also...))
		if got := l.Judge(c).Reason; got != tc.want {
			t.Errorf("%s beside %+v is withheld for %q, want %q", tc.path, tc.also, got, tc.want)
		}
	}
}

// Files that a generator copies into new projects are data, unless a runner starts in their directory.
func TestJudgeTemplates(t *testing.T) {
	t.Parallel()
	r := Repository{
		Files: []string{
			"src/kiln/__init__.py", "src/kiln/cli/test_cli.py", "src/kiln/templates/lib/tests/test_it.py",
			"src/kiln/data/README.md", "libs/core/core.py",
		},
		Expected: []string{"src/kiln/checks/odd.py::test_a"}, Hidden: []string{"src/kiln/checks/odd.py"},
		Script: "cd src/kiln/plugin && pytest\n",
	}
	for name, want := range map[string]Reason{
		"src/kiln/data/pyproject.toml": "", "src/kiln/data/setup.cfg": "", "src/kiln/templates/lib/tox.ini": "",
		"src/kiln/data/MANIFEST.in": "", "src/kiln/templates/pyproject.toml": "",
		"pyproject.toml": Configuration, "src/pyproject.toml": Configuration, "src/kiln/pyproject.toml": Configuration,
		"src/kiln/checks/pyproject.toml": Configuration, "src/kiln/plugin/setup.cfg": Configuration,
		"src/kiln/cli/tox.ini": Configuration, "libs/core/pyproject.toml": Configuration, "templates/tox.ini": Configuration,
		"src/kiln/data/conftest.py": Configuration, "src/kiln/data/setup.py": Build, "src/kiln/data/a.pth": Metadata,
	} {
		for kind, c := range map[string]Change{
			"added": {After: text("a")}, "changed": {Before: text("b"), After: text("a")},
		} {
			c.Path = name
			if got := New(r).Judge(c).Reason; got != want {
				t.Errorf("%s, %s, is withheld for %q, want %q", name, kind, got, want)
			}
		}
		link := Change{Path: name, After: Version{Kind: env.KindSymlink, Target: "README.md"}}
		if got := New(r).Judge(link).Reason; got == "" {
			t.Errorf("a link called %s is taken, want it withheld", name)
		}
	}
}

// BenchmarkAdopt adds many files to a large repository.
func BenchmarkAdopt(b *testing.B) {
	var r Repository
	for i := range 40_000 {
		r.Files = append(r.Files, fmt.Sprintf("src/pkg%d/sub%d/file%d.js", i%40, i%400, i))
	}
	var all []Change
	for i := range 200 {
		all = append(all, Change{Path: fmt.Sprintf("lib%d/spec/file.js", i), After: text("x")})
	}
	for b.Loop() {
		New(r).Adopt(all)
	}
}

func TestJudgeManifests(t *testing.T) {
	t.Parallel()
	const pack = `{"name": "q", "type": "module", "exports": "./index.js", "scripts": {"test": "mocha"}}`
	const mod = "module example.com/a\n\ngo 1.19\n\nrequire example.com/b v1.0.0\n"
	const lists = "project(a)\nadd_library(a\n  a.c\n)\n"
	for _, tc := range []struct {
		name, path, before, after string
		want                      Reason
		instead                   string
	}{
		{"where the package begins", "package.json", pack,
			strings.Replace(pack, "index.js", "lib/main.js", 1), "", ""},
		{"its version, written anew", "package.json", pack,
			`{"version":"2.0.0","name":"q","type":"module","exports":"./index.js","scripts":{"test":"mocha"}}`, "", ""},
		{"its test command", "package.json", pack, strings.Replace(pack, "mocha", "true", 1), Build, `"test": "mocha"`},
		{"the command and the beginning", "package.json", pack,
			strings.NewReplacer("mocha", "true", "index.js", "main.js").Replace(pack), Build, `"exports": "./main.js"`},
		{"its name", "package.json", pack, strings.Replace(pack, `"q"`, `"chai"`, 1), Build, `"name": "q"`},
		{"a new one that says how to read files", "cjs/package.json", "", `{"type": "commonjs"}`, "", ""},
		{"a new one that stands for another", "x/package.json", "", `{"name": "jest", "main": "a.js"}`, Build, `"main": "a.js"`},
		{"no JSON", "package.json", pack, "{", Build, ""},
		{"a requirement", "go.mod", mod, mod + "require example.com/c v1.2.3\n", "", ""},
		{"a version of Go", "go.mod", mod, strings.Replace(mod, "1.19", "1.22", 1), "", ""},
		{"a replacement", "go.mod", mod, mod + "replace example.com/b => ./evil\n", Build, ""},
		{"a replacement in a block", "go.mod", mod, mod + "replace (\n\texample.com/b => ./evil\n)\n", Build, ""},
		{"a toolchain", "go.mod", mod, mod + "toolchain go1.99\n", Build, ""},
		{"a new module", "x/go.mod", "", mod, Build, ""},
		{"a source more to compile", "CMakeLists.txt", lists, strings.Replace(lists, "a.c", "a.c\n  b.c", 1), "", ""},
		{"a command to run", "CMakeLists.txt", lists, lists + "add_test(NAME a COMMAND true)\n", Build, ""},
		{"a dependency", "pyproject.toml", "[project]\n", "[project]\ndependencies = [\"x\"]\n", Configuration, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			before := text(tc.before)
			if tc.before == "" {
				before = Version{}
			}
			got := New(Repository{}).Judge(Change{Path: tc.path, Before: before, After: text(tc.after)})
			if got.Reason != tc.want {
				t.Errorf("withheld for %q, want %q", got.Reason, tc.want)
			}
			if !strings.Contains(string(got.Instead), tc.instead) || tc.instead == "" && got.Instead != nil {
				t.Errorf("instead there is %s, want %s in it", got.Instead, tc.instead)
			}
		})
	}
}

// Whatever a package.json holds, the merged file keeps every field that could affect a runner.
func FuzzMergePackage(f *testing.F) {
	f.Add([]byte(`{"name": "a", "scripts": {"test": "x"}}`), []byte(`{"name": "b", "type": "module", "scripts": null}`))
	f.Add([]byte(`{}`), []byte(`{"main": 1e400, "main": {}}`))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		merged, _ := mergePackage(before, after)
		if merged == nil {
			return
		}
		again, same := mergePackage(merged, merged)
		if again != nil || !same {
			t.Errorf("merged %q into %q: %q, which is not stable", after, before, merged)
		}
		reverted, same := mergePackage(before, merged)
		if reverted != nil || !same {
			t.Errorf("merged %q into %q: %q, which changes more than the package's own fields", after, before, merged)
		}
	})
}
