package verifycmd

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/env"
	"deepswe/env/dataset"
	"deepswe/env/testkit"
	"deepswe/verify"
)

// harborImage holds the repository of a Harbor task for as long as a test runs.
const harborImage = "deepswe-test:harbor"

// buildHarborImage puts a repository, as it is before its fix, into an image.
func buildHarborImage(t testing.TB, r repository) {
	t.Helper()
	dir := t.TempDir()
	for _, c := range r.commits[:len(r.commits)-1] {
		for name, content := range c.files {
			testkit.WriteFile(t, filepath.Join(dir, "repository", name), content)
		}
	}
	testkit.WriteFile(t, filepath.Join(dir, "Dockerfile"), "FROM "+bookworm+"\nCOPY repository /testbed\n")
	if out, err := exec.CommandContext(t.Context(), "docker", "build", "-q", "-t", harborImage,
		dir).CombinedOutput(); err != nil {
		t.Fatalf("docker build: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("docker", "rmi", "-f", harborImage).CombinedOutput(); err != nil {
			t.Errorf("docker rmi: %v\n%s", err, out)
		}
	})
}

// harborTask writes a Harbor task folder about the repository. The verdict is what the shell lines in reward leave; $?
// is pytest's.
func harborTask(t testing.TB, dir string, task env.Task, reward string) string {
	t.Helper()
	testkit.WriteFile(t, filepath.Join(dir, "task.toml"), fmt.Sprintf(`version = "1.0"

[task]
name = "deepswe/%s"

[verifier]
timeout_sec = 120.0

[environment]
docker_image = %q
workdir = "/testbed"
`, filepath.Base(dir), harborImage))
	testkit.WriteFile(t, filepath.Join(dir, "instruction.md"), task.Statement)
	testkit.WriteFile(t, filepath.Join(dir, "environment", "Dockerfile"), "FROM "+harborImage+"\n")
	testkit.WriteFile(t, filepath.Join(dir, "solution", "solve.sh"),
		"#!/bin/bash\ncd /testbed && git apply <<'END_OF_PATCH'\n"+task.Tests.GoldPatch+"END_OF_PATCH\n")
	for name, content := range task.Tests.Files {
		testkit.WriteFile(t, filepath.Join(dir, "tests", filepath.Base(name)), content)
	}
	testkit.WriteFile(t, filepath.Join(dir, "tests", "test.sh"),
		"#!/bin/bash\ncp /tests/*.py /testbed/tests/\ncd /testbed && python3 -m pytest -q tests\n"+reward+"\n")
	for _, script := range []string{"tests/test.sh", "solution/solve.sh"} {
		if err := os.Chmod(filepath.Join(dir, script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// harborCases are ways to leave a verdict, with the rewards for no change and for the solution; -1 is none.
var harborCases = []struct {
	name, reward string
	empty, gold  float64
}{
	{"text", "if [ $? = 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt", 0, 1},
	{"json", `if [ $? = 0 ]; then n=1.0; else n=0.25; fi; echo "{\"reward\": $n}" > /logs/verifier/reward.json`, 0.25, 1},
	{"both", `echo 0.5 > /logs/verifier/reward.txt; echo '{"reward": 0.75}' > /logs/verifier/reward.json`, 0.75, 0.75},
	{"none", "true", -1, -1},
	{"words", "echo good > /logs/verifier/reward.txt", -1, -1},
}

// Harbor tasks are graded by what their script leaves.
func TestHarborTasks(t *testing.T) {
	t.Parallel()
	p := openDocker(t, bookworm)
	r := readRepository(t, filepath.Join(tasksDir, "layered.txtar"))
	buildHarborImage(t, r)
	source := r.task(t)
	harbor := os.Getenv("DEEPSWE_TEST_HARBOR")
	for _, tc := range harborCases {
		t.Run(tc.name, func(t *testing.T) {
			folder := harborTask(t, filepath.Join(t.TempDir(), tc.name), source, tc.reward)
			var task env.Task
			for read, err := range dataset.Read(folder, dataset.Options{Strict: true}) {
				if err != nil {
					t.Fatal(err)
				}
				task = read
			}
			e := verify.Evaluator{Provider: p, Run: "test-harbor"}
			for agent, want := range map[string]float64{"nop": tc.empty, "oracle": tc.gold} {
				patch := map[string]string{"nop": "", "oracle": source.Tests.GoldPatch}[agent]
				v, err := e.Evaluate(t.Context(), task, []byte(patch))
				if err != nil {
					t.Fatal(err)
				}
				got := v.Reward
				if v.Status == verify.Ungradable {
					got = -1
				}
				if got != want {
					t.Errorf("%s: reward %v, want %v: %s, %s\n%s", agent, got, want, v.Status, v.Detail, v.Log)
				}
				if harbor != "" {
					if theirs := harborReward(t, harbor, folder, agent); theirs != got {
						t.Errorf("%s: Harbor itself gives %v, and we %v", agent, theirs, got)
					}
				}
			}
		})
	}
}

// harborReward asks Harbor's own runner, where DEEPSWE_TEST_HARBOR names it: -1 where it gives no reward. It needs the
// compose plugin of docker.
func harborReward(t *testing.T, harbor, folder, agent string) float64 {
	t.Helper()
	trials := t.TempDir()
	out, err := exec.CommandContext(t.Context(), harbor, "trial", "start", "-p", folder, "-a", agent, "--trial-name",
		"trial", "--trials-dir", trials).CombinedOutput()
	if err != nil {
		t.Fatalf("harbor: %v\n%s", err, out)
	}
	var result struct {
		Verifier *struct {
			Rewards map[string]float64 `json:"rewards"`
		} `json:"verifier_result"`
	}
	data, err := os.ReadFile(filepath.Join(trials, "trial", "result.json"))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal(data, &result); err != nil {
		t.Fatal(err)
	}
	if result.Verifier == nil {
		if !strings.Contains(string(data), "exception") {
			t.Fatalf("neither a reward nor an exception:\n%s", data)
		}
		return -1
	}
	return result.Verifier.Rewards["reward"]
}
