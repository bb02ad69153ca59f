package suite

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/verify"
)

// Kind is the kind of a test.
type Kind string

// The kinds. A regression test passes on the base and must still pass with a patch. A reproduction test fails on the
// base, because of the issue, and passes with a fix.
const (
	Regression   Kind = "regression"
	Reproduction Kind = "reproduction"
)

// Script is a command that runs tests, and how to read what it prints.
type Script struct {
	// Name is unique for a task: "regression", "reproduction-1".
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Command is the shell command line; if empty, it is detected in the repository.
	Command string `json:"command,omitempty"`
	// Parser names the log parser of verify/testlog.
	Parser string `json:"parser,omitempty"`
	// Files are written before the command runs, by path relative to the repository.
	Files map[string]string `json:"files,omitempty"`
	// Timeout limits the command's run time; 0 means the task's or the grader's limit.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// Key identifies the content of a script.
func (s Script) Key() string { return disk.Digest(s)[:32] }

// task returns the task with the script's tests instead of its hidden ones. The expected tests are FAIL_TO_PASS tests,
// because these do not pass if they are skipped.
func (s Script) task(t env.Task, expected []string) env.Task {
	t.Tests = env.Tests{
		FailToPass: slices.Clone(expected), Script: s.shell(t), Parser: s.Parser, EvalType: verify.PassAndFail,
		Version: t.Tests.Version, Files: s.Files, Prepare: t.Tests.Prepare, Network: t.Tests.Network,
		Timeout: cmp.Or(s.Timeout, t.Tests.Timeout),
	}
	return t
}

// shell returns the shell script that the grader runs.
func (s Script) shell(t env.Task) string {
	return environment(t) + "echo '>>>>> Start Test Output'\n" + s.Command + "\nTEST_EXIT_CODE=$?\n" +
		"echo '>>>>> End Test Output'\necho \">>>>> Test Exit Code: $TEST_EXIT_CODE\"\n"
}

// environment returns the part of a task's own script that sets up its environment: it activates a virtual environment,
// exports variables, and changes into the repository. It does not reveal the hidden tests.
func environment(t env.Task) string {
	var b strings.Builder
	for line := range strings.Lines(t.Tests.Script) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, ">>>>> Start Test Output") {
			break
		}
		word, _, _ := strings.Cut(line, " ")
		if slices.Contains([]string{"source", ".", "conda", "export", "cd"}, word) && !strings.ContainsAny(line, "<|&;") {
			b.WriteString(line + "\n")
		}
	}
	if t.Dir != "" {
		b.WriteString("cd " + env.ShellQuote(t.Dir) + "\n")
	}
	return b.String()
}
