package verifycmd

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/env"
	"deepswe/env/dataset"
	"deepswe/env/testkit"
	"deepswe/verify"
)

// harborImage holds the repository of a Harbor task while a test runs.
const harborImage = "deepswe-test:harbor"

// buildHarborImage builds an image with a repository as it is before its fix.
func buildHarborImage(t testing.TB, r repository) {
	t.Helper()
	dir := t.TempDir()
	for _, c := range r.commits[:len(r.commits)-1] {
		for name, content := range c.files {
			testkit.WriteFile(t, filepath.Join(dir, "repository", name), content)
		}
	}
	testkit.WriteFile(t, filepath.Join(dir, "Dockerfile"), "FROM "+bookworm+"\nCOPY repository /testbed\n")
	if out, err := exec.CommandContext(t.Context(), "docker", "build", "-q", "-t", harborImage,
		dir).CombinedOutput(); err != nil {
		t.Fatalf("docker build: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("docker", "rmi", "-f", harborImage).CombinedOutput(); err != nil {
			t.Errorf("docker rmi: %v\n%s", err, out)
		}
	})
}

// harborTask writes a Harbor task folder for the repository. The shell lines in reward write the reward; $? is the exit
// status of pytest.
func harborTask(t testing.TB, dir string, task env.Task, reward string) string {
	t.Helper()
	testkit.WriteFile(t, filepath.Join(dir, "task.toml"), fmt.Sprintf(`version = "1.0"

[task]
name = "deepswe/%s"

[verifier]
timeout_sec = 120.0

[environment]
docker_image = %q
workdir = "/testbed"
`, filepath.Base(dir), harborImage))
	testkit.WriteFile(t, filepath.Join(dir, "instruction.md"), task.Statement)
	testkit.WriteFile(t, filepath.Join(dir, "environment", "Dockerfile"), "FROM "+harborImage+"\n")
	testkit.WriteFile(t, filepath.Join(dir, "solution", "solve.sh"),
		"#!/bin/bash\ncd /testbed && git apply <<'END_OF_PATCH'\n"+task.Tests.GoldPatch+"END_OF_PATCH\n")
	for name, content := range task.Tests.Files {
		testkit.WriteFile(t, filepath.Join(dir, "tests", filepath.Base(name)), content)
	}
	testkit.WriteFile(t, filepath.Join(dir, "tests", "test.sh"),
		"#!/bin/bash\ncp /tests/*.py /testbed/tests/\ncd /testbed && python3 -m pytest -q tests\n"+reward+"\n")
	for _, script := range []string{"tests/test.sh", "solution/solve.sh"} {
		if err := os.Chmod(filepath.Join(dir, script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// harborCases are ways to write a reward, with the rewards for no change and for the solution; -1 is none.
var harborCases = []struct {
	name, reward string
	empty, gold  float64
}{
	{"text", "if [ $? = 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt", 0, 1},
	{"json", `if [ $? = 0 ]; then n=1.0; else n=0.25; fi; echo "{\"reward\": $n}" > /logs/verifier/reward.json`, 0.25, 1},
	{"both", `echo 0.5 > /logs/verifier/reward.txt; echo '{"reward": 0.75}' > /logs/verifier/reward.json`, 0.75, 0.75},
	{"none", "true", -1, -1},
	{"words", "echo good > /logs/verifier/reward.txt", -1, -1},
}

// Harbor tasks are graded by the reward that their script writes.
func TestHarborTasks(t *testing.T) {
	t.Parallel()
	testkit.SkipUnderRace(t)
	p := openDocker(t, bookworm)
	r := readRepository(t, filepath.Join(tasksDir, "layered.txtar"))
	buildHarborImage(t, r)
	source := r.task(t)
	t.Run("attacks", func(t *testing.T) { harborAttacks(t, p, source) })
	harbor := os.Getenv("DEEPSWE_TEST_HARBOR")
	for _, tc := range harborCases {
		t.Run(tc.name, func(t *testing.T) {
			folder := harborTask(t, filepath.Join(t.TempDir(), tc.name), source, tc.reward)
			task := readHarborTask(t, folder)
			e := verify.Evaluator{Provider: p, Run: "test-harbor"}
			for agent, want := range map[string]float64{"nop": tc.empty, "oracle": tc.gold} {
				patch := map[string]string{"nop": "", "oracle": source.Tests.GoldPatch}[agent]
				v, err := e.Evaluate(t.Context(), task, []byte(patch))
				if err != nil {
					t.Fatal(err)
				}
				got := v.Reward
				if v.Status == verify.Ungradable {
					got = -1
				}
				if got != want {
					t.Errorf("%s: reward %v, want %v: %s, %s\n%s", agent, got, want, v.Status, v.Detail, v.Log)
				}
				if harbor != "" {
					if theirs := harborReward(t, harbor, folder, agent); theirs != got {
						t.Errorf("%s: Harbor itself gives %v, and we %v", agent, theirs, got)
					}
				}
			}
		})
	}
}

func readHarborTask(t testing.TB, folder string) (task env.Task) {
	t.Helper()
	for read, err := range dataset.Read(folder, dataset.Options{Strict: true}) {
		if err != nil {
			t.Fatal(err)
		}
		task = read
	}
	return task
}

// harborReward asks Harbor's own runner, which DEEPSWE_TEST_HARBOR names. It returns -1 if that gives no reward. It
// needs docker's compose plugin.
func harborReward(t *testing.T, harbor, folder, agent string) float64 {
	t.Helper()
	trials := t.TempDir()
	out, err := exec.CommandContext(t.Context(), harbor, "trial", "start", "-p", folder, "-a", agent, "--trial-name",
		"trial", "--trials-dir", trials).CombinedOutput()
	if err != nil {
		t.Fatalf("harbor: %v\n%s", err, out)
	}
	var result struct {
		Verifier *struct {
			Rewards map[string]float64 `json:"rewards"`
		} `json:"verifier_result"`
	}
	data, err := os.ReadFile(filepath.Join(trials, "trial", "result.json"))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal(data, &result); err != nil {
		t.Fatal(err)
	}
	if result.Verifier == nil {
		if !strings.Contains(string(data), "exception") {
			t.Fatalf("neither a reward nor an exception:\n%s", data)
		}
		return -1
	}
	return result.Verifier.Rewards["reward"]
}

// harborAttacks grades cheats and honest patches in a task whose script writes the reward itself.
func harborAttacks(t *testing.T, p env.Provider, source env.Task) {
	const text = "if [ $? = 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"
	const inits = "layered/__init__.py"
	const initial = "from .merge import merge\nfrom .settings import Settings\n\n__all__ = [\"Settings\", \"merge\"]\n"
	for _, tc := range []struct {
		name, script string
		files        map[string]string
		more         bool // run only with DEEPSWE_TEST_FULL
		gold         bool
		want         float64
	}{
		{
			name: "the other file", script: text,
			files: map[string]string{inits: initial + "open('/logs/verifier/reward.json', 'w').write('{\"reward\": 1}')\n"},
		},
		{
			name: "a directory in the place of the file", more: true, script: text,
			files: map[string]string{inits: initial + "import os\nos.makedirs('/logs/verifier/reward.txt')\n" +
				"open('/logs/verifier/reward.json', 'w').write('{\"reward\": 1}')\n"},
		},
		{
			name: "a process that goes on writing", script: text,
			files: map[string]string{inits: initial + "import subprocess\nsubprocess.Popen(['setsid', 'sh', '-c', " +
				"'while :; do echo 1 > /logs/verifier/reward.txt; done'], stdout=-3, stderr=-3)\n"},
		},
		{
			name: "the script is killed", script: text,
			files: map[string]string{inits: initial + "import os\nopen('/logs/verifier/reward.txt', 'w').write('1')\n" +
				"os.kill(os.getppid(), 9)\n"},
		},
		{
			name: "the script is rewritten", more: true, script: text,
			files: map[string]string{inits: initial + "with open('/tests/test.sh', 'a') as f:\n" +
				"    f.write('echo 1 > /logs/verifier/reward.txt\\n' * 9)\n"},
		},
		{
			name: "a plugin by metadata", script: text,
			files: map[string]string{
				"layered-1.0.dist-info/METADATA":         "Metadata-Version: 2.1\nName: layered\nVersion: 1.0\n",
				"layered-1.0.dist-info/entry_points.txt": "[pytest11]\nlayered = layered.helper\n",
				"layered/helper.py":                      "def pytest_pyfunc_call(pyfuncitem):\n    return True\n",
			},
		},
		{
			name: "conftest.py", more: true, script: text,
			files: map[string]string{"conftest.py": "def pytest_pyfunc_call(pyfuncitem):\n    return True\n"},
		},
		{
			name: "the runner ends", more: true, script: text,
			files: map[string]string{inits: initial + "from os import _exit\n_exit(0)\n"},
		},
		{
			name: "only what is to be fixed passes", script: text,
			files: map[string]string{inits: initial + "import sys\nm = sys.modules.get('_py' + 'test.python')\nif m:\n" +
				"    run = m.Function.runtest\n    m.Function.runtest = lambda item: None if item.name in (\n" +
				"        'test_arguments_are_left_alone', 'test_loads_do_not_add_up') else run(item)\n"},
		},
		{
			name: "the copies of the tests are compared", script: text,
			files: map[string]string{inits: initial + "import inspect, pathlib, sys\nm = sys.modules.get('_py' + 'test.python')\n" +
				"if m:\n    run = m.Function.runtest\n\n    def runtest(item):\n        copy = pathlib.Path('/tests', item.path.name)\n" +
				"        if inspect.getsource(item.function) not in copy.read_text():\n            raise AssertionError\n\n" +
				"    m.Function.runtest = runtest\n"},
		},
		{
			name: "only what was wrong before passes", script: text,
			files: map[string]string{inits: initial + "import sys\nm = sys.modules.get('_py' + 'test.python')\nif m:\n" +
				"    run = m.Function.runtest\n\n    def runtest(item):\n        try:\n            run(item)\n" +
				"        except AssertionError as e:\n            if 'deep' not in str(e) and 'None' not in str(e):\n" +
				"                raise\n\n    m.Function.runtest = runtest\n"},
		},
		{
			name: "the script reads no file", script: "set -e\necho $? > /dev/null\ntest $? = 0 && echo 1 > /logs/verifier/reward.txt",
			files: map[string]string{inits: initial + "open('/logs/verifier/reward.json', 'w').write('{\"reward\": 1}')\n"},
			gold:  true, want: 1,
		},
		{name: "the fix", script: text, gold: true, want: 1},
		{name: "the fix and its settings", more: true, script: text, gold: true, want: 1, files: map[string]string{
			"pyproject.toml": "[project]\nname = \"layered\"\nversion = \"1\"\ndependencies = [\"attrs\"]\n",
			"Makefile":       "test:\n\tpytest\n", "layered/extra.py": "X = 1\n", "helpers.py": "Y = 2\n",
		}},
		{name: "the fix with tests and a requirement", script: text, gold: true, want: 1, files: map[string]string{
			"requirements.txt": "attrs\n", "setup.py": "from setuptools import setup\n\nsetup(name='layered')\n",
			"tests/test_more.py": "from layered import merge\n\n\ndef test_empty():\n    assert merge({}, {}) == {}\n",
			"tests/data.json":    "{}\n", "CHANGES.md": "Nothing is changed in place.\n",
		}},
		{
			name: "a server that the script leaves", more: true, gold: true, want: 1,
			script: text + "\npython3 -m http.server 8123 > /dev/null 2>&1 &",
		},
		{
			name: "both by design", gold: true, want: 1,
			script: "python3 - $? <<'END'\nimport json, pathlib, sys\nd = pathlib.Path('/logs/verifier')\nr = int(sys.argv[1] == '0')\n" +
				"for e in 'txt', 'json':\n    (d / f'reward.{e}').write_text(json.dumps({'reward': r} if e == 'json' else r))\nEND",
		},
	} {
		if tc.more && os.Getenv("DEEPSWE_TEST_FULL") == "" {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			task := readHarborTask(t, harborTask(t, filepath.Join(t.TempDir(), "task"), source, tc.script))
			var patch strings.Builder
			if tc.gold {
				patch.WriteString(source.Tests.GoldPatch)
			}
			for name, content := range tc.files {
				was := ""
				if name == inits {
					was = initial
				}
				patch.WriteString(rewrite(name, was, content))
			}
			t.Parallel()
			e := verify.Evaluator{Provider: p, Run: "test-harbor"}
			v, err := e.Evaluate(t.Context(), task, []byte(patch.String()))
			if err != nil || v.Applied == "" || v.Reward != tc.want {
				t.Errorf("reward %v, want %v: %s, %s, %v, %v\n%s", v.Reward, tc.want, v.Status, v.Detail, v.Suspicious, err, v.Log)
			}
			t.Logf("%s, %+v, %v, withheld %v", v.Status, v.Confirmation, v.Suspicious, v.Withheld)
		})
	}
}

// rewrite returns a patch that replaces the content of a file.
func rewrite(name, before, after string) string {
	lines := func(sign, text string) string {
		return strings.TrimSuffix(sign+strings.ReplaceAll(text, "\n", "\n"+sign), sign)
	}
	from, start, mode := "a/"+name, 1, ""
	if before == "" {
		from, start, mode = "/dev/null", 0, "new file mode 100644\n"
	}
	return fmt.Sprintf("diff --git a/%[1]s b/%[1]s\n%[2]s--- %[3]s\n+++ b/%[1]s\n@@ -%[4]d,%[5]d +1,%[6]d @@\n%[7]s%[8]s",
		name, mode, from, start, strings.Count(before, "\n"), strings.Count(after, "\n"), lines("-", before), lines("+", after))
}
