package project

import (
	"encoding/json"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// TestCommand returns the command line that runs the tests of the project in the directory; empty in doubt.
func TestCommand(dir string) string {
	t := tree(dir)
	var manifest struct{ Scripts map[string]string }
	_ = json.Unmarshal(t.read("package.json"), &manifest) // without one there are no scripts
	switch test := manifest.Scripts["test"]; {
	case test != "" && !strings.Contains(test, "no test specified"):
		return "npm test"
	case t.has("go.mod"):
		return "go test ./..."
	case t.has("Cargo.toml"):
		return "cargo test"
	case t.has("pom.xml"):
		return "mvn -B test"
	case t.has("gradlew"):
		return "./gradlew test"
	case t.has("Gemfile") && t.has("spec"):
		return "bundle exec rspec"
	case t.has("Rakefile") && t.has("test") && t.has("Gemfile"):
		return "bundle exec rake test"
	case t.has("Rakefile") && t.has("test"):
		return "rake test"
	}
	return pythonTests(t)
}

// pythonTests returns the command for pytest, or for unittest if nothing needs more than that; empty if there are no
// tests.
func pythonTests(t tree) string {
	pythonic := t.has("pyproject.toml") || t.has("setup.py") || t.has("setup.cfg")
	folder, files := t.testFiles()
	if !t.has("pytest.ini") && len(files) == 0 && (!pythonic || !t.has("tests") && !t.has("test")) {
		return ""
	}
	python := "python3"
	for _, venv := range []string{".venv", "venv"} {
		if t.has(venv + "/bin/python") {
			python = venv + "/bin/python"
			break
		}
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
	unittestImport = regexp.MustCompile(`(?m)^\s*(?:import|from)\s+unittest\b`)
	pytestImport   = regexp.MustCompile(`(?m)^\s*(?:import|from)\s+pytest\b`)
)

// onlyUnittest reports whether unittest finds, and can run, the tests in all of the files.
func (t tree) onlyUnittest(files []string) bool {
	return len(files) > 0 && !slices.ContainsFunc(files, func(name string) bool {
		data := t.read(name)
		return !strings.HasPrefix(path.Base(name), "test") || !unittestImport.Match(data) || pytestImport.Match(data)
	})
}
