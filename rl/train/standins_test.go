package train

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"deepswe/agent/trajectory"
	"deepswe/env/testkit"
)

// buildStandIns fills a directory with what takes the place of a recipe's programs: deepswe, the servers, their model,
// the scripts, and two tasks, whose records have the members as well.
func buildStandIns(t *testing.T, dir, members string, scripts map[string]string) {
	t.Helper()
	for name, pkg := range map[string]string{"deepswe": "deepswe", "servers": "deepswe/rl/train/testdata/servers"} {
		execute(t, "", "go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, name), pkg)
	}
	model, speech := spoken(t, actions[trajectory.FormatXML])
	ids, err := json.Marshal(speech)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, filepath.Join(model, "speech.json"), string(ids))
	execute(t, "", "cp", "-r", model, filepath.Join(dir, "model"))
	task := strings.Replace(sweTask, `{"id":%q,`, `{"id":%q,`+members, 1)
	testkit.WriteFile(t, filepath.Join(dir, "tasks.jsonl"), fmt.Sprintf(task+"\n"+task+"\n", "number-0", "number-1"))
	for name, script := range scripts {
		path := testkit.WriteFile(t, filepath.Join(dir, name), "#!/bin/sh\n"+script+"\n")
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// printRecipe returns a configuration's recipe for these tasks, with a model of which each server needs one GPU. With
// adapters, a quarter of the GPUs trains.
func printRecipe(t *testing.T, program, config, form string, nodes, gpus int, set ...string) string {
	t.Helper()
	args := []string{"train", "--config", config, "--print", form, "--nodes", strconv.Itoa(nodes), "--gpus",
		strconv.Itoa(gpus)}
	for _, set := range append(set,
		"trainer.model=Qwen/Qwen3-8B", "rollouts.tasks=1", "rollouts.group=4", "environment.evidence=none",
		"environment.train.path=tasks.jsonl", `environment.train.exclude_repos_of=""`, `environment.validation.path=""`,
		"evaluate.every=0", "environment.census=off",
	) {
		args = append(args, "--set", set)
	}
	return execute(t, "", program, args...)
}

// execute runs a program, and returns what it printed.
func execute(t testing.TB, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
