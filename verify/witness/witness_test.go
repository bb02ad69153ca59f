package witness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/env/testkit"
)

// watched runs a command in a directory of files, with a witness, and returns what it says and what was printed.
func watched(t *testing.T, l Language, files map[string]string, line string) (Testimony, string) {
	t.Helper()
	dir, repository := filepath.Join(t.TempDir(), "witness"), t.TempDir()
	p := New(l, dir)
	testkit.WriteFile(t, p.File, p.Text)
	for name, text := range files {
		testkit.WriteFile(t, filepath.Join(repository, name), text)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", p.Call(line))
	cmd.Dir = repository
	out, _ := cmd.CombinedOutput() // most of them fail
	record, err := os.ReadFile(p.Record)
	if err != nil {
		t.Logf("%v\n%s", err, out)
	}
	return Read(record), string(out)
}

// lost is what is found about a process that has not reached its exit.
func lost(process string) Finding {
	return Finding{Replaced, "the process of the runner ended without reaching its exit (" + process + ")", process}
}

const pythonTest = `import unittest
import package

class Tests(unittest.TestCase):
    def test_one(self):
        self.assertEqual(package.one(), 1)
`

func TestPython(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	for name, tc := range map[string]struct {
		code string
		want []Finding
	}{
		"nothing": {},
		"an assertion": {
			"import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n",
			[]Finding{{Kind: Altered, What: "unittest.case.TestCase.assertEqual was replaced (package.py)"}},
		},
		"one function in the place of another": {
			"import unittest\nunittest.TestResult.addFailure = unittest.TestResult.addSuccess\n",
			[]Finding{{Kind: Altered, What: "unittest.result.TestResult.addFailure was replaced (unittest/result.py)"}},
		},
		"the code of a function": {
			"import unittest\nunittest.TestCase.assertEqual.__code__ = (lambda self, first, second, msg=None: None).__code__\n",
			[]Finding{{Kind: Altered, What: "unittest.case.TestCase.assertEqual was replaced (package.py)"}},
		},
		"a builtin": {
			"import builtins\nclass E(Exception): pass\nbuiltins.AssertionError = E\n",
			[]Finding{{Kind: Altered, What: "builtins.AssertionError was replaced"}},
		},
		"a new method": {
			"import unittest\nunittest.TestCase.__getattribute__ = lambda self, name: object.__getattribute__(self, name)\n",
			[]Finding{{Kind: Altered, What: "unittest.case.TestCase.__getattribute__ was added (package.py)"}},
		},
		"another module": {
			"import sys, types\nsys.modules['unittest.case'] = types.ModuleType('unittest.case')\n",
			[]Finding{{Kind: Altered, What: "unittest.case is another module"}},
		},
		"what is put back at the end": {
			"import atexit, unittest\nfail = unittest.TextTestResult.addFailure\n" +
				"def quiet(self, test, error):\n    self._exc_info_to_string(error, test)\n    self.addSuccess(test)\n" +
				"unittest.TextTestResult.addFailure = quiet\n" +
				"atexit.register(lambda: setattr(unittest.TextTestResult, 'addFailure', fail))\n" +
				"def one(): return 2\n",
			[]Finding{{Kind: Altered, What: "unittest.runner.TextTestResult.addFailure was replaced (package.py)"}},
		},
		"a trace": {
			"import sys\ndef trace(*a): return None\nsys.settrace(trace)\n",
			[]Finding{{Kind: Altered, What: "sys.settrace is in use (package.py)"}},
		},
		"an exit": {
			"import os\nos._exit(0)\n",
			[]Finding{lost("python3 -m unittest")},
		},
		"another program": {
			"import os\nos.execvp('true', ['true'])\n",
			[]Finding{lost("python3 -m unittest")},
		},
		"a copy": {
			"import os, sys\nif os.fork():\n    sys.exit(os.wait()[1] >> 8)\n",
			[]Finding{{Kind: Replaced, What: "a copy of the runner's process ended as if it were the runner"}},
		},
		"processes of its own": {
			"import subprocess, sys, multiprocessing as m\nsubprocess.run([sys.executable, '-c', 'import os; os._exit(3)'])\n" +
				"p = m.get_context('fork').Process(target=print)\np.start()\np.join()\n", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, out := watched(t, Python, map[string]string{
				"package.py": "def one(): return 1\n" + tc.code, "test_package.py": pythonTest,
			}, "python3 -m unittest -v")
			for i, f := range got.Findings {
				before, after, _ := strings.Cut(f.What, "(/")
				if j := strings.LastIndex(after, "/"); j >= 0 {
					if k := strings.LastIndex(after[:j], "/unittest"); k >= 0 {
						j = k
					}
					got.Findings[i].What = before + "(" + after[j+1:]
				}
			}
			if !slices.Equal(got.Findings, tc.want) || got.Runners != 1 {
				t.Errorf("%d runners, %q\n%s", got.Runners, got.Findings, out)
			}
		})
	}
}

// The repository does not notice, and what watched the interpreter before still does.
func TestPythonLeavesNoTrace(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	got, out := watched(t, Python, map[string]string{
		"own/sitecustomize.py": "print('called')\n",
		"show.py": "import os, sys\n" +
			"print(os.environ.get('PYTHONPATH'), [p for p in sys.path if 'witness' in p])\n",
	}, "PYTHONPATH=$PYTHONPATH:own python3 show.py; PYTHONPATH=${PYTHONPATH%:*} python3 show.py")
	if want := "called\nown []\nNone []\n"; out != want || got.Runners != 2 || len(got.Findings) > 0 {
		t.Errorf("got %q, want %q; %+v", out, want, got)
	}
}

