package verify

import (
	"slices"
	"strings"

	"deepswe/env"
)

// phases is a test script in two halves, which run in separate shells, so that the tests cannot read the first half
// from the command line of their parent process.
type phases struct {
	// setup is the part before the tests; empty if the script does not mark where they begin.
	setup string
	// tests is the rest. If the script marks the tests, tests ends with their exit status.
	tests string
	// exits is set if tests ends with the exit status of the tests.
	exits bool
}

// exitSaved matches a line that saves the exit code of the line before.
var exitSaved = env.Pattern(`(?m)^[ \t]*([A-Za-z_]\w*)=\$\?[ \t]*$`)

// split splits a script at its markers. Commands after the tests, such as restoring files, are left out: they would
// change the exit status, and have no effect on grading.
func split(script string) phases {
	lines := strings.SplitAfter(script, "\n")
	start := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, startMarker) })
	if start < 0 {
		return phases{tests: script}
	}
	length := slices.IndexFunc(lines[start:], func(l string) bool { return strings.Contains(l, endMarker) })
	if length < 0 {
		return phases{tests: script}
	}
	end := start + length
	region := strings.Join(lines[start+1:end], "")
	status, tests := "$deepswe_status", lines[start]+region
	if saved := exitSaved().FindAllStringSubmatch(region, -1); len(saved) > 0 {
		status = "$" + saved[len(saved)-1][1]
	} else {
		tests += "{ deepswe_status=$?; } 2>/dev/null\n" // untraced: the log is read up to the end marker
	}
	tests += lines[end]
	for _, l := range lines[end+1:] {
		if strings.Contains(l, exitMarker) {
			tests += l
		}
	}
	return phases{
		setup: strings.Join(lines[:start], ""), exits: true,
		tests: strings.TrimSuffix(tests, "\n") + "\n{ exit \"" + status + "\"; } 2>/dev/null\n",
	}
}

// saving returns the first half with commands that save the state of its shell to a file: variables, functions,
// options, directory.
func (p phases) saving(file string) string {
	quoted := env.ShellQuote(file)
	return p.setup + `
{ deepswe_options=$(set +o); set +x; } 2>/dev/null
{ echo 'rm -f ` + file + `'
if [ -n "${BASH_VERSION:-}" ]; then unset BASH_EXECUTION_STRING; shopt -p; alias -p; declare -f; declare -p
else set; export -p; fi
umask | sed 's/^/umask /'
for deepswe_limit in n s v; do echo "ulimit -S$deepswe_limit $(ulimit -S$deepswe_limit)"; done
printf 'cd %s\n' "'$(pwd | sed "s/'/'\\\\''/g")'"
printf '%s\n' "$deepswe_options"; } >` + quoted + " 2>/dev/null\n"
}

// restoring returns the second half with commands that restore this state.
func (p phases) restoring(file string) string {
	return "{ . " + env.ShellQuote(file) + "; } 2>/dev/null\n" + p.tests
}

var (
	// bailing matches flags that end a run at the first failure, which would be a wrong test.
	bailing = env.Pattern(`(^|\s)(-x|--exitfirst|--maxfail(?:[= ]\d+)?|--bail(?:[= ]\d+)?|-failfast|--failfast|` +
		`--fail-fast)(\s|$)`)
	runner = env.Pattern(`\b(pytest|py\.test|jest|mocha|vitest|go test|unittest|runtests|manage\.py|nose\w*|tox|` +
		`node|npm|npx|yarn|pnpm|trial|python\d?(\.\d+)?)\b`)
)

// unbailed removes such flags from the commands that run tests.
func unbailed(script string) string {
	var out strings.Builder
	for line := range strings.Lines(script) {
		for runner().MatchString(line) && bailing().MatchString(line) {
			line = bailing().ReplaceAllString(line, "$1$3")
		}
		out.WriteString(line)
	}
	return out.String()
}

// historyCommands match git commands that name a commit.
var historyCommands = env.Pattern(
	`\bgit\b.*\b(checkout|show|restore|reset|cherry-pick|merge|rebase|worktree|archive|fetch|switch|log)\s+[^-\s|;&]`)

// needsHistory reports whether a task's script uses a commit other than the base commit.
func needsHistory(t env.Task) bool {
	for line := range strings.Lines(t.Tests.Script) {
		known := strings.Contains(line, "HEAD") || t.BaseCommit != "" && strings.Contains(line, t.BaseCommit)
		if historyCommands().MatchString(line) && !known && !strings.HasPrefix(line, "+") && !strings.HasPrefix(line, " ") {
			return true
		}
	}
	return false
}
