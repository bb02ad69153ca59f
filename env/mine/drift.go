package mine

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"deepswe/env"
	"deepswe/env/repo"
)

// Old commits meet a toolchain of today. What is known to help is done to their tasks, and recorded in the label mended.

var (
	// addopts matches options of pytest that need a plugin, or that it no longer has.
	addopts = regexp.MustCompile(`(?s)addopts\s*=.{0,400}?(--(cov|flake8|black|isort|mypy|pylint|timeout|benchmark|dist|randomly)|` +
		`-n\s*\w|--strict\b[^-])`)
	module = regexp.MustCompile(`(?m)^module\s+(\S+)`)
)

// mend changes the draft of a task whose base commit is checked out in dir.
func (b Builder) mend(ctx context.Context, dir string, t *env.Task, language string) error {
	var mended []string
	if found, _ := filepath.Glob(filepath.Join(dir, "src", "*", "__init__.py")); len(found) > 0 { // the pattern is valid
		t.Env = append(t.Env, "PYTHONPATH=/testbed/src")
	}
	for _, name := range []string{"pyproject.toml", "setup.cfg", "pytest.ini", "tox.ini"} {
		data, _ := os.ReadFile(filepath.Join(dir, name)) // what is missing has no options
		if addopts.Match(data) && language == "python" {
			t.Env, mended = append(t.Env, "PYTEST_ADDOPTS=-o addopts="), append(mended, "addopts")
			break
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil && language == "go" {
		name := "example.com/" + b.Name
		if data, err := repo.Read(ctx, b.Repository, "cat-file", "blob", "HEAD:go.mod"); err == nil {
			if m := module.FindSubmatch(data); m != nil {
				name = string(m[1])
			}
		}
		init := "test -f go.mod || printf 'module %s\\n' " + env.ShellQuote(name) + " >go.mod"
		t.Prepare, t.Tests.Prepare, mended = []string{init}, []string{init}, append(mended, "go.mod")
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+name+"\n"), 0o600); err != nil {
			return err
		}
	}
	if len(mended) > 0 {
		t.Labels["mended"] = strings.Join(mended, " ")
	}
	return nil
}
