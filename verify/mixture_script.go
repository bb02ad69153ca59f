package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"deepswe/env"
)

// beginAnew replaces the history of the repository by a single commit.
const beginAnew = `
rm -rf .git
git init -q . && git add -A && git -c user.name=deepswe -c user.email=deepswe@localhost commit -qm 'Before the tests'`

// forgetRight removes what shows the right expectations of tests that are wrong now: what Python has compiled and, if
// the repository had those tests before, its history. It returns the script, changed so that it continues after a
// wrong test.
func (t *trial) forgetRight(ctx context.Context, script string) (string, error) {
	dirs := map[string]bool{}
	for _, c := range t.mixed.set.Canaries {
		dirs[path.Dir(c.File)] = true
	}
	line := "find " + env.ShellQuote(slices.Sorted(maps.Keys(dirs))...) + " -name __pycache__ -prune -exec rm -rf {} +"
	if t.mixed.known {
		line += beginAnew
	}
	_, err := t.sb.Run(ctx, env.Command{Line: line, Timeout: applyTimeout, Env: trusting})
	if err != nil {
		return "", fmt.Errorf("remove what is known of the tests: %w", err)
	}
	return t.unbail(ctx, script)
}

// r2eRun is the script that runs R2E-Gym's hidden tests.
const r2eRun = "/r2e/run_tests.sh"

// pytestFiles configure pytest.
var pytestFiles = []string{"pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", ".pytest.ini", "pytest.toml"}

// unbail makes the run continue after a failure, by changing its commands and pytest's configuration.
func (t *trial) unbail(ctx context.Context, script string) (string, error) {
	script = unbailed(script)
	read := func(name string) (string, error) {
		data, _, err := t.sb.Read(ctx, t.at(name), env.ReadOptions{Limit: 1 << 20})
		if env.IsInfrastructure(ctx, err) {
			return "", fmt.Errorf("read %s: %w", name, err)
		}
		return string(data), nil
	}
	if strings.Contains(script, r2eRun) {
		inner, err := read(r2eRun)
		if err != nil {
			return "", err
		}
		if changed := unbailed(inner); changed != inner {
			_, err := t.sb.Write(ctx, r2eRun, []byte(changed), env.WriteOptions{})
			if err != nil && !errors.Is(err, fs.ErrPermission) {
				return "", fmt.Errorf("write %s: %w", r2eRun, err)
			}
		}
	}
	if !strings.Contains(script, "pytest") && t.task.Tests.Expected == nil {
		return script, nil
	}
	for _, name := range pytestFiles {
		text, err := read(name)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(text) {
			if bailing().MatchString(strings.NewReplacer(`"`, " ", "'", " ", ",", " ").Replace(line)) {
				return "{ export PYTEST_ADDOPTS=\"${PYTEST_ADDOPTS:-} --maxfail=0\"; } 2>/dev/null\n" + script, nil
			}
		}
	}
	return script, nil
}

// unbailed changes the commands that run tests: it removes the flags that bailing matches, and adds those without which
// a runner does not go on.
func unbailed(script string) string {
	var out strings.Builder
	for line := range strings.Lines(script) {
		for runner().MatchString(line) && bailing().MatchString(line) {
			line = bailing().ReplaceAllString(line, "$1$3")
		}
		if !goesOn().MatchString(line) {
			line = cargo().ReplaceAllString(line, "$1 --no-fail-fast$2")
			line = maven().ReplaceAllString(line, "$1 -fae$2")
			line = gradle().ReplaceAllString(line, "$1 --continue$2")
		}
		out.WriteString(line)
	}
	return out.String()
}

var (
	// bailing matches flags that end a run at the first failure, which would be a wrong test.
	bailing = env.Pattern(`(^|\s)(-x|--exitfirst|--maxfail(?:[= ]\d+)?|--bail(?:[= ]\d+)?|-failfast|--failfast|-ff|` +
		`--fail-fast(?:=\d+)?|--stop-on-(?:defect|error|failure))(\s|$)`)
	runner = env.Pattern(`\b(pytest|py\.test|jest|mocha|vitest|go test|unittest|runtests|manage\.py|nose\w*|tox|` +
		`node|npm|npx|yarn|pnpm|trial|python\d?(\.\d+)?|rspec|rake|rails|phpunit|mvnw?)\b`)

	// cargo, maven and gradle match commands that end a run at the first crate, module or project with a failure, unless
	// goesOn matches.
	cargo  = env.Pattern(`((?:^|[\s;&|(/"'])cargo(?: \+\S+)? (?:test|t|nextest run))(\s|$)`)
	maven  = env.Pattern(`((?:^|[\s;&|(/"'])mvnw?)(\s|$)`)
	gradle = env.Pattern(`((?:^|[\s;&|(/"'])gradlew?)(\s|$)`)
	goesOn = env.Pattern(`\s(--no-fail-fast|-fae|-fn|--fail-at-end|--fail-never|--continue)\b`)
)
