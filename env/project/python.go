package project

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
)

func python(t tree, m Machine) (Step, bool) {
	if m.VirtualEnv != "" || t.virtualEnv() != "" || t.poetryEnv(m) != "" {
		return Step{}, false
	}
	for _, known := range []Step{
		{Lock: "uv.lock", Command: m.bring("uv") + "uv sync --frozen"},
		{Lock: "poetry.lock", Command: m.bring("poetry") + "POETRY_VIRTUALENVS_IN_PROJECT=1 poetry install"},
	} {
		if t.has(known.Lock) {
			known.Missing = ".venv"
			return known, true
		}
	}
	return requirements(t, m)
}

// bring returns the beginning of a command line that installs a program, in an environment of its own, if the machine
// may not have it.
func (m Machine) bring(program string) string {
	if m.Path != nil && !m.lacks(program) {
		return ""
	}
	const dir = "/tmp/tools"
	return "PATH=$PATH:" + dir + "/bin; command -v " + program + " >/dev/null || { python3 -m venv " + dir + " && " +
		dir + "/bin/pip install -q " + program + "; } && "
}

// requirements installs what is in files of the usual names. If the requirements for developers cannot be installed,
// those for tests may be.
func requirements(t tree, m Machine) (Step, bool) {
	var common []string
	if t.has("requirements.txt") {
		common = []string{"requirements.txt"}
	}
	var choices [][]string
	for _, names := range [][]string{
		{
			"requirements-dev.txt", "requirements_dev.txt", "dev-requirements.txt", "dev_requirements.txt",
			"dev.requirements.txt", "requirements/dev.txt",
		},
		{
			"requirements-test.txt", "requirements-tests.txt", "requirements_test.txt", "test-requirements.txt",
			"test_requirements.txt", "requirements/test.txt", "requirements/tests.txt", "requirements/testing.txt",
		},
	} {
		if i := slices.IndexFunc(names, t.has); i >= 0 {
			choices = append(choices, append(slices.Clone(common), names[i]))
		}
	}
	switch {
	case len(choices) == 0 && common == nil:
		return Step{}, false
	case len(choices) == 0:
		choices = [][]string{common}
	}
	content := t.contents(choices[0])
	if m.hasAll(content) {
		return Step{}, false
	}
	rest := ""
	if t.has("setup.py") || t.has("pyproject.toml") && bytes.Contains(t.read("pyproject.toml"), []byte("[build-system]")) {
		rest += " -e ."
	}
	if strings.HasSuffix(pythonTests(t, ""), "pytest") && !bytes.Contains(content, []byte("pytest")) {
		rest += " pytest"
	}
	var installs []string
	for _, choice := range choices {
		installs = append(installs, PipInstall+"-r "+strings.Join(choice, " -r ")+rest)
	}
	command := pipBegins + strings.Join(installs, " || ")
	return Step{Command: command, Lock: choices[0][0], Missing: ".venv"}, true
}

// contents returns those of some files, one after the other.
func (t tree) contents(names []string) (all []byte) {
	for _, name := range names {
		all = append(append(all, t.read(name)...), '\n')
	}
	return all
}

// demanded matches a requirement without conditions; one with a semicolon applies to some machines only.
var demanded = env.Pattern(`(?m)^[ \t]*([A-Za-z0-9][\w.-]*)[^;@\n]*$`)

// hasAll reports whether there are requirements without conditions, and the machine's Python has all their packages.
func (m Machine) hasAll(requirements []byte) bool {
	installed := map[string]bool{}
	for _, dir := range m.SitePackages {
		entries, _ := os.ReadDir(dir) // one that cannot be read is of no use to the project
		for _, e := range entries {
			name, _, _ := strings.Cut(e.Name(), "-")
			installed[distribution(strings.TrimSuffix(name, ".egg"))] = true
		}
	}
	all := demanded().FindAllSubmatch(requirements, -1)
	return len(all) > 0 && !slices.ContainsFunc(all, func(match [][]byte) bool {
		return !installed[distribution(string(match[1]))]
	})
}

// distribution returns a package's name in the normalised form that directories of packages use.
func distribution(name string) string {
	return strings.NewReplacer("-", "_", ".", "_").Replace(strings.ToLower(name))
}

// virtualEnv returns the name of the virtual environment in the directory; empty if there is none.
func (t tree) virtualEnv() string {
	for _, name := range []string{".venv", "venv"} {
		if t.has(name) {
			return name
		}
	}
	for _, pattern := range []string{"*/pyvenv.cfg", ".*/pyvenv.cfg"} {
		if found := disk.Glob(string(t), pattern); len(found) > 0 {
			return filepath.Base(filepath.Dir(found[0]))
		}
	}
	return ""
}

// poetryEnv returns the virtual environment that Poetry has made for the project outside of it; empty if there is
// none. Its name ends with the beginning of a hash of the project's path, and with Python's version.
func (t tree) poetryEnv(m Machine) string {
	dir, err := filepath.EvalSymlinks(string(t))
	if err != nil || m.Home == "" || !t.has("poetry.lock") {
		return ""
	}
	found := disk.Glob(m.Home, ".cache/pypoetry/virtualenvs/"+poetryName(dir))
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// poetryName matches the names of the environments of the project at a path.
func poetryName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return "*-" + base64.URLEncoding.EncodeToString(sum[:])[:8] + "-py*"
}

// pythonTests returns the command for Django's tests or pytest, or for unittest if nothing needs more than that, with
// the given Python; empty if there are no tests.
func pythonTests(t tree, python string) string {
	pythonic := t.has("pyproject.toml") || t.has("setup.py") || t.has("setup.cfg")
	folder, files := t.testFiles()
	python = cmp.Or(python, "python3")
	if django := t.djangoTests(python); django != "" {
		return django
	}
	if len(files) == 0 && unittestImport().Match(t.read("test.py")) { // pytest would not find it
		return python + " -m unittest discover -v"
	}
	if !t.has("pytest.ini") && len(files) == 0 && (!pythonic || !t.has("tests") && !t.has("test")) {
		return ""
	}
	if pythonic || t.has("pytest.ini") || t.has("conftest.py") || !t.onlyUnittest(files) {
		return python + " -m pytest"
	}
	command := python + " -m unittest discover -v"
	if folder != "" {
		command += " -s " + folder
	}
	return command
}

// testFiles returns the Python files with tests of the first folder that has any.
func (t tree) testFiles() (folder string, files []string) {
	for _, folder := range []string{"", "tests", "test"} {
		entries, _ := os.ReadDir(t.path(folder)) // a missing folder has none
		for _, e := range entries {
			name := e.Name()
			if strings.HasSuffix(name, ".py") && (strings.HasPrefix(name, "test_") || strings.HasSuffix(name, "_test.py")) {
				files = append(files, path.Join(folder, name))
			}
		}
		if len(files) > 0 {
			return folder, files
		}
	}
	return "", nil
}

// unittestImport and pytestImport match the imports of test frameworks.
var (
	unittestImport = env.Pattern(`(?m)^\s*(?:import|from)\s+unittest\b`)
	pytestImport   = env.Pattern(`(?m)^\s*(?:import|from)\s+pytest\b`)
)

// onlyUnittest reports whether unittest finds, and can run, the tests in all of the files.
func (t tree) onlyUnittest(files []string) bool {
	return len(files) > 0 && !slices.ContainsFunc(files, func(name string) bool {
		data := t.read(name)
		return !strings.HasPrefix(path.Base(name), "test") || !unittestImport().Match(data) || pytestImport().Match(data)
	})
}
