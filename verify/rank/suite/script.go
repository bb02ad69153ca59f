package suite

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/verify"
)

// Kind says what a test claims.
type Kind string

// The kinds. A regression test passes on the base and must go on to pass; a reproduction test fails on the base,
// because of the issue, and passes with a fix.
const (
	Regression   Kind = "regression"
	Reproduction Kind = "reproduction"
)

// Script is a command that runs tests, and how to read what it prints.
type Script struct {
	// Name is unique for a task: "regression", "reproduction-1".
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Command is the shell command line; empty where it is to be found in the repository.
	Command string `json:"command,omitempty"`
	// Parser names the log parser of verify/testlog.
	Parser string `json:"parser,omitempty"`
	// Files are written before the command runs, by path relative to the repository.
	Files map[string]string `json:"files,omitempty"`
	// Timeout is the longest that the command may run; 0 leaves it to the task or the grader.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// Key identifies what a script does.
func (s Script) Key() string {
	data, err := disk.MarshalJSON(s)
	if err != nil {
		return "" // plain data always can be
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// task is the task with the script's tests instead of its hidden ones. expected are the
// tests that are to pass; as FAIL_TO_PASS ones, because such a test does not pass by being skipped.
func (s Script) task(t env.Task, expected []string) env.Task {
	t.Tests = env.Tests{
		FailToPass: slices.Clone(expected), Script: s.shell(t), Parser: s.Parser, EvalType: verify.PassAndFail,
		Version: t.Tests.Version, Files: s.Files, Prepare: t.Tests.Prepare, Network: t.Tests.Network,
		Timeout: cmp.Or(s.Timeout, t.Tests.Timeout),
	}
	return t
}

// shell is the script as the grader runs it.
func (s Script) shell(t env.Task) string {
	return environment(t) + "echo '>>>>> Start Test Output'\n" + s.Command + "\nTEST_EXIT_CODE=$?\n" +
		"echo '>>>>> End Test Output'\necho \">>>>> Test Exit Code: $TEST_EXIT_CODE\"\n"
}

// environment is the part of a task's own script that makes its environment: the activation of a virtual environment,
// exported variables, and the change into the repository. Nothing of it says which tests there are.
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
