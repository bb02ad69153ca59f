package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
)

// pythonTests runs all tests of a Python project. With -rA, the summary names each of them.
const pythonTests = `"$(command -v python || command -v python3)" -m pytest -rA -p no:cacheprovider ` +
	`--continue-on-collection-errors`

// find detects the command that runs the repository's tests from the files at its root, and the parser for its output.
// It returns errNoTests if it finds none.
func find(ctx context.Context, sb env.Sandbox) (command, parser string, err error) {
	listing, err := sb.List(ctx, sb.Dir(), env.ListOptions{Hidden: true})
	if err != nil {
		return "", "", fmt.Errorf("list the repository: %w", err)
	}
	has := map[string]bool{}
	for _, e := range listing.Entries {
		has[filepath.Base(e.Path)] = true
	}
	any := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return has[name] })
	}
	read := func(name string) (string, error) {
		data, _, err := sb.Read(ctx, filepath.Join(sb.Dir(), name), env.ReadOptions{Limit: 1 << 20})
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return string(data), err
	}
	switch {
	case has["go.mod"]:
		return "go test -v -count=1 ./...", "parse_log_gotest", nil
	case has["Cargo.toml"]:
		return "cargo test --no-fail-fast", "parse_log_cargo", nil
	case has["pom.xml"]:
		return "mvn -B -o test", "parse_log_maven", nil
	case has["package.json"]:
		text, err := read("package.json")
		if err != nil {
			return "", "", fmt.Errorf("read package.json: %w", err)
		}
		return nodeTests(text)
	}
	if runner, err := read("tests/runtests.py"); err != nil {
		return "", "", fmt.Errorf("look for a test runner: %w", err)
	} else if strings.Contains(runner, "django") {
		return `"$(command -v python || command -v python3)" tests/runtests.py --verbosity 2 --parallel 1`,
			"parse_log_django", nil
	}
	if any("pytest.ini", "tox.ini", "setup.cfg", "setup.py", "pyproject.toml", "conftest.py", "noxfile.py", "tests",
		"test") || slices.ContainsFunc(listing.Entries, func(e env.FileInfo) bool {
		return strings.HasSuffix(e.Path, ".py")
	}) {
		return pythonTests, "parse_log_pytest", nil
	}
	return "", "", errNoTests
}

var errNoTests = errors.New("no test command was found in the repository; --test gives one")

// nodeTests returns the command for the test script of a package.json.
func nodeTests(text string) (command, parser string, err error) {
	var p struct {
		Scripts map[string]string `json:"scripts"`
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return "", "", errNoTests
	}
	switch script := p.Scripts["test"]; {
	case strings.Contains(script, "vitest"):
		return "npx --no-install vitest run --reporter=verbose", "parse_log_vitest", nil
	case strings.Contains(script, "jest"):
		return "npx --no-install jest --verbose", "parse_log_jest", nil
	case strings.Contains(script, "node") && strings.Contains(script, "--test"), script == "":
		// The script itself may use another reporter.
		return "node --test", "parse_log_tap", nil
	}
	return "", "", errNoTests
}
