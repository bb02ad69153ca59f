package allowlist

import (
	"regexp"
	"strings"
	"testing"

	"deepswe/env"
)

// Data that the product loads is taken, unless a runner, a tool or a test would read it without being told to.
func TestAdoptData(t *testing.T) {
	t.Parallel()
	const py, js = "desk/amounts.py", "lib/index.js"
	for _, tc := range []struct {
		path, by, line string
		want           Reason
	}{
		{"desk/specs/openapi.yaml", py, "HERE.joinpath(*('specs', 'openapi.yaml'))", ""},
		{"desk/specs/openapi.yaml", py, "for f in (HERE / 'specs').glob('*'):", ""},
		{"desk/specs/openapi.yaml", "desk/web/a.py", "SPEC = 'desk/specs/openapi.yaml'", ""},
		{"desk/specs/openapi.yaml", "desk/web/a.py", "SPEC = ROOT / 'openapi.yaml'", ""},
		{"desk/data/units.snap", py, "'data', 'units.snap'", ""},
		{"desk/templates/project/Makefile", py, "'templates', 'project', 'Makefile'", ""},
		{"desk/templates/find.cmake", py, "'templates', 'find.cmake'", ""},
		{"desk/cmake/find.cmake", py, "'cmake', 'find.cmake'", Build},
		{"web/templates/tox.ini", "web/make.go", `make("templates/tox.ini")`, ""},
		{"desk/requirements.txt", py, "'requirements.txt'", ""},
		{"lib/specs/units.json", js, "require('./specs/units.json')", ""},
		{"lib/__fixtures__/units.json", js, "require('./__fixtures__/units')", ""},
		{"lib/settings.test.json", js, "readFileSync(`${__dirname}/settings.test.json`)", ""},
		{"specs/units.txt", "tally.go", "//go:embed specs/units.txt", ""},
		{"x/testdata/tool.js", "x/a.go", "//go:embed testdata", ""},
		{"pkg/specs/a.json", "pkg/a.py", "'specs/a.json'", ""}, // the tests are in pkg/tests

		{"desk/specs/openapi.yaml", py, "'specs', 'other.yaml'; # openapi.yaml", ""},
		{"desk/specs/openapi.yaml", "desk/web/a.py", "'specs'; # openapi.yaml", Tests},
		{"desk/specs/openapi.yaml", "desk/test_a.py", "'specs/openapi.yaml'", Tests},
		{"desk/specs/openapi.yaml", "README.md", "'specs/openapi.yaml'", Tests},
		{"desk/more/README.txt", "desk/web/a.py", "'README.txt'", ""},
		{"desk/specs/README.txt", "desk/web/a.py", "'README.txt'", Tests}, // another file has that name
		{"desk/specs/a.py", py, "'specs/a.py'", ""},                       // a module of the product
		{"lib/specs/a.js", js, "'./specs/a.js'", Tests},
		{"lib/specs/run", js, "'./specs/run'", Tests},
		{"tests/data/new.json", py, "'tests/data/new.json'", Tests},
		{"pkg/tests/new.json", "pkg/a.py", "'tests/new.json'", Tests},
		{"pkg/specs/tests/a.json", "pkg/a.py", "'specs/tests/a.json'", Tests},
		{"spec/data/new.json", js, "'../spec/data/new.json'", Tests},
		{"testdata/new.json", "tally.go", "//go:embed testdata/*", Tests},
		{"src/settings.test.json", "src/a.js", "'./settings.test.json'", Tests},
		{"src/__snapshots__/a.snap", "src/a.js", "'./__snapshots__/a.snap'", Tests},
		{"src/a.snap", "src/a.js", "'./a.snap'", Tests},
		{"lib/a.test.js.snap", js, "'./a.test.js.snap'", Tests},
		{"lib/snapshots/a.snap", js, "'./snapshots/a.snap'", Tests},
		{"lib/__mocks__/chai.json", js, "'./__mocks__/chai.json'", Tests},
		{"bin/specs/a.json", "bin/a.py", "'specs/a.json'", Tests},
		{"lib/specs/solved.json", js, "'./specs/solved.json'", Tests},
		{"settings.test.json", "index.js", "'./settings.test.json'", Tests},
		{"Makefile", "a.py", "'Makefile'", Build},
		{"desk/tools/Makefile", "desk/tools/a.py", "'Makefile'", Build},
		{"web/tox.ini", "web/make.go", `make("web/tox.ini")`, Configuration},
		{"pkg/requirements.txt", "pkg/a.py", "'requirements.txt'", Build},
		{"lib/specs/package.json", js, "require('./specs/package.json')", Tests},
		{"lib/specs/tsconfig.test.json", js, "require('./specs/tsconfig.test.json')", Tests},
		{"lib/templates/Cargo.toml", js, "'./templates/Cargo.toml'", Build},
		{"desk/conftest.py", py, "from . import conftest", Configuration},
		{"desk/setup.py", py, "from . import setup", Build},
		{"desk/specs/conftest.py", py, "'specs/conftest.py'", Configuration},
		{"desk/specs/pytest.ini", py, "'specs/pytest.ini'", Tests},
		{"desk/specs/a.pth", py, "'specs/a.pth'", Metadata},
		{"desk/specs/.env", py, "'specs/.env'", Tests},
	} {
		r := Repository{
			Files: []string{
				py, js, "README.txt", "tests/test_a.py", "spec/models/a_spec.rb", "src/a.test.js", "pkg/tests/test_a.py",
			},
			Expected: []string{"tests/test_a.py::test_a", "pkg/tests/test_a.py::test_b"},
			Hidden:   []string{"testdata/amounts.csv"}, Solution: []string{"lib/specs/solved.json"},
			Script: "pytest tests\nbin/check bin/specs\n",
		}
		content := "x"
		if tc.path == "lib/specs/run" {
			content = "#!/bin/sh\n"
		}
		all := []Change{{Path: tc.path, After: text(content)}, {Path: tc.by, After: text(tc.line + "\n")}}
		l := New(r)
		l.Adopt(all)
		if got := l.Judge(all[0]).Reason; got != tc.want {
			t.Errorf("%s, which %s names by %s, is withheld for %q, want %q", tc.path, tc.by, tc.line, got, tc.want)
		}
		if tc.want == "" && !strings.Contains(tc.line, "require") && ByName(tc.path) != "" {
			if term, _ := Mentions(tc.path); !regexp.MustCompile(term).MatchString(tc.line) {
				t.Errorf("a search for %s does not find %q", term, tc.line)
			}
		}
	}
}

// Only new data is taken. The source that names it may be one that the repository already had.
func TestAdoptNamedData(t *testing.T) {
	t.Parallel()
	const name = "lib/specs/units.json"
	added := Change{Path: name, After: text("{}")}
	changed, link := added, added
	changed.Before = text("{ }")
	link.After = Version{Kind: env.KindSymlink, Target: "../a.json"}
	for _, tc := range []struct {
		change Change
		by     string
		want   Reason
	}{{added, "lib/a.js", ""}, {added, "check/odd.py", Tests}, {changed, "lib/a.js", Tests}, {link, "lib/a.js", Tests}} {
		l := New(Repository{
			Expected: []string{"check/odd.py::test_a"}, Named: map[string][]string{name: {tc.by}},
		})
		l.Adopt([]Change{tc.change})
		if got := l.Judge(tc.change).Reason; got != tc.want {
			t.Errorf("%+v, which %s names, is withheld for %q, want %q", tc.change, tc.by, got, tc.want)
		}
	}
}
