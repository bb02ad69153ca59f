package project

import (
	"encoding/json"
	"strings"
)

// TestCommand returns the command line that runs the tests of the project in the directory; empty where the files do
// not say so plainly.
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
	case t.has("Rakefile") && t.has("test"):
		return "bundle exec rake test"
	}
	pythonic := t.has("pyproject.toml") || t.has("setup.py") || t.has("setup.cfg") || t.has("pytest.ini")
	if !pythonic || !t.has("tests") && !t.has("test") && !t.has("pytest.ini") {
		return ""
	}
	for _, venv := range []string{".venv", "venv"} {
		if t.has(venv + "/bin/python") {
			return venv + "/bin/python -m pytest"
		}
	}
	return "python3 -m pytest"
}