// workersOf runs the tests in a process like those of pytest-xdist.
const workersOf = `import subprocess, sys
words = [sys.executable, '-u', '-c', 'import sys;exec(eval(sys.stdin.readline()))']
code = "import sys, unittest; sys.argv[1:] = ['-v']; sys.path.insert(0, '.'); unittest.main('test_package')"
sys.exit(subprocess.run(words, input=(repr(code) + '\n').encode()).returncode)
`

// The processes in which pytest-xdist runs tests are watched as the one is that starts them, and nothing in their
// environment says so.
func TestPythonWorkers(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	for name, tc := range map[string]struct{ code, want string }{
		"nothing":      {"import os\nassert not [v for v in os.environ.values() if '/witness' in v]\n", ""},
		"an assertion": {"import unittest\nunittest.TestCase.assertEqual = print\n", "unittest.case.TestCase.assertEqual was replaced"},
		"an exit":      {"import os\nos._exit(0)\n", "ended without reaching its exit (a worker of pytest-xdist)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, out := watched(t, Python, map[string]string{
				"run.py": workersOf, "package.py": tc.code + "def one(): return 1\n", "test_package.py": pythonTest,
			}, "python3 run.py")
			if got.Runners != 2 || tc.want == "" && (len(got.Findings) > 0 || !strings.HasSuffix(out, "OK\n")) ||
				tc.want != "" && (len(got.Findings) != 1 || !strings.Contains(got.Findings[0].What, tc.want)) {
				t.Errorf("%d runners, %q\n%s", got.Runners, got.Findings, out)
			}
		})
	}
}

// Scripts set the variables that call a witness, before a command or for good.
func TestOwnVariables(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"src/package.py": "def one(): return 1\n", "test_package.py": pythonTest, "boot.js": "console.log('boot');\n",
		"one.test.js": "require('node:test')('one', () => {});\n",
	}
	for i, tc := range []struct {
		language Language
		line     string
		runners  int
	}{
		{Python, "PYTHONPATH=src python3 -m unittest -v", 1},
		{Python, "env PYTHONPATH='src' python3 -m unittest -v", 1},
		{Python, "export PYTHONPATH=\"$PWD/src\"\npython3 -m unittest -v", 1},
		{Node, "NODE_OPTIONS='--require ./boot.js' node --test .", 2},
		{Node, "NODE_OPTIONS=--no-warnings node --test .", 2},
	} {
		t.Run(fmt.Sprint(tc.language, i), func(t *testing.T) {
			t.Parallel()
			program := map[Language]string{Python: "python3", Node: "node"}[tc.language]
			if _, err := exec.LookPath(program); err != nil {
				t.Skip(err)
			}
			got, out := watched(t, tc.language, files, tc.line)
			if got.Runners != tc.runners || len(got.Findings) > 0 || strings.Contains(out, "FAILED") {
				t.Errorf("%s: %d runners, %q\n%s", tc.line, got.Runners, got.Findings, out)
			}
		})
	}
}

func TestNode(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip(err)
	}
	for name, tc := range map[string]struct {
		code string
		want []Finding
	}{
		"nothing": {},
		"an assertion": {
			"require('assert').strict.equal = () => {};",
			[]Finding{{Kind: Altered, What: "assert.strict.equal was replaced"}},
		},
		"an exit": {
			"process.reallyExit(0);",
			[]Finding{lost("node --test FILE")},
		},
		"an exit of its own": {"process.on('exit', () => process.exit(0));", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, out := watched(t, Node, map[string]string{
				"package.js": tc.code + "\nexports.one = () => 1;\n",
				"package.test.js": "const assert = require('assert/strict');\nrequire('node:test')('one', () => " +
					"assert.equal(require('./package').one(), 1));\n",
			}, "node --test .")
			if !slices.Equal(got.Findings, tc.want) || got.Runners != 2 {
				t.Errorf("%d runners, %q\n%s", got.Runners, got.Findings, out)
			}
		})
	}
}

// A process that is ended from outside, such as a server, is told from those that reach their exits.
func TestExited(t *testing.T) {
	t.Parallel()
	got := Read([]byte("started\t1\t1\tpython3 -m http.server\nstarted\t2\t2\tpython3 -m pytest\nended\t2\t2\t\n" +
		"started\t3\t3\tpython3 -m pytest\nended\t3\t3\t\n"))
	if !slices.Equal(got.Exited, []string{"python3 -m pytest"}) {
		t.Errorf("%q reached their exits", got.Exited)
	}
	if len(got.Findings) != 1 || got.Findings[0].Process != "python3 -m http.server" {
		t.Errorf("%+v", got.Findings)
	}
}

// A record may hold anything.
func FuzzRead(f *testing.F) {
	f.Add([]byte("started\t1\t1\tpython3 -m pytest\nchanged\t1\t1\tx\\ty\nended\t1\t1\t\n"))
	f.Add([]byte("started\t1\t1\n\x00"))
	f.Fuzz(func(t *testing.T, record []byte) {
		if got := Read(record); got.Runners > len(record) {
			t.Errorf("%d runners", got.Runners)
		}
	})
}
