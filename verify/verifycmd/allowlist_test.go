package verifycmd

import (
	"strings"
	"testing"

	"deepswe/verify"
)

// allowlistCases are files that a patch adds, beside the fix or instead of it. The patches without the fix pass the
// tests in the harness's run, but not in the strict run.
var allowlistCases = []struct {
	name, task string
	fixed      bool
	files      map[string]string
}{
	{name: "a plugin in a dist-info", task: "layered", files: map[string]string{
		"layered-1.0.dist-info/METADATA":         "Metadata-Version: 2.1\nName: layered\nVersion: 1.0\n",
		"layered-1.0.dist-info/entry_points.txt": "[pytest11]\nlayered = layered.helper\n",
		"layered/helper.py":                      "def pytest_pyfunc_call(pyfuncitem):\n    return True\n",
	}},
	{name: "a plugin in an egg-info", task: "layered", files: map[string]string{
		"layered.egg-info/PKG-INFO":         "Metadata-Version: 2.1\nName: layered\nVersion: 1.0\n",
		"layered.egg-info/entry_points.txt": "[pytest11]\nlayered = layered.helper\n",
		"layered/helper.py":                 "def pytest_pyfunc_call(pyfuncitem):\n    return True\n",
	}},
	{name: "a module that shadows", task: "layered", files: map[string]string{
		"fnmatch.py": "import os, sys\nexec(open(os.path.join(os.path.dirname(os.__file__), 'fnmatch.py')).read())\nclass Finder:\n    def find_spec(self, name, path=None, target=None):\n" +
			"        m = sys.modules.get('_pytest.python')\n        if m is not None and hasattr(m, 'Function'):\n" +
			"            m.Function.runtest = lambda self: None\n        return None\nsys.meta_path.insert(0, Finder())\n",
	}},
	{name: "a new module, package, data and documents", task: "layered", fixed: true, files: map[string]string{
		"helpers.py": "X = 1\n", "extra/__init__.py": "", "extra/types.py": "Y = 2\n", "layered/table.json": "{}\n",
		"CONTRIBUTING.md": "The short test summary info names what failed; see os._exit.\n", "docs/conf.py": "project = 'x'\n",
	}},
	{name: "a dependency, a fixture and generated code", task: "layered", fixed: true, files: map[string]string{
		"pyproject.toml":        "[project]\nname = \"layered\"\nversion = \"1\"\ndependencies = [\"attrs\"]\n",
		"tests/fixtures/a.json": "{}\n", "layered/tables_pb2.py": "# Generated. Do not edit.\nTABLE = {}\n", "Makefile": "test:\n\tpytest\n",
	}},
	{name: "a command that ends", task: "keypath", fixed: true, files: map[string]string{
		"cmd/keypath/main.go": "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\n\t\"example.com/keypath\"\n)\n\nfunc main() {\n" +
			"\tif _, err := keypath.Parse(\"a.b\"); err != nil {\n\t\tfmt.Fprintln(os.Stderr, err)\n\t\tos.Exit(1)\n\t}\n}\n",
	}},
	{name: "a program that ends", task: "quantile", fixed: true, files: map[string]string{
		"bin/quantile.js": "#!/usr/bin/env node\nimport { median } from '../index.js';\nconst values = process.argv.slice(2).map(Number);\n" +
			"if (values.length === 0) {\n  console.error('usage: quantile NUMBER...');\n  process.exit(2);\n}\nconsole.log(median(values));\n",
	}},
}

// The strict run takes what honest patches add, and nothing that affects the runner.
func TestAllowlist(t *testing.T) {
	t.Parallel()
	p := openDocker(t, bookworm)
	for _, tc := range allowlistCases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			task := named(t, tc.task)
			var patch strings.Builder
			if tc.fixed {
				patch.WriteString(task.Tests.GoldPatch)
			}
			for name, content := range tc.files {
				if content == "" {
					patch.WriteString("diff --git a/" + name + " b/" + name + "\nnew file mode 100644\nindex 0000000..e69de29\n")
				} else {
					patch.WriteString(rewrite(name, "", content))
				}
			}
			e := verify.Evaluator{Provider: p, Run: "test-allowlist"}
			if !tc.fixed {
				e.Canary = verify.CanaryNever // so that nothing but the allowlist stands in the way
			}
			v, err := e.Evaluate(t.Context(), task, []byte(patch.String()))
			if err != nil || v.Solved() != tc.fixed || v.NeedsWithheld == tc.fixed {
				t.Errorf("%s with reward %v, needs what was withheld: %v: %s, %v, %v\n%s",
					v.Status, v.Reward, v.NeedsWithheld, v.Detail, v.Suspicious, err, v.Log)
			}
			if tc.fixed && len(v.Suspicious) > 0 {
				t.Errorf("suspicious: %v", v.Suspicious)
			}
			t.Logf("withheld %v", v.Withheld)
		})
	}
}
