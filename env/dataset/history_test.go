package dataset

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/env/repo"
)

// repository makes a git repository and returns a function that runs shell commands in it.
func repository(t *testing.T) (dir string, sh func(line string) string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	dir = t.TempDir()
	sh = func(line string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), "sh", "-c", "set -e; "+line)
		c.Dir = dir
		c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@localhost", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@localhost")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	sh("git init --quiet --initial-branch=main")
	return dir, sh
}

func TestKeepUntracked(t *testing.T) {
	_, sh := repository(t)
	sh("echo x >f; git add f; git commit -qm one; mkdir -p .venv/bin 'odd é'; touch .venv/bin/python 'odd é/x' install.sh")
	sh(keepUntracked)
	sh("touch new; git clean -fdq")
	if got := sh("ls -A"); got != ".git\n.venv\nf\ninstall.sh\nodd é" {
		t.Errorf("left are %q", got)
	}
	if got := sh("git status --porcelain"); got != "" {
		t.Errorf("git sees %q", got)
	}
}

func TestHeredoc(t *testing.T) {
	_, sh := repository(t)
	for _, text := range []string{"a\n$b `c` \\d\n", "no end", "END_OF_INPUT\nEND_OF_INPUT_\n", ""} {
		want := strings.TrimRight(text, "\n")
		if got := sh("cat " + heredoc(text)); got != strings.TrimSpace(want) {
			t.Errorf("%q arrives as %q", text, got)
		}
	}
}

// SWE-smith's commands run on a repository like the ones in its images. The agent starts with the bug, without the
// tests that show it, and cannot find the earlier state. The reference solution undoes the bug.
func TestSWESmithCommands(t *testing.T) {
	dir, sh := repository(t)
	sh("mkdir tests; printf 'one\\ntwo\\nthree\\n' >code.py; echo hidden >tests/test_a.py; echo open >tests/test_b.py; git add .; git commit -qm 'Initial commit'")
	sh("printf 'one\\nBUG\\nthree\\n' >code.py; git diff >../bug.diff; git checkout -q .; touch cache")
	bug, err := os.ReadFile(filepath.Join(dir, "../bug.diff"))
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(filepath.Join(dir, "../bug.diff"))
	r := record{fields: map[string]any{
		"instance_id": "owner__shelf.12345678.bug", "image_name": "swesmith.x86_64.owner__shelf.12345678",
		"patch": string(bug), "problem_statement": "x",
		"FAIL_TO_PASS": []any{"tests/test_a.py::test_one"}, "PASS_TO_PASS": []any{"tests/test_b.py::test_two",
			"tests/test_a.py::test_three"},
	}}
	task, err := r.task()
	if err != nil {
		t.Fatal(err)
	}
	if task.Image != "jyangballin/swesmith.x86_64.owner_1776_shelf.12345678:latest" || task.Repo != "owner__shelf" {
		t.Errorf("image %s, repository %s", task.Image, task.Repo)
	}
	archive := filepath.Join(t.TempDir(), "tests.tar")
	agent, grader := t.TempDir(), t.TempDir()
	sh("cp -a . " + agent + "; cp -a . " + grader)
	for _, line := range append(task.Prepare, repo.Hygiene("")) { // as every attempt at a task does
		sh("cd " + agent + "; " + line)
	}
	if got := sh("cd " + agent +
		"; cat code.py; ls tests; git status --porcelain; git log --format=%s; git cat-file --batch-all-objects --batch | grep -a -c -e hidden -e two || true"); got != "one\nBUG\nthree\ntest_b.py\nInitial commit\n0" {
		t.Errorf("the agent sees %q", got)
	}
	for _, line := range task.Tests.Prepare {
		sh("cd " + grader + "; " + strings.ReplaceAll(line, smithHidden, archive))
	}
	write(t, filepath.Join(grader, "../gold.diff"), task.Tests.GoldPatch)
	sh("cd " + grader + "; git apply ../gold.diff; rm ../gold.diff; tar -xf " + archive)
	if got := sh("cd " + grader +
		"; cat code.py tests/test_a.py tests/test_b.py"); got != "one\ntwo\nthree\nhidden\nopen" {
		t.Errorf("the tests run on %q", got)
	}
	if want := "pytest --disable-warnings --color=no --tb=no --verbose -rA -p no:cacheprovider 'tests/test_a.py' 'tests/test_b.py'\n"; !strings.Contains(task.Tests.Script, want) {
		t.Errorf("script is %s", task.Tests.Script)
	}
}
