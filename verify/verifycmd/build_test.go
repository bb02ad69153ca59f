package verifycmd

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/agent/llm/llmtest"
	"deepswe/env"
	"deepswe/env/testkit"
)

// Tasks with a Dockerfile, in our own format and in Harbor's, are attempted and graded in the image that it builds.
func TestDockerfileTasks(t *testing.T) {
	t.Parallel()
	testkit.Images(t, bookworm)
	r := readRepository(t, filepath.Join(tasksDir, "layered.txtar"))
	source := r.task(t)
	dir := t.TempDir()

	own := source
	own.ID, own.Image, own.Dockerfile = "own", "", "image"
	testkit.WriteFile(t, filepath.Join(dir, "image", "Dockerfile"), "FROM "+bookworm+"\nRUN touch /own\n")
	record, err := json.Marshal(own)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, filepath.Join(dir, "own.jsonl"), string(record)+"\n")

	folder := harborTask(t, filepath.Join(dir, "harbor"), source, harborCases[0].reward)
	toml := read(t, filepath.Join(folder, "task.toml"))
	testkit.WriteFile(t, filepath.Join(folder, "task.toml"),
		strings.Replace(toml, fmt.Sprintf("docker_image = %q\n", harborImage), "",
			1))
	testkit.WriteFile(t, filepath.Join(folder, "environment", "Dockerfile"),
		"FROM "+bookworm+"\nWORKDIR /testbed\nCOPY repository .\n")
	for _, c := range r.commits[:len(r.commits)-1] {
		for name, content := range c.files {
			testkit.WriteFile(t, filepath.Join(folder, "environment", "repository", name), content)
		}
	}
	server := httptest.NewServer(&llmtest.Server{Answer: knowing([]env.Task{source},
		func(string, llmtest.Request) bool { return true })})
	defer server.Close()
	for name, tasks := range map[string]string{"own": filepath.Join(dir, "own.jsonl"), "harbor": folder} {
		t.Run(name, func(t *testing.T) {
			got := deepswe(t, "eval", "--tasks", tasks, "--base-url", server.URL+"/v1", "--format", "xml", "--out",
				filepath.Join(dir, name+"-run"))
			if got.code != 0 || !strings.Contains(got.out, "1 solved of 1") {
				t.Errorf("exit code %d\n%s%s", got.code, got.out, got.errOut)
			}
		})
	}
	if harbor := os.Getenv("DEEPSWE_TEST_HARBOR"); harbor != "" {
		if reward := harborReward(t, harbor, folder, "oracle"); reward != 1 {
			t.Errorf("Harbor itself gives the solution %v", reward)
		}
	}
}
