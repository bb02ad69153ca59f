package agentcmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"deepswe/env/testkit"
)

// The action's script runs deepswe with the inputs as arguments, and sets its last line as the result.
func TestAction(t *testing.T) {
	data, err := os.ReadFile("../../.github/actions/deepswe/action.yml")
	if err != nil {
		t.Fatal(err)
	}
	var action struct {
		Runs struct {
			Using string
			Steps []struct {
				Shell, Run string
				Env        map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(data, &action); err != nil || action.Runs.Using != "composite" || len(action.Runs.Steps) != 1 {
		t.Fatalf("got %+v, %v", action, err)
	}
	step := action.Runs.Steps[0]
	if strings.Contains(step.Run, "${{") || step.Shell == "" {
		t.Error("an input becomes part of the script")
	}
	for name, c := range map[string]struct {
		vars []string
		args string
		code string
	}{
		"solve": {[]string{"COMMAND=solve", "ISSUE=https://github.com/o/r/issues/7 $(touch x)", "ARGUMENTS=--env docker"},
			"solve\nhttps://github.com/o/r/issues/7 $(touch x)\n--out\nrun\n--json\n--env\ndocker\n", "0"},
		"pr":     {[]string{"COMMAND=pr", "ARGUMENTS="}, "pr\nrun\n--json\n", "0"},
		"failed": {[]string{"COMMAND=pr", "ARGUMENTS=", "CODE=3"}, "pr\nrun\n--json\n", "3"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			deepswe := testkit.WriteFile(t, filepath.Join(dir, "fake"), "#!/bin/sh\nprintf '%s\\n' \"$@\" >"+dir+"/args\n"+
				"echo '{}'; echo '{\"type\":\"result\"}'; exit ${CODE:-0}\n")
			builds := testkit.WriteFile(t, filepath.Join(dir, "bin/go"), "#!/bin/sh\ncp "+deepswe+" \"$5\"; chmod +x \"$5\"\n")
			if err := os.Chmod(builds, 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "bash", "-c", step.Run)
			cmd.Dir = dir
			cmd.Env = append(c.vars, "RUN=run", "PATH="+dir+"/bin:"+os.Getenv("PATH"), "RUNNER_TEMP="+dir,
				"GITHUB_ACTION_PATH="+dir+"/x/y/z", "GITHUB_OUTPUT="+dir+"/output")
			said, err := cmd.CombinedOutput()
			if (err != nil) != (c.code != "0") {
				t.Errorf("%v: %s", err, said)
			}
			args, err := os.ReadFile(filepath.Join(dir, "args"))
			if err != nil || string(args) != c.args {
				t.Errorf("deepswe was called with %q, %v", args, err)
			}
			output, err := os.ReadFile(filepath.Join(dir, "output"))
			if err != nil || !strings.Contains(string(output), "\n{\"type\":\"result\"}\n") ||
				!strings.Contains(string(output), "exit-code="+c.code+"\n") {
				t.Errorf("the output is %q, %v", output, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "x")); err == nil {
				t.Error("an input was executed")
			}
		})
	}
}
